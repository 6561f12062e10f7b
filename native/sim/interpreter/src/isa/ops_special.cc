// SPDX-License-Identifier: Apache-2.0
// Special registers and the generic address space.
#include <time.h>

#include "../special.h"
#include "map.h"
#include "resolve.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

void fill32(Warp& w, u32 ref, u32 mask, u32 value) {
  u32* d = w.lanes32(ref);
  TS_LANES d[i] = (mask >> i & 1) != 0 ? value : d[i];
}
void fill64(Warp& w, u32 ref, u32 mask, u64 value) {
  u64* d = w.lanes64(ref);
  TS_LANES d[i] = (mask >> i & 1) != 0 ? value : d[i];
}

void thread_index(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const u32* tid = w.tid[op.imm];
  TS_LANES d[i] = (mask >> i & 1) != 0 ? tid[i] : d[i];
}

void lane_id(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  TS_LANES d[i] = (mask >> i & 1) != 0 ? static_cast<u32>(i) : d[i];
}

/// imm: 0 eq, 1 le, 2 lt, 3 ge, 4 gt.
void lane_mask(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const u32 own = 1u << i, below = own - 1;
    const u32 masks[5] = {own, below | own, below, ~below, ~(below | own)};
    d[i] = masks[op.imm];
  }
}

template <u32 (BlockContext::*kMember)[3]>
void triple(Warp& w, const MicroOp& op, u32 mask) {
  fill32(w, op.r[0], mask, (w.block->*kMember)[op.imm]);
}
template <u32 BlockContext::* kMember>
void scalar(Warp& w, const MicroOp& op, u32 mask) {
  fill32(w, op.r[0], mask, w.block->*kMember);
}
void constant(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, static_cast<u32>(op.imm)); }
void constant64(Warp& w, const MicroOp& op, u32 mask) { fill64(w, op.r[0], mask, op.imm); }
void dynamic_shared_base(Warp& w, const MicroOp& op, u32 mask) {
  fill32(w, op.r[0], mask, w.block->dynamic_shared_base + static_cast<u32>(op.imm));
}
void warp_id(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, w.index); }
void grid_id32(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, static_cast<u32>(w.block->grid_id)); }
void grid_id64(Warp& w, const MicroOp& op, u32 mask) { fill64(w, op.r[0], mask, w.block->grid_id); }
void cluster_count(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, w.block->nclusters[op.imm]); }

// The clocks are the host's, so that they advance in loops that wait for them.
u64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000u + static_cast<u64>(t.tv_nsec);
}
void clock32(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, static_cast<u32>(now_ns())); }
void clock32_high(Warp& w, const MicroOp& op, u32 mask) { fill32(w, op.r[0], mask, static_cast<u32>(now_ns() >> 32)); }
void clock64(Warp& w, const MicroOp& op, u32 mask) { fill64(w, op.r[0], mask, now_ns()); }

/// d = the current frame's local memory + imm.
void local_address32(Warp& w, const MicroOp& op, u32 mask) {
  fill32(w, op.r[0], mask, w.local_base + static_cast<u32>(op.imm));
}
void local_address64(Warp& w, const MicroOp& op, u32 mask) { fill64(w, op.r[0], mask, w.local_base + op.imm); }

/// Between a space and the generic one: imm is added, or its window taken off.
void add_window(Warp& w, const MicroOp& op, u32 mask) {
  u64* d = w.lanes64(op.r[0]);
  const u64 *a = w.lanes64(op.r[1]), window = op.imm;
  TS_LANES d[i] = (mask >> i & 1) != 0 ? a[i] + window : d[i];
}
/// isspacep: r = {p, a}; imm is the window, 0 for global.
void is_in_window(Warp& w, const MicroOp& op, u32 mask) {
  const u64* a = w.lanes64(op.r[1]);
  u32 found = 0;
  for (int i = 0; i < kLanes; ++i) {
    const u64 window = a[i] & ~kWindowOffsetMask;
    found |= static_cast<u32>(op.imm == 0 ? a[i] < kSharedWindow : window == op.imm) << i;
  }
  u32& p = w.predicate(op.r[0]);
  p = (p & ~mask) | (found & mask);
}

/// mapa: r = {d, a, rank}: the address in another block's shared memory; an address without a rank is this block's.
template <class T>
void map_address(Warp& w, const MicroOp& op, u32 mask) {
  T* d = lanes_of<T>(w, op.r[0]);
  const T* a = lanes_of<T>(w, op.r[1]);
  const u32* rank = w.lanes32(op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (rank[i] >= w.block->cluster_size)
      raise_fault(Fault::Kind::kIllegalAddress, "mapa names a block outside the cluster", op, i);
    const u64 address = a[i], window = address & ~kWindowOffsetMask, offset = address & kSharedOffsetMask;
    d[i] = static_cast<T>(window | offset | u64{rank[i] + 1} << kClusterRankShift);
  }
}
template <class T>
void rank_of_address(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const T* a = lanes_of<T>(w, op.r[1]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const u32 tag = static_cast<u32>((u64{a[i]} & kWindowOffsetMask) >> kClusterRankShift);
    d[i] = tag == 0 ? w.block->cluster_rank : tag - 1;
  }
}

void nothing(Warp&, const MicroOp&, u32) {}

constexpr u64 special(Special which) {
  return op_key(Op::kSpecial, Type::kNone, Type::kNone, 0, static_cast<u8>(which));
}

constexpr OpEntry kEntries[] = {
    {special(Special::kTid), &thread_index},
    {special(Special::kNtid), &triple<&BlockContext::ntid>},
    {special(Special::kCtaid), &triple<&BlockContext::ctaid>},
    {special(Special::kNctaid), &triple<&BlockContext::nctaid>},
    {special(Special::kLaneid), &lane_id},
    {special(Special::kLanemask), &lane_mask},
    {special(Special::kWarpid), &warp_id},
    {special(Special::kNwarpid), &scalar<&BlockContext::warp_count>},
    {special(Special::kSmid), &scalar<&BlockContext::sm_id>},
    {special(Special::kNsmid), &scalar<&BlockContext::sm_count>},
    {special(Special::kGridid32), &grid_id32},
    {special(Special::kGridid64), &grid_id64},
    {special(Special::kClock32), &clock32},
    {special(Special::kClock32High), &clock32_high},
    {special(Special::kClock64), &clock64},
    {special(Special::kDynamicShared), &scalar<&BlockContext::dynamic_shared_bytes>},
    {special(Special::kTotalShared), &scalar<&BlockContext::shared_bytes>},
    {special(Special::kDynamicSharedBase), &dynamic_shared_base},
    {special(Special::kClusterid), &triple<&BlockContext::cluster_id>},
    {special(Special::kNclusterid), &cluster_count},
    {special(Special::kClusterCtaid), &triple<&BlockContext::cluster_ctaid>},
    {special(Special::kClusterNctaid), &triple<&BlockContext::cluster_nctaid>},
    {special(Special::kClusterCtarank), &scalar<&BlockContext::cluster_rank>},
    {special(Special::kClusterNctarank), &scalar<&BlockContext::cluster_size>},
    {special(Special::kConstant32), &constant},
    {special(Special::kConstant64), &constant64},
    {op_key(Op::kLocalAddress, Type::kB32), &local_address32},
    {op_key(Op::kLocalAddress, Type::kB64), &local_address64},
    {op_key(Op::kCvta), &add_window},
    {op_key(Op::kIsspacep), &is_in_window},
    {op_key(Op::kMapa, Type::kB32), &map_address<u32>},
    {op_key(Op::kMapa, Type::kB64), &map_address<u64>},
    {op_key(Op::kGetctarank, Type::kB32), &rank_of_address<u32>},
    {op_key(Op::kGetctarank, Type::kB64), &rank_of_address<u64>},
    {op_key(Op::kNop), &nothing},
};

}  // namespace

OpEntries special_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
