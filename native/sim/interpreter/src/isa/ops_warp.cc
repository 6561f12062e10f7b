// SPDX-License-Identifier: Apache-2.0
// Exchange between the lanes of a warp. The executor has made sure that every
// lane that must take part is in `mask`.
#include "integer.h"
#include "lanes.h"
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

enum class ShuffleMode { kUp, kDown, kButterfly, kIndex };

/// r = {d, p, a, b, c}: c holds a clamp in bits 0-4 and a segment mask in bits 8-12.
template <ShuffleMode kMode>
void shuffle(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const u32 *a = w.lanes32(op.r[2]), *b = w.lanes32(op.r[3]), *c = w.lanes32(op.r[4]);
  alignas(64) u32 result[kLanes];
  u32 inside = 0;
  for (int i = 0; i < kLanes; ++i) {
    const s32 lane = i, amount = static_cast<s32>(b[i] & 31), clamp = static_cast<s32>(c[i] & 31);
    const s32 segment = static_cast<s32>(c[i] >> 8 & 31);
    const s32 limit = (lane & segment) | (clamp & ~segment);
    s32 from;
    bool in_range;
    if constexpr (kMode == ShuffleMode::kUp) {
      from = lane - amount;
      in_range = from >= limit;
    } else if constexpr (kMode == ShuffleMode::kDown) {
      from = lane + amount;
      in_range = from <= limit;
    } else if constexpr (kMode == ShuffleMode::kButterfly) {
      from = lane ^ amount;
      in_range = from <= limit;
    } else {
      from = (lane & segment) | (amount & ~segment);
      in_range = from <= limit;
    }
    result[i] = a[in_range ? from & 31 : lane];
    inside |= static_cast<u32>(in_range) << i;
  }
  TS_LANES d[i] = (mask >> i & 1) != 0 ? result[i] : d[i];
  u32& p = w.predicate(op.r[1]);
  p = (p & ~mask) | (inside & mask);
}

enum class Vote { kAll, kAny, kUniform };

/// r = {p, a}: bit 0 of imm negates a.
template <Vote kVote>
void vote(Warp& w, const MicroOp& op, u32 mask) {
  const u32 a = (w.predicate(op.r[1]) ^ (0u - static_cast<u32>(op.imm & 1))) & mask;
  const bool holds = kVote == Vote::kAll ? a == mask : kVote == Vote::kAny ? a != 0 : a == mask || a == 0;
  u32& p = w.predicate(op.r[0]);
  p = (p & ~mask) | (holds ? mask : 0u);
}

TS_INLINE void broadcast(Warp& w, u32 ref, u32 mask, u32 value) {
  u32* d = w.lanes32(ref);
  TS_LANES d[i] = (mask >> i & 1) != 0 ? value : d[i];
}

void vote_ballot(Warp& w, const MicroOp& op, u32 mask) {
  broadcast(w, op.r[0], mask, (w.predicate(op.r[1]) ^ (0u - static_cast<u32>(op.imm & 1))) & mask);
}

void active_mask(Warp& w, const MicroOp& op, u32 mask) { broadcast(w, op.r[0], mask, mask); }

/// r = {d, a}
template <class T>
void match_any(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const T* a = lanes_of<T>(w, op.r[1]);
  alignas(64) u32 result[kLanes] = {};
  for (u32 left = mask; left != 0;) {
    const T value = a[__builtin_ctz(left)];
    u32 same = 0;
    for (int i = 0; i < kLanes; ++i) same |= static_cast<u32>(a[i] == value) << i;
    same &= mask;
    for (int i = 0; i < kLanes; ++i) result[i] = (same >> i & 1) != 0 ? same : result[i];
    left &= ~same;
  }
  TS_LANES d[i] = (mask >> i & 1) != 0 ? result[i] : d[i];
}

/// r = {d, p, a}
template <class T>
void match_all(Warp& w, const MicroOp& op, u32 mask) {
  const T* a = lanes_of<T>(w, op.r[2]);
  const T value = a[__builtin_ctz(mask)];
  bool all = true;
  for (int i = 0; i < kLanes; ++i) all = all && ((mask >> i & 1) == 0 || a[i] == value);
  broadcast(w, op.r[0], mask, all ? mask : 0u);
  u32& p = w.predicate(op.r[1]);
  p = (p & ~mask) | (all ? mask : 0u);
}

/// r = {d, a}
template <class T, T (*kReduce)(T, T)>
void reduce(Warp& w, const MicroOp& op, u32 mask) {
  const u32* a = w.lanes32(op.r[1]);
  const int first = __builtin_ctz(mask);
  T value = static_cast<T>(a[first]);
  for (int i = first + 1; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) value = kReduce(value, static_cast<T>(a[i]));
  }
  broadcast(w, op.r[0], mask, static_cast<u32>(value));
}

/// Floating-point redux (min and max): flags say whether magnitudes are compared and whether a NaN wins.
template <bool kMax, u8 kFlags>
void reduce_float(Warp& w, const MicroOp& op, u32 mask) {
  const u32* a = w.lanes32(op.r[1]);
  u32 best = 0;
  bool any = false, nan = false;
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const u32 bits = (kFlags & kXorSign) != 0 ? a[i] & 0x7fffffffu : a[i];
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
      nan = true;
      continue;
    }
    // Sign and magnitude to an integer of the same order; -0 ranks below +0.
    const s32 rank = bits >> 31 != 0 ? static_cast<s32>(~(bits & 0x7fffffffu)) : static_cast<s32>(bits);
    const s32 best_rank = best >> 31 != 0 ? static_cast<s32>(~(best & 0x7fffffffu)) : static_cast<s32>(best);
    if (!any || (kMax ? rank > best_rank : rank < best_rank)) best = bits;
    any = true;
  }
  const bool result_nan = !any || (nan && (kFlags & kNan) != 0);
  broadcast(w, op.r[0], mask, result_nan ? 0x7fffffffu : best);
}

/// r = {d, p}: the lowest lane is the leader.
void elect(Warp& w, const MicroOp& op, u32 mask) {
  const u32 leader = static_cast<u32>(__builtin_ctz(mask));
  broadcast(w, op.r[0], mask, leader);
  u32& p = w.predicate(op.r[1]);
  p = (p & ~mask) | 1u << leader;
}

#define TS_REDUX(VARIANT, TYPE, T, FUNCTION) \
  {op_key(Op::kRedux, Type::TYPE, Type::kNone, 0, VARIANT), &reduce<T, &FUNCTION<T>>}
#define TS_REDUX_F(FLAGS)                                                                 \
  {op_key(Op::kRedux, Type::kF32, Type::kNone, FLAGS, 1), &reduce_float<false, FLAGS>}, { \
    op_key(Op::kRedux, Type::kF32, Type::kNone, FLAGS, 2), &reduce_float<true, FLAGS>     \
  }

constexpr OpEntry kEntries[] = {
    {op_key(Op::kShfl, Type::kB32, Type::kNone, 0, 0), &shuffle<ShuffleMode::kUp>},
    {op_key(Op::kShfl, Type::kB32, Type::kNone, 0, 1), &shuffle<ShuffleMode::kDown>},
    {op_key(Op::kShfl, Type::kB32, Type::kNone, 0, 2), &shuffle<ShuffleMode::kButterfly>},
    {op_key(Op::kShfl, Type::kB32, Type::kNone, 0, 3), &shuffle<ShuffleMode::kIndex>},
    {op_key(Op::kVoteAll), &vote<Vote::kAll>},
    {op_key(Op::kVoteAny), &vote<Vote::kAny>},
    {op_key(Op::kVoteUni), &vote<Vote::kUniform>},
    {op_key(Op::kVoteBallot), &vote_ballot},
    {op_key(Op::kActivemask), &active_mask},
    {op_key(Op::kMatchAny, Type::kB32), &match_any<u32>},
    {op_key(Op::kMatchAny, Type::kB64), &match_any<u64>},
    {op_key(Op::kMatchAll, Type::kB32), &match_all<u32>},
    {op_key(Op::kMatchAll, Type::kB64), &match_all<u64>},
    // variants: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor
    TS_REDUX(0, kU32, u32, add),
    TS_REDUX(0, kS32, s32, add),
    TS_REDUX(1, kU32, u32, minimum),
    TS_REDUX(1, kS32, s32, minimum),
    TS_REDUX(2, kU32, u32, maximum),
    TS_REDUX(2, kS32, s32, maximum),
    TS_REDUX(3, kB32, u32, bit_and),
    TS_REDUX(4, kB32, u32, bit_or),
    TS_REDUX(5, kB32, u32, bit_xor),
    TS_REDUX_F(0),
    TS_REDUX_F(kNan),
    TS_REDUX_F(kXorSign),
    TS_REDUX_F(kNan | kXorSign),
    {op_key(Op::kElect), &elect},
};

}  // namespace

OpEntries warp_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
