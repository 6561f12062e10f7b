// SPDX-License-Identifier: Apache-2.0
// Single and double precision arithmetic: correctly rounded operations.
#include "map.h"
#include "numerics.h"
#include "rounding.h"
#include "tables.h"
#include "tiny.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <bool F, bool S>
TS_INLINE f32 fadd(f32 a, f32 b) {
  return finish<F, S>(value_of<f32, F>(a) + value_of<f32, F>(b));
}
template <bool F, bool S>
TS_INLINE f32 fsub(f32 a, f32 b) {
  return finish<F, S>(value_of<f32, F>(a) - value_of<f32, F>(b));
}
template <bool F, bool S>
TS_INLINE f32 fmul(f32 a, f32 b) {
  return finish<F, S>(value_of<f32, F>(a) * value_of<f32, F>(b));
}
template <bool F, bool S>
TS_INLINE f32 ffma(f32 a, f32 b, f32 c) {
  return finish<F, S>(__builtin_fmaf(value_of<f32, F>(a), value_of<f32, F>(b), value_of<f32, F>(c)));
}
template <bool F, bool S>
TS_INLINE f32 fdiv(f32 a, f32 b) {
  return finish<F, S>(value_of<f32, F>(a) / value_of<f32, F>(b));
}
template <bool F, bool S>
TS_INLINE f32 frcp(f32 a) {
  return finish<F, S>(1.0f / value_of<f32, F>(a));
}
template <bool F, bool S>
TS_INLINE f32 fsqrt(f32 a) {
  return finish<F, S>(__builtin_sqrtf(value_of<f32, F>(a)));
}

/// A NaN result keeps the payload of the first operand here that is a NaN, made quiet; one that the operation makes is
/// canonical.
TS_INLINE f64 finish64(f64 value, f64 first, f64 second, f64 third) {
  const f64 payload = first != first ? first : second != second ? second : third;
  const f64 nan = payload != payload ? quieted(payload) : f64_of(kNanF64);
  return value != value ? nan : value;
}
// The hardware looks at b before c before a; its division routine at a before b.
TS_INLINE f64 dadd(f64 a, f64 b) { return finish64(a + b, b, a, a); }
TS_INLINE f64 dsub(f64 a, f64 b) { return finish64(a - b, b, a, a); }
TS_INLINE f64 dmul(f64 a, f64 b) { return finish64(a * b, b, a, a); }
TS_INLINE f64 dfma(f64 a, f64 b, f64 c) { return finish64(__builtin_fma(a, b, c), b, c, a); }
TS_INLINE f64 ddiv(f64 a, f64 b) { return finish64(a / b, a, b, b); }
TS_INLINE f64 drcp(f64 a) { return finish64(1.0 / a, a, a, a); }
TS_INLINE f64 dsqrt(f64 a) { return finish64(__builtin_sqrt(a), a, a, a); }

template <bool F>
TS_INLINE f32 fabs32(f32 a) {
  return canonical(f32_of(bits_of(value_of<f32, F>(a)) & 0x7fffffffu));
}
template <bool F>
TS_INLINE f32 fneg32(f32 a) {
  return canonical(f32_of(bits_of(value_of<f32, F>(a)) ^ 0x80000000u));
}
TS_INLINE f64 fabs64(f64 a) { return a == a ? f64_of(bits_of(a) & ~(u64{1} << 63)) : quieted(a); }
TS_INLINE f64 fneg64(f64 a) { return a == a ? f64_of(bits_of(a) ^ u64{1} << 63) : quieted(a); }
// copysign d, a, b: the sign of a on the magnitude of b.
TS_INLINE u32 copysign32(u32 a, u32 b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }
TS_INLINE u64 copysign64(u64 a, u64 b) { return (a & u64{1} << 63) | (b & ~(u64{1} << 63)); }

// Equal operands have equal bits, but for zeros of unlike sign: then - is the smaller.
template <bool kMax>
TS_INLINE f32 choose(f32 a, f32 b) {
  const u32 x = bits_of(a), y = bits_of(b);
  const bool first = kMax ? a > b : a < b;
  return a == b ? f32_of(kMax ? x & y : x | y) : first ? a : b;
}
template <bool kMax, bool F, bool N, bool X>
TS_INLINE f32 fextreme(f32 a, f32 b) {
  f32 x = value_of<f32, F>(a), y = value_of<f32, F>(b);
  const u32 sign = X ? (bits_of(x) ^ bits_of(y)) & 0x80000000u : 0u;
  if constexpr (X) {
    x = f32_of(bits_of(x) & 0x7fffffffu);
    y = f32_of(bits_of(y) & 0x7fffffffu);
  }
  const bool a_nan = x != x, b_nan = y != y;
  const f32 other = N ? f32_of(kNanF32) : a_nan ? (b_nan ? f32_of(kNanF32) : y) : x;
  const f32 result = a_nan || b_nan ? other : choose<kMax>(x, y);
  return X && result == result ? f32_of(bits_of(result) | sign) : result;
}
template <bool kMax>
TS_INLINE f64 dextreme(f64 a, f64 b) {
  const u64 x = bits_of(a), y = bits_of(b);
  const bool first = kMax ? a > b : a < b;
  const f64 ordered = a == b ? f64_of(kMax ? x & y : x | y) : first ? a : b;
  return a != a ? (b != b ? quieted(b) : b) : b != b ? a : ordered;
}
template <bool kMax, bool F, bool N, bool X>
TS_INLINE f32 fextreme3(f32 a, f32 b, f32 c) {
  return fextreme<kMax, F, N, X>(fextreme<kMax, F, N, X>(a, b), c);
}

// Two floats in a 64-bit register.
template <f32 (*kFunction)(f32, f32)>
TS_INLINE u64 on_floats(u64 a, u64 b) {
  const u32 low = bits_of(kFunction(f32_of(static_cast<u32>(a)), f32_of(static_cast<u32>(b))));
  const u32 high = bits_of(kFunction(f32_of(static_cast<u32>(a >> 32)), f32_of(static_cast<u32>(b >> 32))));
  return low | u64{high} << 32;
}
template <f32 (*kFunction)(f32, f32, f32)>
TS_INLINE u64 on_floats3(u64 a, u64 b, u64 c) {
  const u32 low =
      bits_of(kFunction(f32_of(static_cast<u32>(a)), f32_of(static_cast<u32>(b)), f32_of(static_cast<u32>(c))));
  const u32 high = bits_of(kFunction(f32_of(static_cast<u32>(a >> 32)), f32_of(static_cast<u32>(b >> 32)),
                                     f32_of(static_cast<u32>(c >> 32))));
  return low | u64{high} << 32;
}

#define TS_ROUNDED(OP, TYPE, FLAGS, HANDLER)                                                     \
  {op_key(Op::OP, Type::TYPE, Type::kNone, FLAGS, 0), HANDLER},                                  \
      {op_key(Op::OP, Type::TYPE, Type::kNone, FLAGS, 1), &rounded<HANDLER, Rounding::kZero>},   \
      {op_key(Op::OP, Type::TYPE, Type::kNone, FLAGS, 2), &rounded<HANDLER, Rounding::kDown>}, { \
    op_key(Op::OP, Type::TYPE, Type::kNone, FLAGS, 3), &rounded<HANDLER, Rounding::kUp>          \
  }
#define TS_F32(OP, FUNCTION)                                                                                          \
  TS_ROUNDED(OP, kF32, 0, (map<&FUNCTION<false, false>>)), TS_ROUNDED(OP, kF32, kFtz, (map<&FUNCTION<true, false>>)), \
      TS_ROUNDED(OP, kF32, kSat, (map<&FUNCTION<false, true>>)),                                                      \
      TS_ROUNDED(OP, kF32, kFtz | kSat, (map<&FUNCTION<true, true>>))
// Operations whose exact result decides whether it is flushed.
#define TS_F32_TINY(OP, FUNCTION, EXACT)                                                                              \
  TS_ROUNDED(OP, kF32, 0, (map<&FUNCTION<false, false>>)), TS_ROUNDED(OP, kF32, kSat, (map<&FUNCTION<false, true>>)), \
      TS_ROUNDED(OP, kF32, kFtz, (&Flushing<SingleFormat, &FUNCTION<true, false>, &EXACT<f32>>::run)),                \
      TS_ROUNDED(OP, kF32, kFtz | kSat, (&Flushing<SingleFormat, &FUNCTION<true, true>, &EXACT<f32>>::run))
#define TS_F32X2(OP, WRAP, FUNCTION)                                \
  TS_ROUNDED(OP, kF32x2, 0, (map<&WRAP<&FUNCTION<false, false>>>)), \
      TS_ROUNDED(OP, kF32x2, kFtz, (map<&WRAP<&FUNCTION<true, false>>>))
#define TS_EXTREME(OP, FUNCTION, MAX, FLAGS)       \
  {op_key(Op::OP, Type::kF32, Type::kNone, FLAGS), \
   map<&FUNCTION<MAX, ((FLAGS) & kFtz) != 0, ((FLAGS) & kNan) != 0, ((FLAGS) & kXorSign) != 0>>}
#define TS_EXTREMES(OP, FUNCTION, MAX)                                                                        \
  TS_EXTREME(OP, FUNCTION, MAX, 0), TS_EXTREME(OP, FUNCTION, MAX, kFtz), TS_EXTREME(OP, FUNCTION, MAX, kNan), \
      TS_EXTREME(OP, FUNCTION, MAX, kFtz | kNan), TS_EXTREME(OP, FUNCTION, MAX, kXorSign),                    \
      TS_EXTREME(OP, FUNCTION, MAX, kFtz | kXorSign), TS_EXTREME(OP, FUNCTION, MAX, kNan | kXorSign),         \
      TS_EXTREME(OP, FUNCTION, MAX, kFtz | kNan | kXorSign)

constexpr OpEntry kEntries[] = {
    TS_F32(kFadd, fadd),
    TS_F32(kFsub, fsub),
    TS_F32_TINY(kFmul, fmul, exact_product),
    TS_F32_TINY(kFfma, ffma, exact_fma),
    TS_F32_TINY(kFdiv, fdiv, exact_quotient),
    TS_F32_TINY(kRcp, frcp, exact_reciprocal),
    TS_F32(kSqrt, fsqrt),
    TS_ROUNDED(kFadd, kF64, 0, map<&dadd>),
    TS_ROUNDED(kFsub, kF64, 0, map<&dsub>),
    TS_ROUNDED(kFmul, kF64, 0, map<&dmul>),
    TS_ROUNDED(kFfma, kF64, 0, map<&dfma>),
    TS_ROUNDED(kFdiv, kF64, 0, map<&ddiv>),
    TS_ROUNDED(kRcp, kF64, 0, map<&drcp>),
    TS_ROUNDED(kSqrt, kF64, 0, map<&dsqrt>),
    TS_F32X2(kFadd, on_floats, fadd),
    TS_F32X2(kFsub, on_floats, fsub),
    TS_F32X2(kFmul, on_floats, fmul),
    TS_F32X2(kFfma, on_floats3, ffma),
    {op_key(Op::kFabs, Type::kF32), map<&fabs32<false>>},
    {op_key(Op::kFabs, Type::kF32, Type::kNone, kFtz), map<&fabs32<true>>},
    {op_key(Op::kFneg, Type::kF32), map<&fneg32<false>>},
    {op_key(Op::kFneg, Type::kF32, Type::kNone, kFtz), map<&fneg32<true>>},
    {op_key(Op::kFabs, Type::kF64), map<&fabs64>},
    {op_key(Op::kFneg, Type::kF64), map<&fneg64>},
    {op_key(Op::kCopysign, Type::kF32), map<&copysign32>},
    {op_key(Op::kCopysign, Type::kF64), map<&copysign64>},
    TS_EXTREMES(kFmin, fextreme, false),
    TS_EXTREMES(kFmax, fextreme, true),
    TS_EXTREMES(kFmin3, fextreme3, false),
    TS_EXTREMES(kFmax3, fextreme3, true),
    {op_key(Op::kFmin, Type::kF64), map<&dextreme<false>>},
    {op_key(Op::kFmax, Type::kF64), map<&dextreme<true>>},
};

}  // namespace

OpEntries float_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
