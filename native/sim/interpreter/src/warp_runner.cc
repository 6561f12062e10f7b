// SPDX-License-Identifier: Apache-2.0
#include "warp_runner.h"

#include <algorithm>

#include "block.h"
#include "fault.h"

namespace tessera::sim {
namespace {

u32 lanes_in(u32 mask) { return static_cast<u32>(__builtin_popcount(mask)); }

}  // namespace

WarpRunner::WarpRunner(const LoadedKernel& kernel, BlockRunner& block, u32 index, LaunchTally& tally)
    : kernel_(kernel), block_(block), tally_(tally) {
  warp_.index = index;
  warp_.base[1] = kernel.program().constants.get();
}

void WarpRunner::begin(u32 live) {
  warp_.live = live;
  blocked_ = false;
  splits_.clear();
  if (kernel_.local_estimate != 0) reserve_local(kernel_.local_estimate, nullptr);
  Frame* frame = new_frame(function_at(kernel_.function()));
  frame->lanes = live;
  splits_.push_back({Split::State::kRunnable, frame, nullptr, 0, live, false, 0});
}

// ---- the loop ----

WarpRunner::Status WarpRunner::run(u64 steps) {
  turn_ = steps_left_ = static_cast<s64>(steps);
  paused_ = moved_ = false;
  for (;;) {
    const size_t index = pick();
    if (index < splits_.size()) {
      moved_ = true;
      execute(index);
      if (paused_) return Status::kPaused;
    } else if (warp_.live == 0) {
      return Status::kDone;
    } else if (!settle()) {
      blocked_ = std::none_of(splits_.begin(), splits_.end(),
                              [](const Split& s) { return s.state == Split::State::kClusterBarrier; });
      return Status::kWaiting;
    }
  }
}

size_t WarpRunner::pick() const {
  for (size_t i = splits_.size(); i-- > 0;) {
    if (splits_[i].state == Split::State::kRunnable) return i;
  }
  return splits_.size();
}

void WarpRunner::execute(size_t index) {
  Frame* const frame = splits_[index].frame;
  Join* join = splits_[index].join;
  u32 mask = splits_[index].mask, at = splits_[index].segment;
  const Function& function = *frame->function;
  SegmentTally* const tally = tally_.of(function);
  const MicroOp* const ops = function.ops.data();
  warp_.base[0] = frame->registers.get();
  warp_.local_base = frame->local_base;
  running_function_ = &function;
  for (;;) {
    if (join != nullptr && at == join->segment) {
      drop(index);
      return arrive(join, mask);
    }
    if (steps_left_ <= 0) return pause(index, at, mask, join);
    const Segment& segment = function.segments[at];
    running_mask_ = mask;
    ++tally[at].warps;
    tally[at].lanes += lanes_in(mask);
    steps_left_ -= segment.count + 1;
    const MicroOp* const end = ops + segment.first + segment.count;
    for (const MicroOp* op = ops + segment.first; op != end; ++op) {
      if (op->guard == kNoGuard) [[likely]] {
        op->run(warp_, *op, mask);
      } else {
        run_guarded(*op, mask);
      }
    }
    switch (segment.end) {
      case Segment::End::kNext:
        at = segment.next;
        break;
      case Segment::End::kBranch: {
        const u32 holds = warp_.predicate(end->guard) ^ (0u - end->guard_negated);
        const u32 taken = mask & holds;
        if (taken == mask) {
          at = segment.target;
        } else if (taken == 0) {
          at = segment.next;
        } else {
          at = diverge(frame, segment, taken, mask, join);
        }
        break;
      }
      case Segment::End::kWarpSync: {
        const u32 members = warp_.lanes32(end->r[segment.detail])[__builtin_ctz(mask)] & warp_.live;
        if ((members & ~mask) != 0) {
          save(index, at, mask, join, Split::State::kWarpSync);
          try_warp_sync(index);
          return;
        }
        end->run(warp_, *end, mask);
        at = segment.next;
        break;
      }
      case Segment::End::kYield:
        end->run(warp_, *end, mask);
        return pause(index, segment.next, mask, join);
      default:
        if (!finish_segment(index, frame, segment, end, at, mask, join)) return;
        at = segment.next;
        break;
    }
    if (warp_.yield) [[unlikely]] {
      warp_.yield = false;
      return pause(index, at, mask, join);
    }
  }
}

/// The rarer ends of a segment. True when the split goes on at `segment.next`.
bool WarpRunner::finish_segment(size_t index, Frame* frame, const Segment& segment, const MicroOp* end, u32 at,
                                u32 mask, Join* join) {
  switch (segment.end) {
    case Segment::End::kSwitch:
      run_switch(index, frame, segment, *end, mask, join);
      return false;
    case Segment::End::kCall:
      call(index, frame, segment, *end, mask, join);
      return false;
    case Segment::End::kReturn:
      leave(index, frame, mask, join);
      return false;
    case Segment::End::kExit:
      exit_lanes(index, frame, mask, join);
      return false;
    case Segment::End::kWarpBarrier: {
      const u32 members = warp_.lanes32(end->r[0])[__builtin_ctz(mask)] & warp_.live;
      if ((members & ~mask) == 0) return true;
      save(index, at, mask, join, Split::State::kWarpBarrier);
      try_warp_barrier(index);
      return false;
    }
    case Segment::End::kBlockBarrier:
      return reach_barrier(index, frame, segment, *end, at, mask, join);
    case Segment::End::kClusterArrive:
      cluster_arrive(mask);
      return true;
    case Segment::End::kClusterWait:
      if (block_.cluster->phase > cluster_phase_) return true;
      save(index, at, mask, join, Split::State::kClusterBarrier);
      return false;
    default:
      return true;
  }
}

void WarpRunner::run_guarded(const MicroOp& op, u32 mask) {
  const u32 active = mask & (warp_.predicate(op.guard) ^ (0u - op.guard_negated));
  ++tally_.guarded_ops;
  const u32 count = lanes_in(active);
  tally_.guarded_lanes += count;
  if (active == 0) return;
  tally_.guarded_costs[op.cost_kind] += op.cost_kind < kLaneCostKinds ? u64{op.cost_weight} * count : op.cost_weight;
  op.run(warp_, op, active);
}

void WarpRunner::save(size_t index, u32 segment, u32 mask, Join* join, Split::State state) {
  Split& split = splits_[index];
  split.segment = segment;
  split.mask = mask;
  split.join = join;
  split.state = state;
  split.counted = false;
}

/// Other lanes of the warp, and other warps, go first from here.
void WarpRunner::pause(size_t index, u32 segment, u32 mask, Join* join) {
  save(index, segment, mask, join, Split::State::kRunnable);
  std::rotate(splits_.begin(), splits_.begin() + static_cast<std::ptrdiff_t>(index),
              splits_.begin() + static_cast<std::ptrdiff_t>(index) + 1);
  paused_ = true;
}

// ---- divergence ----

Join* WarpRunner::join_for(const Segment& segment, Frame* frame, Join* join, u32 mask) {
  if (segment.reconverge == kNoSegment) return join;
  if (join != nullptr && join->segment == segment.reconverge) return join;
  Join* out = new_join();
  *out = {segment.reconverge, kNoSegment, frame, mask, 0, join};
  return out;
}

/// Parts the lanes of a branch; returns where the running split goes on, with its new mask and join.
u32 WarpRunner::diverge(Frame* frame, const Segment& segment, u32 taken, u32& mask, Join*& join) {
  const u32 rest = mask & ~taken;
  join = join_for(segment, frame, join, mask);
  const u32 meeting = join == nullptr ? kNoSegment : join->segment;
  if (segment.target == meeting && meeting != kNoSegment) {
    join->arrived |= taken;
    mask = rest;
    return segment.next;
  }
  if (segment.next == meeting && meeting != kNoSegment) {
    join->arrived |= rest;
    mask = taken;
    return segment.target;
  }
  splits_.push_back({Split::State::kRunnable, frame, join, segment.next, rest, false, 0});
  // The running split keeps its place below the new one; it goes on now and is found later by its index.
  mask = taken;
  return segment.target;
}

void WarpRunner::run_switch(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 mask,
                            Join* join) {
  const std::vector<u32>& targets = frame->function->switches[segment.detail];
  const u32* choice = warp_.lanes32(op.r[0]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0 && choice[i] >= targets.size())
      raise_fault(Fault::Kind::kIllegalInstruction, "brx.idx beyond its list of targets", op, i);
  }
  const u32 first = targets[choice[__builtin_ctz(mask)]];
  Join* meeting = nullptr;
  bool parted = false;
  for (u32 left = mask; left != 0;) {
    const u32 target = targets[choice[__builtin_ctz(left)]];
    u32 group = 0;
    for (int i = 0; i < kLanes; ++i) {
      if ((left >> i & 1) != 0 && targets[choice[i]] == target) group |= 1u << i;
    }
    left &= ~group;
    if (!parted && group == mask) return save(index, first, mask, join, Split::State::kRunnable);
    if (!parted) {
      meeting = join_for(segment, frame, join, mask);
      drop(index);
      parted = true;
    }
    splits_.push_back({Split::State::kRunnable, frame, meeting, target, group, false, 0});
  }
}

void WarpRunner::arrive(Join* join, u32 mask) {
  join->arrived |= mask;
  if (join->arrived == join->expected) release(join);
}

void WarpRunner::release(Join* join) {
  const u32 segment = join->segment == kNoSegment ? join->resume : join->segment;
  splits_.push_back({Split::State::kRunnable, join->frame, join->parent, segment, join->arrived, false, 0});
  free_joins_.push_back(join);
}

/// Lanes that ended or returned are not waited for in the joins up to `until`.
void WarpRunner::forget(Join* join, u32 mask, const Join* until) {
  while (join != nullptr && join != until) {
    Join* parent = join->parent;
    join->expected &= ~mask;
    if (join->expected == 0) {
      free_joins_.push_back(join);
    } else if (join->arrived == join->expected) {
      release(join);
    }
    join = parent;
  }
}

void WarpRunner::exit_lanes(size_t index, Frame* frame, u32 mask, Join* join) {
  drop(index);
  warp_.live &= ~mask;
  forget(join, mask, nullptr);
  for (Frame* f = frame; f != nullptr;) {
    Frame* caller = f->caller;
    f->lanes &= ~mask;
    if (f->lanes == 0) free_frames_.push_back(f);
    f = caller;
  }
  block_.lanes_ended(lanes_in(mask));
  if (warp_.live == 0) return block_.warp_ended();
  // Lanes that waited for the ones that ended may have everybody now.
  for (size_t i = 0; i < splits_.size(); ++i) {
    if (splits_[i].state == Split::State::kWarpSync) try_warp_sync(i);
    if (splits_[i].state == Split::State::kWarpBarrier) try_warp_barrier(i);
  }
}

void WarpRunner::drop(size_t index) { splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(index)); }

// ---- waiting ----

/// Runs the operation that split `index` waits at, when its members have gathered there.
void WarpRunner::try_warp_sync(size_t index) {
  const Split first = splits_[index];
  const Segment& segment = first.frame->function->segments[first.segment];
  const MicroOp& op = first.frame->function->ops[segment.end_op];
  warp_.base[0] = first.frame->registers.get();
  const u32 members = warp_.lanes32(op.r[segment.detail])[__builtin_ctz(first.mask)] & warp_.live;
  const auto is_here = [&first](const Split& s) {
    return s.state == Split::State::kWarpSync && s.frame == first.frame && s.segment == first.segment;
  };
  u32 gathered = 0;
  for (const Split& split : splits_) gathered |= is_here(split) ? split.mask : 0;
  if ((members & ~gathered) != 0) return;
  op.run(warp_, op, gathered);
  for (Split& split : splits_) {
    if (!is_here(split)) continue;
    split.state = Split::State::kRunnable;
    if (&split != &splits_[index]) split.segment = segment.next;
  }
  splits_[index].segment = segment.next;
}

void WarpRunner::try_warp_barrier(size_t index) {
  const Split& first = splits_[index];
  const Segment& segment = first.frame->function->segments[first.segment];
  const MicroOp& op = first.frame->function->ops[segment.end_op];
  warp_.base[0] = first.frame->registers.get();
  const u32 members = warp_.lanes32(op.r[0])[__builtin_ctz(first.mask)] & warp_.live;
  u32 gathered = 0;
  for (const Split& split : splits_) gathered |= split.state == Split::State::kWarpBarrier ? split.mask : 0;
  if ((members & ~gathered) != 0) return;
  for (Split& split : splits_) {
    if (split.state != Split::State::kWarpBarrier || (split.mask & members) == 0) continue;
    split.segment = split.frame->function->segments[split.segment].next;
    split.state = Split::State::kRunnable;
  }
}

/// No split can run: what waits for the block is made known to it. True when something can run now.
bool WarpRunner::settle() {
  count_barriers();
  for (Split& split : splits_) {
    if (split.state != Split::State::kClusterBarrier || block_.cluster->phase <= cluster_phase_) continue;
    split.segment = split.frame->function->segments[split.segment].next;
    split.state = Split::State::kRunnable;
  }
  return pick() < splits_.size();
}

void WarpRunner::count_barriers() {
  for (u32 id = 0; id < kBarriers; ++id) {
    BarrierState sum;
    const BlockBarrier* barrier = nullptr;
    for (Split& split : splits_) {
      if (split.state != Split::State::kBlockBarrier || split.counted || split.barrier != id) continue;
      const Function& function = *split.frame->function;
      const Segment& segment = function.segments[split.segment];
      const MicroOp& op = function.ops[segment.end_op];
      barrier = &function.barriers[segment.detail];
      warp_.base[0] = split.frame->registers.get();
      split.counted = true;
      const bool reduces = barrier->kind != BlockBarrier::Kind::kSync;
      if (barrier->counted) sum.expected = warp_.lanes32(op.r[reduces ? 2 : 1])[__builtin_ctz(split.mask)];
      if (!reduces) continue;
      const u32 holds = (warp_.predicate(op.r[3]) ^ (barrier->predicate_negated ? ~0u : 0u)) & split.mask;
      sum.population += lanes_in(holds);
      sum.all = sum.all && holds == split.mask;
      sum.any = sum.any || holds != 0;
    }
    if (barrier != nullptr) block_.arrive(id, sum);
  }
}

bool WarpRunner::reach_barrier(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 at, u32 mask,
                               Join* join) {
  const BlockBarrier& barrier = frame->function->barriers[segment.detail];
  const bool reduces = barrier.kind != BlockBarrier::Kind::kSync && barrier.kind != BlockBarrier::Kind::kArrive;
  const int first = __builtin_ctz(mask);
  const u32 id = warp_.lanes32(op.r[reduces ? 1 : 0])[first];
  const u32 count = warp_.lanes32(op.r[reduces ? 2 : 1])[first];
  if (id >= kBarriers) raise_fault(Fault::Kind::kIllegalInstruction, "a barrier number above 15", op, first);
  if (barrier.counted && (count == 0 || count % kLanes != 0))
    raise_fault(Fault::Kind::kIllegalInstruction, "a barrier's thread count is not a multiple of the warp size", op,
                first);
  if (barrier.kind == BlockBarrier::Kind::kArrive) {
    BarrierState arrival;
    arrival.expected = count;
    block_.arrive(id, arrival);
    return true;
  }
  save(index, at, mask, join, Split::State::kBlockBarrier);
  splits_[index].barrier = id;
  return false;
}

void WarpRunner::release_barrier(u32 id, const BarrierState& state) {
  for (Split& split : splits_) {
    if (split.state != Split::State::kBlockBarrier || !split.counted || split.barrier != id) continue;
    const Function& function = *split.frame->function;
    const Segment& segment = function.segments[split.segment];
    const BlockBarrier& barrier = function.barriers[segment.detail];
    u8* const saved = warp_.base[0];
    warp_.base[0] = split.frame->registers.get();
    const MicroOp& op = function.ops[segment.end_op];
    if (barrier.kind == BlockBarrier::Kind::kReducePopc) {
      u32* d = warp_.lanes32(op.r[0]);
      for (int i = 0; i < kLanes; ++i) d[i] = (split.mask >> i & 1) != 0 ? state.population : d[i];
    } else if (barrier.kind != BlockBarrier::Kind::kSync) {
      const bool holds = barrier.kind == BlockBarrier::Kind::kReduceAnd ? state.all : state.any;
      u32& p = warp_.predicate(op.r[0]);
      p = (p & ~split.mask) | (holds ? split.mask : 0u);
    }
    warp_.base[0] = saved;
    split.segment = segment.next;
    split.state = Split::State::kRunnable;
    split.counted = false;
    blocked_ = false;
  }
}

void WarpRunner::cluster_arrive(u32 mask) {
  cluster_phase_ = block_.cluster->phase;
  block_.cluster->arrived += lanes_in(mask);
  block_.cluster->advance();
}

std::string WarpRunner::describe_wait() const {
  std::string text;
  for (const Split& split : splits_) {
    static constexpr const char* kWhat[] = {"nothing", "lanes of its warp", "lanes of its warp", "the block",
                                            "the cluster"};
    const Function& function = *split.frame->function;
    const Segment& segment = function.segments[split.segment];
    const u32 line = segment.end_op == kNoOp ? 0 : function.lines[segment.end_op];
    if (!text.empty()) text += "; ";
    text += "warp " + std::to_string(warp_.index) + " waits at line " + std::to_string(line) + " for " +
            kWhat[static_cast<int>(split.state)];
  }
  return text;
}

}  // namespace tessera::sim
