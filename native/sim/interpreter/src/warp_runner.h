// SPDX-License-Identifier: Apache-2.0
// Runs one warp. Lanes that take different ways form splits, each a group of
// lanes at one place of the code; a join is where the lanes that parted meet
// again. Any split that can run may run: one that waits does not hold up others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "code.h"
#include "program.h"
#include "warp.h"

namespace tessera::sim {

class BlockRunner;
struct BarrierState;

/// How often segments ran: work is computed from it at the end of the launch.
struct SegmentTally {
  u64 warps = 0, lanes = 0;
};
struct LaunchTally {
  explicit LaunchTally(const LoadedProgram& program) : segments(program.functions.size()) {}
  SegmentTally* of(const Function& function) {
    std::vector<SegmentTally>& tally = segments[function.index];
    if (tally.empty()) tally.resize(function.segments.size());
    return tally.data();
  }
  std::vector<std::vector<SegmentTally>> segments;  // by function
  u64 guarded_ops = 0, guarded_lanes = 0;
  u64 guarded_costs[kCostKinds] = {};
};

struct Frame {
  const Function* function = nullptr;
  Frame* caller = nullptr;
  const CallSite* call = nullptr;  // in the caller
  u32 local_base = 0;
  u32 lanes = 0;  // that have not returned
  u32 depth = 0;
  AlignedBytes registers;
  size_t capacity = 0;
};

struct Join {
  u32 segment = kNoSegment;  // kNoSegment: the return of `callee`
  u32 resume = kNoSegment;   // for a return: where the caller goes on
  Frame* frame = nullptr;    // in which lanes go on
  u32 expected = 0, arrived = 0;
  Join* parent = nullptr;
};

struct Split {
  enum class State : u8 { kRunnable, kWarpSync, kWarpBarrier, kBlockBarrier, kClusterBarrier } state = State::kRunnable;
  Frame* frame = nullptr;
  Join* join = nullptr;
  u32 segment = 0;
  u32 mask = 0;
  bool counted = false;  // a block barrier knows of this arrival
  u32 barrier = 0;
};

class WarpRunner {
 public:
  WarpRunner(const LoadedKernel& kernel, BlockRunner& block, u32 index, LaunchTally& tally);

  void begin(u32 live);
  enum class Status { kDone, kWaiting, kPaused };
  /// Runs until all lanes have ended or wait, or about `steps` warp instructions.
  Status run(u64 steps);

  bool done() const { return warp_.live == 0; }
  /// Nothing can run until a barrier of the block is complete.
  bool blocked() const { return blocked_; }
  /// Whether the last run() executed anything.
  bool moved() const { return moved_; }
  /// Warp instructions that the last run() executed.
  u64 steps_taken() const { return static_cast<u64>(turn_ - steps_left_); }
  /// Barrier `id` is complete: lanes that wait there go on.
  void release_barrier(u32 id, const BarrierState& state);
  std::string describe_wait() const;
  const Function* running_function() const { return running_function_; }
  u32 running_mask() const { return running_mask_; }

  Warp warp_;

 private:
  void execute(size_t index);
  bool finish_segment(size_t index, Frame* frame, const Segment& segment, const MicroOp* end, u32 at, u32 mask,
                      Join* join);
  void run_guarded(const MicroOp& op, u32 mask);
  void save(size_t index, u32 segment, u32 mask, Join* join, Split::State state);
  void pause(size_t index, u32 segment, u32 mask, Join* join);
  size_t pick() const;
  void drop(size_t index);

  Join* join_for(const Segment& segment, Frame* frame, Join* join, u32 mask);
  u32 diverge(Frame* frame, const Segment& segment, u32 taken, u32& mask, Join*& join);
  void run_switch(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 mask, Join* join);
  void arrive(Join* join, u32 mask);
  void release(Join* join);
  void forget(Join* join, u32 mask, const Join* until);
  void exit_lanes(size_t index, Frame* frame, u32 mask, Join* join);
  Join* new_join();

  void call(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 mask, Join* join);
  void enter(const CallSite& site, Frame* caller, u32 callee, u32 mask, Join* back, const MicroOp& op);
  void leave(size_t index, Frame* frame, u32 mask, Join* join);
  void pass(const Passed& from, const Frame& from_frame, const Passed& to, const Frame& to_frame, u32 mask);
  void reserve_local(u32 bytes, const MicroOp* op);
  Frame* new_frame(const Function& function);

  bool settle();
  void try_warp_sync(size_t index);
  void try_warp_barrier(size_t index);
  void count_barriers();
  bool reach_barrier(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 at, u32 mask,
                     Join* join);
  void cluster_arrive(u32 mask);
  const Function& function_at(u32 index) const { return *kernel_.program().functions[index]; }

  const LoadedKernel& kernel_;
  BlockRunner& block_;
  LaunchTally& tally_;
  std::vector<Split> splits_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> free_frames_;
  std::vector<std::unique_ptr<Join>> joins_;
  std::vector<Join*> free_joins_;
  AlignedBytes local_;
  s64 turn_ = 0, steps_left_ = 0;
  bool paused_ = false, blocked_ = false, moved_ = false;
  u64 cluster_phase_ = 0;  // that this warp last arrived in
  const Function* running_function_ = nullptr;
  u32 running_mask_ = 0;
};

}  // namespace tessera::sim
