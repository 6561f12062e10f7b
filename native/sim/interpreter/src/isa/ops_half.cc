// SPDX-License-Identifier: Apache-2.0
// f16, bf16 and their pairs. Operands are exact in float; one rounding follows.
#include "approximate.h"
#include "map.h"
#include "tables.h"
#include "tiny.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
TS_INLINE T narrow(f32 value);
template <>
TS_INLINE f16 narrow<f16>(f32 value) {
  return {float_to_half(value)};
}
template <>
TS_INLINE bf16 narrow<bf16>(f32 value) {
  return {float_to_bfloat(value)};
}
TS_INLINE f16 flushed(f16 a) { return {static_cast<u16>((a.bits & 0x7c00) == 0 ? a.bits & 0x8000 : a.bits)}; }
TS_INLINE bf16 flushed(bf16 a) { return {static_cast<u16>((a.bits & 0x7f80) == 0 ? a.bits & 0x8000 : a.bits)}; }

template <class T, u8 kFlags>
TS_INLINE T finish_half(f32 value) {
  if constexpr ((kFlags & kSat) != 0) value = saturate01(value);
  T result = narrow<T>(value);
  if constexpr ((kFlags & kFtz) != 0) result = flushed(result);
  // relu: a negative result becomes +0; a NaN stays one.
  if constexpr ((kFlags & kRelu) != 0) result.bits = (result.bits & 0x8000) != 0 ? 0 : result.bits;
  return result;
}

template <class T, u8 kFlags>
TS_INLINE T hadd(T a, T b) {
  return finish_half<T, kFlags>(value_of<T, (kFlags & kFtz) != 0>(a) + value_of<T, (kFlags & kFtz) != 0>(b));
}
template <class T, u8 kFlags>
TS_INLINE T hsub(T a, T b) {
  return finish_half<T, kFlags>(value_of<T, (kFlags & kFtz) != 0>(a) - value_of<T, (kFlags & kFtz) != 0>(b));
}
template <class T, u8 kFlags>
TS_INLINE T hmul(T a, T b) {
  return finish_half<T, kFlags>(value_of<T, (kFlags & kFtz) != 0>(a) * value_of<T, (kFlags & kFtz) != 0>(b));
}

/// a * b + c rounded to odd in float: a later rounding to half is then the only one.
/// The product of two halves is exact in float; the sum's error is found by TwoSum.
TS_INLINE f32 fma_to_odd(f32 a, f32 b, f32 c) {
  const f32 p = a * b, s = p + c;
  const f32 back = s - p, error = (p - (s - back)) + (c - back);
  const u32 bits = bits_of(s);
  const bool inexact = error != 0.0f && error == error;
  // Truncate towards zero, then set the last bit: the sign of the error says on which side s is.
  const bool beyond = (bits_of(error) ^ bits) >> 31 != 0;
  const u32 truncated = inexact && beyond ? bits - 1 : bits;
  return f32_of(inexact ? truncated | 1u : bits);
}
TS_INLINE f64 fma_to_odd(f64 a, f64 b, f64 c) {
  const f64 p = a * b, s = p + c;
  const f64 back = s - p, error = (p - (s - back)) + (c - back);
  const u64 bits = bits_of(s);
  const bool inexact = error != 0.0 && error == error;
  const bool beyond = (bits_of(error) ^ bits) >> 63 != 0;
  const u64 truncated = inexact && beyond ? bits - 1 : bits;
  return f64_of(inexact ? truncated | 1u : bits);
}
template <class T, u8 kFlags>
TS_INLINE T hfma(T a, T b, T c) {
  constexpr bool kFlush = (kFlags & kFtz) != 0;
  return finish_half<T, kFlags>(fma_to_odd(value_of<T, kFlush>(a), value_of<T, kFlush>(b), value_of<T, kFlush>(c)));
}
/// bf16 has float's exponents, so its products may leave float: double, narrowed to float to odd again.
template <u8 kFlags>
TS_INLINE bf16 bfma(bf16 a, bf16 b, bf16 c) {
  const f64 wide = fma_to_odd(f64{bfloat_to_float(a.bits)}, f64{bfloat_to_float(b.bits)}, f64{bfloat_to_float(c.bits)});
  const f32 near = static_cast<f32>(wide);
  const f64 back = near;
  const u32 bits = bits_of(near);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const bool beyond = (back > wide) != (bits >> 31 != 0);
  const u32 odd = (beyond ? bits - 1 : bits) | 1u;
  return finish_half<bf16, kFlags>(f32_of(finite && back != wide ? odd : bits));
}

template <class T>
TS_INLINE bool is_nan(T a);
template <>
TS_INLINE bool is_nan<f16>(f16 a) {
  return (a.bits & 0x7fff) > 0x7c00;
}
template <>
TS_INLINE bool is_nan<bf16>(bf16 a) {
  return (a.bits & 0x7fff) > 0x7f80;
}
template <class T, u8 kFlags>
TS_INLINE T habs(T a) {
  const T x = (kFlags & kFtz) != 0 ? flushed(a) : a;
  return {is_nan(x) ? kNanHalf : static_cast<u16>(x.bits & 0x7fff)};
}
template <class T, u8 kFlags>
TS_INLINE T hneg(T a) {
  const T x = (kFlags & kFtz) != 0 ? flushed(a) : a;
  return {is_nan(x) ? kNanHalf : static_cast<u16>(x.bits ^ 0x8000)};
}

/// The order of halves as integers: sign and magnitude to two's complement, -0 just below +0.
TS_INLINE s32 rank(u16 bits) {
  return (bits & 0x8000) != 0 ? -static_cast<s32>(bits & 0x7fff) - 1 : static_cast<s32>(bits);
}

template <class T, bool kMax, u8 kFlags>
TS_INLINE T hextreme(T a, T b) {
  u16 x = (kFlags & kFtz) != 0 ? flushed(a).bits : a.bits, y = (kFlags & kFtz) != 0 ? flushed(b).bits : b.bits;
  const u16 sign = (kFlags & kXorSign) != 0 ? static_cast<u16>((x ^ y) & 0x8000) : u16{0};
  if constexpr ((kFlags & kXorSign) != 0) {
    x &= 0x7fff;
    y &= 0x7fff;
  }
  const bool a_nan = is_nan(a), b_nan = is_nan(b);
  const u16 chosen = (rank(x) < rank(y)) != kMax ? x : y;
  const u16 other = (kFlags & kNan) != 0 ? kNanHalf : a_nan ? (b_nan ? kNanHalf : y) : x;
  const u16 result = a_nan || b_nan ? other : chosen;
  return {is_nan(T{result}) ? kNanHalf : static_cast<u16>(result | sign)};
}
template <class T, bool kMax, u8 kFlags>
TS_INLINE T hextreme3(T a, T b, T c) {
  return hextreme<T, kMax, kFlags>(hextreme<T, kMax, kFlags>(a, b), c);
}

template <class T, f32 (*kFunction)(f32), u8 kFlags>
TS_INLINE T happroximate(T a) {
  return finish_half<T, kFlags>(kFunction(value_of<T, (kFlags & kFtz) != 0>(a)));
}

// ---- pairs ----
template <class T, T (*kFunction)(T)>
TS_INLINE u32 pair1(u32 a) {
  return kFunction(T{static_cast<u16>(a)}).bits | static_cast<u32>(kFunction(T{static_cast<u16>(a >> 16)}).bits) << 16;
}
template <class T, T (*kFunction)(T, T)>
TS_INLINE u32 pair2(u32 a, u32 b) {
  return kFunction(T{static_cast<u16>(a)}, T{static_cast<u16>(b)}).bits |
         static_cast<u32>(kFunction(T{static_cast<u16>(a >> 16)}, T{static_cast<u16>(b >> 16)}).bits) << 16;
}
template <class T, T (*kFunction)(T, T, T)>
TS_INLINE u32 pair3(u32 a, u32 b, u32 c) {
  return kFunction(T{static_cast<u16>(a)}, T{static_cast<u16>(b)}, T{static_cast<u16>(c)}).bits |
         static_cast<u32>(
             kFunction(T{static_cast<u16>(a >> 16)}, T{static_cast<u16>(b >> 16)}, T{static_cast<u16>(c >> 16)}).bits)
             << 16;
}

// ---- tables: each operation for one value and for a pair ----
#define TS_ARITHMETIC(OP, FUNCTION)                                                                            \
  {op_key(Op::OP, Type::kF16), map<&FUNCTION<f16, 0>>},                                                        \
      {op_key(Op::OP, Type::kF16x2), map<&pair2<f16, &FUNCTION<f16, 0>>>},                                     \
      {op_key(Op::OP, Type::kF16, Type::kNone, kFtz), map<&FUNCTION<f16, kFtz>>},                              \
      {op_key(Op::OP, Type::kF16x2, Type::kNone, kFtz), map<&pair2<f16, &FUNCTION<f16, kFtz>>>},               \
      {op_key(Op::OP, Type::kF16, Type::kNone, kSat), map<&FUNCTION<f16, kSat>>},                              \
      {op_key(Op::OP, Type::kF16x2, Type::kNone, kSat), map<&pair2<f16, &FUNCTION<f16, kSat>>>},               \
      {op_key(Op::OP, Type::kF16, Type::kNone, kFtz | kSat), map<&FUNCTION<f16, kFtz | kSat>>},                \
      {op_key(Op::OP, Type::kF16x2, Type::kNone, kFtz | kSat), map<&pair2<f16, &FUNCTION<f16, kFtz | kSat>>>}, \
      {op_key(Op::OP, Type::kBF16), map<&FUNCTION<bf16, 0>>}, {                                                \
    op_key(Op::OP, Type::kBF16x2), map<&pair2<bf16, &FUNCTION<bf16, 0>>>                                       \
  }
#define TS_TINY16(OP, FUNCTION, EXACT, FLAGS)                                                                         \
  {op_key(Op::OP, Type::kF16, Type::kNone, FLAGS), &Flushing<HalfSingle, &FUNCTION<f16, FLAGS>, &EXACT<f16>>::run}, { \
    op_key(Op::OP, Type::kF16x2, Type::kNone, FLAGS), &FlushingPair<&FUNCTION<f16, FLAGS>, &EXACT<f16>>::run          \
  }
#define TS_FMA16(FLAGS)                                                                      \
  {op_key(Op::kFfma, Type::kF16, Type::kNone, FLAGS), map<&hfma<f16, FLAGS>>}, {             \
    op_key(Op::kFfma, Type::kF16x2, Type::kNone, FLAGS), map<&pair3<f16, &hfma<f16, FLAGS>>> \
  }
#define TS_FMAB16(FLAGS)                                                                  \
  {op_key(Op::kFfma, Type::kBF16, Type::kNone, FLAGS), map<&bfma<FLAGS>>}, {              \
    op_key(Op::kFfma, Type::kBF16x2, Type::kNone, FLAGS), map<&pair3<bf16, &bfma<FLAGS>>> \
  }
#define TS_UNARY16(OP, FUNCTION)                                                                 \
  {op_key(Op::OP, Type::kF16), map<&FUNCTION<f16, 0>>},                                          \
      {op_key(Op::OP, Type::kF16x2), map<&pair1<f16, &FUNCTION<f16, 0>>>},                       \
      {op_key(Op::OP, Type::kF16, Type::kNone, kFtz), map<&FUNCTION<f16, kFtz>>},                \
      {op_key(Op::OP, Type::kF16x2, Type::kNone, kFtz), map<&pair1<f16, &FUNCTION<f16, kFtz>>>}, \
      {op_key(Op::OP, Type::kBF16), map<&FUNCTION<bf16, 0>>}, {                                  \
    op_key(Op::OP, Type::kBF16x2), map<&pair1<bf16, &FUNCTION<bf16, 0>>>                         \
  }
#define TS_EXTREME16(OP, MAX, FLAGS)                                                               \
  {op_key(Op::OP, Type::kF16, Type::kNone, FLAGS), map<&hextreme<f16, MAX, FLAGS>>}, {             \
    op_key(Op::OP, Type::kF16x2, Type::kNone, FLAGS), map<&pair2<f16, &hextreme<f16, MAX, FLAGS>>> \
  }
#define TS_EXTREMEB16(OP, MAX, FLAGS)                                                                 \
  {op_key(Op::OP, Type::kBF16, Type::kNone, FLAGS), map<&hextreme<bf16, MAX, FLAGS>>}, {              \
    op_key(Op::OP, Type::kBF16x2, Type::kNone, FLAGS), map<&pair2<bf16, &hextreme<bf16, MAX, FLAGS>>> \
  }
#define TS_EXTREMES16(OP, MAX)                                                                                     \
  TS_EXTREME16(OP, MAX, 0), TS_EXTREME16(OP, MAX, kFtz), TS_EXTREME16(OP, MAX, kNan),                              \
      TS_EXTREME16(OP, MAX, kFtz | kNan), TS_EXTREME16(OP, MAX, kXorSign), TS_EXTREME16(OP, MAX, kFtz | kXorSign), \
      TS_EXTREME16(OP, MAX, kNan | kXorSign), TS_EXTREME16(OP, MAX, kFtz | kNan | kXorSign),                       \
      TS_EXTREMEB16(OP, MAX, 0), TS_EXTREMEB16(OP, MAX, kNan), TS_EXTREMEB16(OP, MAX, kXorSign),                   \
      TS_EXTREMEB16(OP, MAX, kNan | kXorSign)
#define TS_APPROX16(OP, TYPE, T, FLAGS, FUNCTION)                                                          \
  {op_key(Op::OP, Type::TYPE, Type::kNone, FLAGS), map<&happroximate<T, &FUNCTION, FLAGS>>}, {             \
    op_key(Op::OP, Type::TYPE##x2, Type::kNone, FLAGS), map<&pair1<T, &happroximate<T, &FUNCTION, FLAGS>>> \
  }

constexpr OpEntry kEntries[] = {
    TS_ARITHMETIC(kFadd, hadd),
    TS_ARITHMETIC(kFsub, hsub),
    TS_TINY16(kFmul, hmul, exact_product, kFtz),
    TS_TINY16(kFmul, hmul, exact_product, kFtz | kSat),
    TS_ARITHMETIC(kFmul, hmul),
    TS_FMA16(0),
    TS_FMA16(kSat),
    TS_FMA16(kRelu),
    TS_TINY16(kFfma, hfma, exact_fma, kFtz),
    TS_TINY16(kFfma, hfma, exact_fma, kFtz | kSat),
    TS_TINY16(kFfma, hfma, exact_fma, kFtz | kRelu),
    TS_FMAB16(0),
    TS_FMAB16(kRelu),
    TS_UNARY16(kFabs, habs),
    TS_UNARY16(kFneg, hneg),
    TS_EXTREMES16(kFmin, false),
    TS_EXTREMES16(kFmax, true),
    TS_APPROX16(kEx2, kF16, f16, 0, exp2_float),
    TS_APPROX16(kEx2, kBF16, bf16, kFtz, exp2_float),
    TS_APPROX16(kTanh, kF16, f16, 0, tanh_float),
    TS_APPROX16(kTanh, kBF16, bf16, 0, tanh_float),
};

}  // namespace

OpEntries half_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
