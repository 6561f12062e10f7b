// SPDX-License-Identifier: Apache-2.0
// Comparison into predicates, and selection by them.
#include "lanes.h"
#include "map.h"
#include "numerics.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

// How lowering encodes a comparison in imm.
constexpr u64 kInvert = 1;        // the opposite of the handler's comparison
constexpr int kCombineShift = 1;  // 0: none, 1: and, 2: or, 3: xor, with the third source
constexpr u64 kNegateThird = 8;

TS_INLINE u32 combine(u32 compared, u32 third, u64 imm) {
  switch (imm >> kCombineShift & 3) {
    case 1:
      return compared & third;
    case 2:
      return compared | third;
    case 3:
      return compared ^ third;
    default:
      return compared;
  }
}

/// r = {p, q, a, b, c}: p = (a ? b) combined with c, q = !(a ? b) combined with c.
template <class T, bool (*kCompare)(T, T)>
void setp(Warp& w, const MicroOp& op, u32 mask) {
  const Storage<T>*a = lanes_of<T>(w, op.r[2]), *b = lanes_of<T>(w, op.r[3]);
  alignas(64) u32 lanes[kLanes];
  TS_LANES lanes[i] = kCompare(from_storage<T>(a[i]), from_storage<T>(b[i])) ? ~0u : 0u;
  const u32 compared = mask_of(lanes) ^ (0u - static_cast<u32>(op.imm & kInvert));
  const u32 third = w.predicate(op.r[4]) ^ ((op.imm & kNegateThird) != 0 ? ~0u : 0u);
  u32 &p = w.predicate(op.r[0]), &q = w.predicate(op.r[1]);
  p = (p & ~mask) | (combine(compared, third, op.imm) & mask);
  q = (q & ~mask) | (combine(~compared, third, op.imm) & mask);
}

/// The packed form: p from the low halves, q from the high ones.
template <class T, bool (*kCompare)(T, T)>
void setp_halves(Warp& w, const MicroOp& op, u32 mask) {
  const u32 *a = w.lanes32(op.r[2]), *b = w.lanes32(op.r[3]);
  alignas(64) u32 low[kLanes], high[kLanes];
  TS_LANES {
    low[i] = kCompare(T{static_cast<u16>(a[i])}, T{static_cast<u16>(b[i])}) ? ~0u : 0u;
    high[i] = kCompare(T{static_cast<u16>(a[i] >> 16)}, T{static_cast<u16>(b[i] >> 16)}) ? ~0u : 0u;
  }
  const u32 invert = 0u - static_cast<u32>(op.imm & kInvert);
  const u32 third = w.predicate(op.r[4]) ^ ((op.imm & kNegateThird) != 0 ? ~0u : 0u);
  const u32 first = combine(mask_of(low) ^ invert, third, op.imm),
            second = combine(mask_of(high) ^ invert, third, op.imm);
  u32 &p = w.predicate(op.r[0]), &q = w.predicate(op.r[1]);
  p = (p & ~mask) | (first & mask);
  q = (q & ~mask) | (second & mask);
}

template <class T>
TS_INLINE bool equal(T a, T b) {
  return a == b;
}
template <class T>
TS_INLINE bool less(T a, T b) {
  return a < b;
}
template <class T>
TS_INLINE bool less_equal(T a, T b) {
  return a <= b;
}
// Floating point: ordered comparisons are false when an operand is a NaN; so "ne" is not the opposite of "eq".
template <class T, bool kFlush>
TS_INLINE bool equal_f(T a, T b) {
  return value_of<T, kFlush>(a) == value_of<T, kFlush>(b);
}
template <class T, bool kFlush>
TS_INLINE bool differ_f(T a, T b) {
  const auto x = value_of<T, kFlush>(a), y = value_of<T, kFlush>(b);
  return x < y || x > y;
}
template <class T, bool kFlush>
TS_INLINE bool less_f(T a, T b) {
  return value_of<T, kFlush>(a) < value_of<T, kFlush>(b);
}
template <class T, bool kFlush>
TS_INLINE bool less_equal_f(T a, T b) {
  return value_of<T, kFlush>(a) <= value_of<T, kFlush>(b);
}
template <class T, bool kFlush>
TS_INLINE bool unordered_f(T a, T b) {
  const auto x = value_of<T, kFlush>(a), y = value_of<T, kFlush>(b);
  return x != x || y != y;
}

/// r = {d, a, b, predicate}: bit 0 of imm negates the predicate.
template <class T>
void selp(Warp& w, const MicroOp& op, u32 mask) {
  T* d = lanes_of<T>(w, op.r[0]);
  const T *a = lanes_of<T>(w, op.r[1]), *b = lanes_of<T>(w, op.r[2]);
  const u32 chosen = w.predicate(op.r[3]) ^ (0u - static_cast<u32>(op.imm & 1));
  if (mask == w.live) {
    TS_LANES d[i] = (chosen >> i & 1) != 0 ? a[i] : b[i];
  } else {
    TS_LANES {
      const T result = (chosen >> i & 1) != 0 ? a[i] : b[i];
      d[i] = (mask >> i & 1) != 0 ? result : d[i];
    }
  }
}

template <class T>
TS_INLINE T select_integer(T a, T b, s32 c) {
  return c >= 0 ? a : b;
}
template <class T, bool kFlush>
TS_INLINE T select_float(T a, T b, f32 c) {
  return value_of<f32, kFlush>(c) >= 0.0f ? a : b;  // a NaN chooses b
}

/// r = {d, low, high}: d has 0xffff, or the half constant in imm, where the predicate holds.
void pack_mask16(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const u32 low = w.predicate(op.r[1]), high = w.predicate(op.r[2]);
  const u32 one = static_cast<u32>(op.imm);
  TS_LANES {
    const u32 result = ((low >> i & 1) != 0 ? one : 0u) | ((high >> i & 1) != 0 ? one << 16 : 0u);
    d[i] = (mask >> i & 1) != 0 ? result : d[i];
  }
}

/// r = {p, a}: imm is the kind of number asked for.
template <class T, class Bits, int kMantissa>
void testp(Warp& w, const MicroOp& op, u32 mask) {
  const Bits* a = lanes_of<Bits>(w, op.r[1]);
  constexpr Bits kTop = Bits{1} << (sizeof(Bits) * 8 - 1), kFraction = (Bits{1} << kMantissa) - 1;
  constexpr Bits kExponent = static_cast<Bits>(~kTop & ~kFraction);
  u32 found = 0;
  for (int i = 0; i < kLanes; ++i) {
    const Bits magnitude = a[i] & static_cast<Bits>(~kTop), exponent = a[i] & kExponent;
    const bool kinds[6] = {magnitude<kExponent, magnitude == kExponent, magnitude <= kExponent, magnitude> kExponent,
                           magnitude == 0 || (exponent != 0 && magnitude < kExponent), exponent == 0 && magnitude != 0};
    found |= static_cast<u32>(kinds[op.imm]) << i;
  }
  u32& p = w.predicate(op.r[0]);
  p = (p & ~mask) | (found & mask);
}

#define TS_COMPARE(TYPE, T)                                                                                        \
  {op_key(Op::kSetpEq, Type::TYPE), &setp<T, &equal<T>>}, {op_key(Op::kSetpLt, Type::TYPE), &setp<T, &less<T>>}, { \
    op_key(Op::kSetpLe, Type::TYPE), &setp<T, &less_equal<T>>                                                      \
  }
#define TS_COMPARE_F(TYPE, T, FLUSH, FLAGS)                                                       \
  {op_key(Op::kSetpEq, Type::TYPE, Type::kNone, FLAGS), &setp<T, &equal_f<T, FLUSH>>},            \
      {op_key(Op::kSetpNe, Type::TYPE, Type::kNone, FLAGS), &setp<T, &differ_f<T, FLUSH>>},       \
      {op_key(Op::kSetpLt, Type::TYPE, Type::kNone, FLAGS), &setp<T, &less_f<T, FLUSH>>},         \
      {op_key(Op::kSetpLe, Type::TYPE, Type::kNone, FLAGS), &setp<T, &less_equal_f<T, FLUSH>>}, { \
    op_key(Op::kSetpNan, Type::TYPE, Type::kNone, FLAGS), &setp<T, &unordered_f<T, FLUSH>>        \
  }
#define TS_COMPARE_2(TYPE, T, FLUSH, FLAGS)                                                              \
  {op_key(Op::kSetpEq, Type::TYPE, Type::kNone, FLAGS), &setp_halves<T, &equal_f<T, FLUSH>>},            \
      {op_key(Op::kSetpNe, Type::TYPE, Type::kNone, FLAGS), &setp_halves<T, &differ_f<T, FLUSH>>},       \
      {op_key(Op::kSetpLt, Type::TYPE, Type::kNone, FLAGS), &setp_halves<T, &less_f<T, FLUSH>>},         \
      {op_key(Op::kSetpLe, Type::TYPE, Type::kNone, FLAGS), &setp_halves<T, &less_equal_f<T, FLUSH>>}, { \
    op_key(Op::kSetpNan, Type::TYPE, Type::kNone, FLAGS), &setp_halves<T, &unordered_f<T, FLUSH>>        \
  }
#define TS_SELECT(TYPE, T)                                                                                         \
  {op_key(Op::kSelp, Type::TYPE), &selp<T>}, {op_key(Op::kSlct, Type::TYPE, Type::kS32), map<&select_integer<T>>}, \
      {op_key(Op::kSlct, Type::TYPE, Type::kF32), map<&select_float<T, false>>}, {                                 \
    op_key(Op::kSlct, Type::TYPE, Type::kF32, kFtz), map<&select_float<T, true>>                                   \
  }

constexpr OpEntry kEntries[] = {
    TS_COMPARE(kU16, u16),
    TS_COMPARE(kS16, s16),
    TS_COMPARE(kU32, u32),
    TS_COMPARE(kS32, s32),
    TS_COMPARE(kU64, u64),
    TS_COMPARE(kS64, s64),
    TS_COMPARE_F(kF32, f32, false, 0),
    TS_COMPARE_F(kF32, f32, true, kFtz),
    TS_COMPARE_F(kF64, f64, false, 0),
    TS_COMPARE_F(kF16, f16, false, 0),
    TS_COMPARE_F(kF16, f16, true, kFtz),
    TS_COMPARE_F(kBF16, bf16, false, 0),
    TS_COMPARE_2(kF16x2, f16, false, 0),
    TS_COMPARE_2(kF16x2, f16, true, kFtz),
    TS_COMPARE_2(kBF16x2, bf16, false, 0),
    TS_SELECT(kB16, u16),
    TS_SELECT(kB32, u32),
    TS_SELECT(kB64, u64),
    {op_key(Op::kPackMask16), &pack_mask16},
    {op_key(Op::kTestp, Type::kF32), &testp<f32, u32, 23>},
    {op_key(Op::kTestp, Type::kF64), &testp<f64, u64, 52>},
};

}  // namespace

OpEntries compare_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
