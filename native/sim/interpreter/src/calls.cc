// SPDX-License-Identifier: Apache-2.0
// Calls and returns of one warp: frames, and what passes between them.
#include <algorithm>
#include <cstring>

#include "block.h"
#include "fault.h"
#include "warp_runner.h"

namespace tessera::sim {
namespace {

constexpr u32 kMaxLocalBytes = 512u << 10;  // of one lane, as on the hardware
constexpr u32 kMaxDepth = 8192;

u32 align16(u32 value) { return (value + 15) / 16 * 16; }

}  // namespace

Frame* WarpRunner::new_frame(const Function& function) {
  if (free_frames_.empty()) {
    frames_.push_back(std::make_unique<Frame>());
    free_frames_.push_back(frames_.back().get());
  }
  Frame* frame = free_frames_.back();
  free_frames_.pop_back();
  if (frame->capacity < function.frame_bytes) {
    frame->registers = allocate_aligned(function.frame_bytes);
    frame->capacity = function.frame_bytes;
  } else {
    std::memset(frame->registers.get(), 0, function.frame_bytes);
  }
  frame->function = &function;
  frame->caller = nullptr;
  frame->call = nullptr;
  frame->local_base = 0;
  frame->lanes = 0;
  frame->depth = 0;
  return frame;
}

Join* WarpRunner::new_join() {
  if (free_joins_.empty()) {
    joins_.push_back(std::make_unique<Join>());
    free_joins_.push_back(joins_.back().get());
  }
  Join* join = free_joins_.back();
  free_joins_.pop_back();
  return join;
}

void WarpRunner::reserve_local(u32 bytes, const MicroOp* op) {
  bytes = align16(bytes);
  if (bytes <= warp_.local_bytes) return;
  if (bytes > kMaxLocalBytes)
    throw FaultError{Fault::Kind::kIllegalAddress, "the stack of local memory is full (512 KiB per thread)", op, -1};
  const u32 size = std::min(std::max(bytes, warp_.local_bytes * 2), kMaxLocalBytes);
  AlignedBytes grown = allocate_aligned(size_t{size} * kLanes);
  for (u32 lane = 0; lane < kLanes && warp_.local_bytes != 0; ++lane) {
    std::memcpy(grown.get() + size_t{lane} * size, local_.get() + size_t{lane} * warp_.local_bytes, warp_.local_bytes);
  }
  local_ = std::move(grown);
  warp_.local = local_.get();
  warp_.local_bytes = size;
}

void WarpRunner::pass(const Passed& from, const Frame& from_frame, const Passed& to, const Frame& to_frame, u32 mask) {
  const auto place = [this](const Passed& passed, const Frame& frame, u32 lane) -> u8* {
    if (passed.in_memory) return warp_.local + size_t{lane} * warp_.local_bytes + frame.local_base + passed.offset;
    u8* const base = (passed.ref & 1) != 0 ? warp_.base[1] : frame.registers.get();
    return base + (passed.ref & ~1u) + size_t{lane} * std::max(passed.bytes, 2u);
  };
  const u32 bytes = std::min(from.bytes, to.bytes);
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) != 0) std::memcpy(place(to, to_frame, lane), place(from, from_frame, lane), bytes);
  }
}

void WarpRunner::enter(const CallSite& site, Frame* caller, u32 callee, u32 mask, Join* back, const MicroOp& op) {
  const Function& function = function_at(callee);
  if (site.arguments.size() != function.formals.size() || site.results.size() > function.results.size()) {
    raise_fault(Fault::Kind::kIllegalInstruction, "a call passes another number of arguments than the function takes",
                op, -1);
  }
  if (caller->depth + 1 > kMaxDepth) raise_fault(Fault::Kind::kIllegalAddress, "calls are nested too deeply", op, -1);
  Frame* frame = new_frame(function);
  frame->caller = caller;
  frame->call = &site;
  frame->depth = caller->depth + 1;
  frame->local_base = caller->local_base + align16(caller->function->local_bytes);
  frame->lanes = mask;
  reserve_local(frame->local_base + function.local_bytes, &op);
  for (size_t k = 0; k < site.arguments.size(); ++k)
    pass(site.arguments[k], *caller, function.formals[k], *frame, mask);
  splits_.push_back({Split::State::kRunnable, frame, back, 0, mask, false, 0});
}

void WarpRunner::call(size_t index, Frame* frame, const Segment& segment, const MicroOp& op, u32 mask, Join* join) {
  const CallSite& site = frame->function->calls[segment.detail];
  Join* back = new_join();
  *back = {kNoSegment, segment.next, frame, mask, 0, join};
  drop(index);
  if (site.callee != 0xffffffffu) return enter(site, frame, site.callee, mask, back, op);
  // Lanes that call different functions run them one after another.
  u64 targets[kLanes];
  std::memcpy(targets, warp_.lanes64(op.r[0]), sizeof targets);
  for (u32 left = mask; left != 0;) {
    const int first = __builtin_ctz(left);
    const u64 target = targets[first];
    u32 group = 0;
    for (int i = 0; i < kLanes; ++i) group |= static_cast<u32>(targets[i] == target) << i;
    group &= left;
    left &= ~group;
    const u64 callee = target - kCodeWindow;
    if (target < kCodeWindow || callee >= kernel_.program().functions.size()) {
      raise_fault(Fault::Kind::kIllegalInstruction, "a call through a pointer that is not a function's", op, first);
    }
    enter(site, frame, static_cast<u32>(callee), group, back, op);
  }
}

void WarpRunner::leave(size_t index, Frame* frame, u32 mask, Join* join) {
  const Function& function = *frame->function;
  for (size_t k = 0; k < frame->call->results.size(); ++k)
    pass(function.results[k], *frame, frame->call->results[k], *frame->caller, mask);
  Join* back = join;
  while (back->segment != kNoSegment) back = back->parent;
  drop(index);
  forget(join, mask, back);
  frame->lanes &= ~mask;
  if (frame->lanes == 0) free_frames_.push_back(frame);
  arrive(back, mask);
}

}  // namespace tessera::sim
