// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic.
#include "integer.h"
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

// ---- carry chains: r = {d, carry out, a, b, [c,] carry in} ----

template <class T>
void add_with_carry(Warp& w, const MicroOp& op, u32 mask) {
  T* d = lanes_of<T>(w, op.r[0]);
  const T *a = lanes_of<T>(w, op.r[2]), *b = lanes_of<T>(w, op.r[3]);
  const u32 carry = w.predicate(op.r[4]);
  u32 out = 0;
  for (int i = 0; i < kLanes; ++i) {
    const T sum = a[i] + b[i], result = sum + (carry >> i & 1);
    out |= static_cast<u32>(sum < a[i] || result < sum) << i;
    if ((mask >> i & 1) != 0) d[i] = result;
  }
  u32& flags = w.predicate(op.r[1]);
  flags = (flags & ~mask) | (out & mask);
}

template <class T>
void sub_with_borrow(Warp& w, const MicroOp& op, u32 mask) {
  T* d = lanes_of<T>(w, op.r[0]);
  const T *a = lanes_of<T>(w, op.r[2]), *b = lanes_of<T>(w, op.r[3]);
  const u32 borrow = w.predicate(op.r[4]);
  u32 out = 0;
  for (int i = 0; i < kLanes; ++i) {
    const T difference = a[i] - b[i], in = borrow >> i & 1;
    out |= static_cast<u32>(a[i] < b[i] || difference < in) << i;
    if ((mask >> i & 1) != 0) d[i] = difference - in;
  }
  u32& flags = w.predicate(op.r[1]);
  flags = (flags & ~mask) | (out & mask);
}

template <class T, bool kHigh>
void mad_with_carry(Warp& w, const MicroOp& op, u32 mask) {
  using U = Unsigned<T>;
  U* d = lanes_of<U>(w, op.r[0]);
  const U *a = lanes_of<U>(w, op.r[2]), *b = lanes_of<U>(w, op.r[3]), *c = lanes_of<U>(w, op.r[4]);
  const u32 carry = w.predicate(op.r[5]);
  u32 out = 0;
  for (int i = 0; i < kLanes; ++i) {
    const T x = static_cast<T>(a[i]), y = static_cast<T>(b[i]);
    const U product = static_cast<U>(kHigh ? mul_hi<T>(x, y) : mul_lo<T>(x, y));
    const U sum = product + c[i], result = sum + (carry >> i & 1);
    out |= static_cast<u32>(sum < product || result < sum) << i;
    if ((mask >> i & 1) != 0) d[i] = result;
  }
  u32& flags = w.predicate(op.r[1]);
  flags = (flags & ~mask) | (out & mask);
}

// ---- tables ----

#define TS_SAME(OP, TYPE, FUNCTION) {op_key(Op::OP, Type::TYPE), map<&FUNCTION>}
#define TS_SIX(OP, FUNCTION)                                                                            \
  TS_SAME(OP, kU16, FUNCTION<u16>), TS_SAME(OP, kS16, FUNCTION<s16>), TS_SAME(OP, kU32, FUNCTION<u32>), \
      TS_SAME(OP, kS32, FUNCTION<s32>), TS_SAME(OP, kU64, FUNCTION<u64>), TS_SAME(OP, kS64, FUNCTION<s64>)
#define TS_FOUR(OP, FUNCTION)                                                                           \
  TS_SAME(OP, kU16, FUNCTION<u16>), TS_SAME(OP, kS16, FUNCTION<s16>), TS_SAME(OP, kU32, FUNCTION<u32>), \
      TS_SAME(OP, kS32, FUNCTION<s32>)
#define TS_SIGNED(OP, FUNCTION) \
  TS_SAME(OP, kS16, FUNCTION<s16>), TS_SAME(OP, kS32, FUNCTION<s32>), TS_SAME(OP, kS64, FUNCTION<s64>)
#define TS_HALVES(OP, FUNCTION)                                           \
  {op_key(Op::OP, Type::kU16x2), map<&on_halves<u16, &FUNCTION<u16>>>}, { \
    op_key(Op::OP, Type::kS16x2), map<&on_halves<s16, &FUNCTION<s16>>>    \
  }
#define TS_CARRY(OP, FUNCTION) \
  {op_key(Op::OP, Type::kU32), &FUNCTION<u32>}, { op_key(Op::OP, Type::kU64), &FUNCTION<u64> }
#define TS_MAD_CARRY(OP, HIGH)                                                                                        \
  {op_key(Op::OP, Type::kU32), &mad_with_carry<u32, HIGH>}, {op_key(Op::OP, Type::kS32), &mad_with_carry<s32, HIGH>}, \
      {op_key(Op::OP, Type::kU64), &mad_with_carry<u64, HIGH>}, {                                                     \
    op_key(Op::OP, Type::kS64), &mad_with_carry<s64, HIGH>                                                            \
  }

constexpr OpEntry kEntries[] = {
    TS_SIX(kAdd, add),
    TS_SIX(kSub, sub),
    TS_SIX(kMulLo, mul_lo),
    TS_SIX(kMulHi, mul_hi),
    TS_SIX(kMadLo, mad_lo),
    TS_SIX(kMadHi, mad_hi),
    TS_FOUR(kMulWide, mul_wide),
    TS_FOUR(kMadWide, mad_wide),
    TS_SIX(kSad, sad),
    TS_SIX(kDiv, divide),
    TS_SIX(kRem, remainder),
    TS_SIX(kMin, minimum),
    TS_SIX(kMax, maximum),
    TS_SIGNED(kAbs, absolute),
    TS_SIGNED(kNeg, negate),
    TS_SAME(kAddSat, kS32, add_sat),
    TS_SAME(kSubSat, kS32, sub_sat),
    TS_SAME(kMadHiSat, kS32, mad_hi_sat),
    TS_SAME(kMul24Lo, kU32, mul24_lo<u32>),
    TS_SAME(kMul24Lo, kS32, mul24_lo<s32>),
    TS_SAME(kMul24Hi, kU32, mul24_hi<u32>),
    TS_SAME(kMul24Hi, kS32, mul24_hi<s32>),
    TS_SAME(kMad24Lo, kU32, mad24_lo<u32>),
    TS_SAME(kMad24Lo, kS32, mad24_lo<s32>),
    TS_SAME(kMad24Hi, kU32, mad24_hi<u32>),
    TS_SAME(kMad24Hi, kS32, mad24_hi<s32>),
    TS_SAME(kMad24HiSat, kS32, mad24_hi_sat),
    {op_key(Op::kMin, Type::kS32, Type::kNone, kRelu), map<&minimum_relu<s32>>},
    {op_key(Op::kMax, Type::kS32, Type::kNone, kRelu), map<&maximum_relu<s32>>},
    {op_key(Op::kMin, Type::kS16x2, Type::kNone, kRelu), map<&on_halves<s16, &minimum_relu<s16>>>},
    {op_key(Op::kMax, Type::kS16x2, Type::kNone, kRelu), map<&on_halves<s16, &maximum_relu<s16>>>},
    TS_HALVES(kAdd, add),
    TS_HALVES(kMin, minimum),
    TS_HALVES(kMax, maximum),
    {op_key(Op::kDp4a, Type::kU32, Type::kU32), map<&dot4<u8, u8>>},
    {op_key(Op::kDp4a, Type::kU32, Type::kS32), map<&dot4<u8, s8>>},
    {op_key(Op::kDp4a, Type::kS32, Type::kU32), map<&dot4<s8, u8>>},
    {op_key(Op::kDp4a, Type::kS32, Type::kS32), map<&dot4<s8, s8>>},
    {op_key(Op::kDp2aLo, Type::kU32, Type::kU32), map<&dot2<u16, u8, 0>>},
    {op_key(Op::kDp2aLo, Type::kU32, Type::kS32), map<&dot2<u16, s8, 0>>},
    {op_key(Op::kDp2aLo, Type::kS32, Type::kU32), map<&dot2<s16, u8, 0>>},
    {op_key(Op::kDp2aLo, Type::kS32, Type::kS32), map<&dot2<s16, s8, 0>>},
    {op_key(Op::kDp2aHi, Type::kU32, Type::kU32), map<&dot2<u16, u8, 2>>},
    {op_key(Op::kDp2aHi, Type::kU32, Type::kS32), map<&dot2<u16, s8, 2>>},
    {op_key(Op::kDp2aHi, Type::kS32, Type::kU32), map<&dot2<s16, u8, 2>>},
    {op_key(Op::kDp2aHi, Type::kS32, Type::kS32), map<&dot2<s16, s8, 2>>},
    TS_CARRY(kAddCc, add_with_carry),
    TS_CARRY(kSubCc, sub_with_borrow),
    TS_MAD_CARRY(kMadLoCc, false),
    TS_MAD_CARRY(kMadHiCc, true),
};

}  // namespace

OpEntries integer_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
