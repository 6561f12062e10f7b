// SPDX-License-Identifier: Apache-2.0
// A resident block, the cluster that it belongs to, and their barriers.
#pragma once

#include <memory>
#include <vector>

#include "code.h"
#include "program.h"
#include "warp_runner.h"

namespace tessera::sim {

constexpr u32 kBarriers = 16;

/// One of a block's barriers, in its current phase.
struct BarrierState {
  u32 warps = 0;       // that have arrived
  u32 expected = 0;    // threads, where a count was given; 0: every warp that still runs
  u32 population = 0;  // lanes whose predicate holds
  bool all = true, any = false;
};

struct ClusterState {
  u64 phase = 0;
  u32 arrived = 0;  // lanes
  u32 live = 0;     // lanes of all blocks that have not ended
  void advance() {
    if (arrived < live) return;
    ++phase;
    arrived = 0;
  }
};

class BlockRunner {
 public:
  BlockRunner(const LoadedKernel& kernel, const Launch& launch, MemoryGate& memory, LaunchServices& services,
              LaunchTally& tally);

  /// Makes the block with this index resident; the last one must have ended.
  void begin(const Dim3& index, ClusterState* cluster);
  /// Runs warps until each has ended, waits or has had its turn.
  enum class Progress { kDone, kRan, kStuck };
  /// Adds to `steps` the warp instructions that were run.
  Progress run(u64 steps_per_warp, u64& steps);
  bool done() const { return live_warps_ == 0; }

  /// One warp has reached barrier `id`; `arrival` holds what it adds.
  void arrive(u32 id, const BarrierState& arrival);
  void warp_ended();
  void lanes_ended(u32 lanes);
  /// The warp that ran last: a fault is its.
  const WarpRunner* running() const { return running_; }

  BlockContext context;
  ClusterState* cluster = nullptr;
  std::string describe_waits() const;

 private:
  void check(u32 id);

  AlignedBytes shared_;
  std::vector<std::unique_ptr<WarpRunner>> warps_;
  BarrierState barriers_[kBarriers];
  u32 live_warps_ = 0, threads_ = 0;
  const WarpRunner* running_ = nullptr;
};

}  // namespace tessera::sim
