// SPDX-License-Identifier: Apache-2.0
// A compiled program: what lowering makes and the executor runs.
//
// A function is a list of segments: straight runs of operations, each with one
// way to end. A segment that cannot be left in the middle is what keeps the
// inner loop small: divergence, barriers and calls are all ends of segments.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "micro_op.h"

namespace tessera::sim {

constexpr u32 kNoSegment = 0xffffffffu;
constexpr u32 kNoOp = 0xffffffffu;

struct Segment {
  enum class End : u8 {
    kNext,    // falls into `next`
    kBranch,  // lanes where the guard of the end operation holds go to `target`, the others to `next`
    kSwitch,  // r[0] of the end operation indexes switches[detail]
    kCall,    // calls[detail]
    kReturn,
    kExit,
    kWarpSync,      // the end operation is run once every lane of its member mask is there
    kWarpBarrier,   // lanes wait for each other, wherever in the code they are
    kBlockBarrier,  // barriers[detail]
    kClusterArrive,
    kClusterWait,
    kYield,  // the end operation is run, then other warps may go first
  };
  u32 first = 0, count = 0;  // operations before the end
  u32 end_op = kNoOp;        // the operation that belongs to the end
  u32 next = kNoSegment, target = kNoSegment;
  u32 reconverge = kNoSegment;  // where lanes that part here meet again; kNoSegment: at the return
  u32 detail = 0;
  End end = End::kNext;
  u32 plain_ops = 0;                                          // operations without a guard, the end included
  std::array<u32, kLaneCostKinds> lane_costs{};               // of those, per lane
  std::array<u32, kCostKinds - kLaneCostKinds> warp_costs{};  // of those, per warp
};

/// A value passed to or from a function: bytes of the frame's local memory, or a register.
struct Passed {
  bool in_memory = false;
  u32 offset = 0;  // in the frame's local memory
  u32 ref = 0;     // register (or constant) slot
  u32 bytes = 0;
};

struct CallSite {
  u32 callee = 0xffffffffu;  // function index; else r[0] of the end operation holds a function pointer
  std::vector<Passed> arguments, results;
};

struct BlockBarrier {
  enum class Kind : u8 { kSync, kArrive, kReduceAnd, kReduceOr, kReducePopc } kind = Kind::kSync;
  // end operation: r = {[result,] barrier, thread count, [predicate]}
  bool counted = false;
  bool predicate_negated = false;
};

struct Function {
  std::string name;
  u32 index = 0;
  bool is_entry = false;
  std::vector<MicroOp> ops;
  std::vector<u32> lines;       // of each operation
  std::unique_ptr<u32[]> refs;  // what MicroOp::r points into
  std::vector<Segment> segments;
  std::vector<CallSite> calls;
  std::vector<std::vector<u32>> switches;
  std::vector<BlockBarrier> barriers;
  std::vector<Passed> formals, results;
  u32 frame_bytes = 0;  // registers
  u32 local_bytes = 0;  // of each lane
  u32 register_estimate = 0;
};

}  // namespace tessera::sim
