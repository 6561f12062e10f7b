// SPDX-License-Identifier: Apache-2.0
// cvt between floating-point types, one value at a time.
#include "map.h"
#include "numerics.h"
#include "rounding.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

// ---- to an integral value of the same type ----
template <Rounding kMode, bool kFlush, bool kSaturate>
TS_INLINE f32 integral32(f32 a) {
  const f32 x = value_of<f32, kFlush>(a);
  const f32 value = kMode == Rounding::kZero   ? __builtin_truncf(x)
                    : kMode == Rounding::kDown ? __builtin_floorf(x)
                    : kMode == Rounding::kUp   ? __builtin_ceilf(x)
                                               : __builtin_rintf(x);
  return finish<false, kSaturate>(value);
}
template <Rounding kMode, bool kSaturate>
TS_INLINE f64 integral64(f64 a) {
  const f64 value = kMode == Rounding::kZero   ? __builtin_trunc(a)
                    : kMode == Rounding::kDown ? __builtin_floor(a)
                    : kMode == Rounding::kUp   ? __builtin_ceil(a)
                                               : __builtin_rint(a);
  return kSaturate ? saturate01(value) : value;
}

template <bool kFlush, bool kSaturate>
TS_INLINE f32 same32(f32 a) {
  return finish<kFlush, kSaturate>(value_of<f32, kFlush>(a));
}
template <bool kSaturate>
TS_INLINE f64 same64(f64 a) {
  return kSaturate ? saturate01(a) : a;
}

// ---- between float and double ----
template <bool kFlush, bool kSaturate>
TS_INLINE f32 double_to_float(f64 a) {
  const f32 value = static_cast<f32>(a);  // a NaN keeps its sign and the top of its payload
  if constexpr (kSaturate) return saturate01(kFlush ? flush(value) : value);
  return kFlush ? flush(value) : value;
}
template <bool kFlush, bool kSaturate>
TS_INLINE f64 float_to_double(f32 a) {
  const f64 value = value_of<f32, kFlush>(a);
  if constexpr (kSaturate) return saturate01(value);
  if constexpr (kFlush) return a != a ? f64_of(0x7fffffffe0000000ull) : value;
  return value;  // a NaN keeps its payload, made quiet
}

// ---- from half formats: exact ----
template <class T, u8 kFlags>
TS_INLINE f32 half_up(T a) {
  return finish<false, (kFlags & kSat) != 0>(value_of<T, false>(a));
}
TS_INLINE u32 bfloat_up(u16 a) { return u32{a} << 16; }  // bits, also those of a NaN
template <class T, u8 kFlags>
TS_INLINE f64 half_up64(T a) {
  return float_to_double<false, (kFlags & kSat) != 0>(value_of<T, false>(a));
}

// ---- to half formats ----
template <u8 kFlags, class T>
TS_INLINE T prepared(T a) {
  return (kFlags & kSat) != 0 ? saturate01(a) : a;
}
template <u8 kFlags>
TS_INLINE u16 after(u32 code) {
  // relu makes negative results, -0 included, +0; NaN codes are positive.
  return static_cast<u16>((kFlags & kRelu) != 0 && (code & 0x8000) != 0 ? 0 : code);
}
template <class Target, Rounding kMode, u8 kFlags>
TS_INLINE u16 float_down(f32 a) {
  const f32 x = value_of<f32, (kFlags & kFtz) != 0>(a);
  return after<kFlags>(encode<Target, kMode, (kFlags & kSatFinite) != 0>(prepared<kFlags>(x)));
}
template <class Target, Rounding kMode, u8 kFlags>
TS_INLINE u16 double_down(f64 a) {
  return after<kFlags>(encode<Target, kMode>(prepared<kFlags>(a)));
}
template <class Target, Rounding kMode, u8 kFlags, class S>
TS_INLINE u16 half_across(S a) {
  return float_down<Target, kMode, kFlags>(value_of<S, false>(a));
}

// ---- tf32: a float with 10 bits of fraction ----
// As the hardware does it: .rna passes NaNs and infinities through with their low bits cut off, and
// .satfinite steps down from whatever has the greatest exponent.
template <Rounding kMode, u8 kFlags>
TS_INLINE f32 to_tf32(f32 a) {
  const u32 bits = bits_of(a), odd = bits >> 13 & 1;
  const u32 add = kMode == Rounding::kNearestAway ? 0x1000u : kMode == Rounding::kNearestEven ? 0xfffu + odd : 0u;
  const bool special = (bits & 0x7f800000u) == 0x7f800000u;
  u32 result = (bits + (special ? 0u : add)) & ~0x1fffu;
  if constexpr (kMode != Rounding::kNearestAway) result = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : result;
  if constexpr ((kFlags & kSatFinite) != 0) result = (result & 0x7f800000u) == 0x7f800000u ? result - 0x2000u : result;
  if constexpr ((kFlags & kRelu) != 0) result = result >> 31 != 0 ? 0u : result;
  return f32_of(result);
}

#define TS_KEY(DT, ST, FLAGS, MODE) op_key(Op::kCvt, Type::DT, Type::ST, FLAGS, static_cast<u8>(MODE))
#define TS_ROUND_KEY(T, FLAGS, MODE) op_key(Op::kCvtRound, Type::T, Type::T, FLAGS, static_cast<u8>(MODE))
#define TS_FOUR_MODES(X, ...)                                                                               \
  X(Rounding::kNearestEven, __VA_ARGS__), X(Rounding::kZero, __VA_ARGS__), X(Rounding::kDown, __VA_ARGS__), \
      X(Rounding::kUp, __VA_ARGS__)
#define TS_INTEGRAL32(MODE, FLAGS) \
  {TS_ROUND_KEY(kF32, FLAGS, MODE), map<&integral32<MODE, ((FLAGS) & kFtz) != 0, ((FLAGS) & kSat) != 0>>}
#define TS_INTEGRAL64(MODE, FLAGS) {TS_ROUND_KEY(kF64, FLAGS, MODE), map<&integral64<MODE, ((FLAGS) & kSat) != 0>>}
#define TS_D2F(FLAGS)                                                                                   \
  {TS_KEY(kF32, kF64, FLAGS, 0), map<&double_to_float<((FLAGS) & kFtz) != 0, ((FLAGS) & kSat) != 0>>},  \
      {TS_KEY(kF32, kF64, FLAGS, 1),                                                                    \
       &rounded<map<&double_to_float<((FLAGS) & kFtz) != 0, ((FLAGS) & kSat) != 0>>, Rounding::kZero>}, \
      {TS_KEY(kF32, kF64, FLAGS, 2),                                                                    \
       &rounded<map<&double_to_float<((FLAGS) & kFtz) != 0, ((FLAGS) & kSat) != 0>>, Rounding::kDown>}, \
  {                                                                                                     \
    TS_KEY(kF32, kF64, FLAGS, 3),                                                                       \
        &rounded<map<&double_to_float<((FLAGS) & kFtz) != 0, ((FLAGS) & kSat) != 0>>, Rounding::kUp>    \
  }
#define TS_DOWN(MODE, DT, FORMAT, FLAGS) {TS_KEY(DT, kF32, FLAGS, MODE), map<&float_down<FORMAT, MODE, FLAGS>>}
#define TS_DOWN64(MODE, DT, FORMAT, FLAGS) {TS_KEY(DT, kF64, FLAGS, MODE), map<&double_down<FORMAT, MODE, FLAGS>>}
#define TS_ACROSS(MODE, DT, FORMAT, ST, S, FLAGS) \
  {TS_KEY(DT, ST, FLAGS, MODE), map<&half_across<FORMAT, MODE, FLAGS, S>>}
#define TS_TF32(MODE, FLAGS) {TS_KEY(kTF32, kF32, FLAGS, MODE), map<&to_tf32<MODE, FLAGS>>}
#define TS_TF32_MODE(MODE) \
  TS_TF32(MODE, 0), TS_TF32(MODE, kRelu), TS_TF32(MODE, kSatFinite), TS_TF32(MODE, kRelu | kSatFinite)

constexpr OpEntry kEntries[] = {
    TS_FOUR_MODES(TS_INTEGRAL32, 0),
    TS_FOUR_MODES(TS_INTEGRAL32, kFtz),
    TS_FOUR_MODES(TS_INTEGRAL32, kSat),
    TS_FOUR_MODES(TS_INTEGRAL32, kFtz | kSat),
    TS_FOUR_MODES(TS_INTEGRAL64, 0),
    TS_FOUR_MODES(TS_INTEGRAL64, kSat),
    {TS_KEY(kF32, kF32, 0, 0), map<&same32<false, false>>},
    {TS_KEY(kF32, kF32, kFtz, 0), map<&same32<true, false>>},
    {TS_KEY(kF32, kF32, kSat, 0), map<&same32<false, true>>},
    {TS_KEY(kF32, kF32, kFtz | kSat, 0), map<&same32<true, true>>},
    {TS_KEY(kF64, kF64, 0, 0), map<&same64<false>>},
    {TS_KEY(kF64, kF64, kSat, 0), map<&same64<true>>},
    TS_D2F(0),
    TS_D2F(kFtz),
    TS_D2F(kSat),
    TS_D2F(kFtz | kSat),
    {TS_KEY(kF64, kF32, 0, 0), map<&float_to_double<false, false>>},
    {TS_KEY(kF64, kF32, kFtz, 0), map<&float_to_double<true, false>>},
    {TS_KEY(kF64, kF32, kSat, 0), map<&float_to_double<false, true>>},
    {TS_KEY(kF64, kF32, kFtz | kSat, 0), map<&float_to_double<true, true>>},
    {TS_KEY(kF32, kF16, 0, 0), map<&half_up<f16, 0>>},
    {TS_KEY(kF32, kF16, kSat, 0), map<&half_up<f16, kSat>>},
    {TS_KEY(kF32, kF16, kFtz, 0), map<&half_up<f16, 0>>},
    {TS_KEY(kF32, kF16, kFtz | kSat, 0), map<&half_up<f16, kSat>>},
    {TS_KEY(kF32, kBF16, 0, 0), map<&bfloat_up>},
    {TS_KEY(kF32, kBF16, kSat, 0), map<&half_up<bf16, kSat>>},
    {TS_KEY(kF64, kF16, 0, 0), map<&half_up64<f16, 0>>},
    {TS_KEY(kF64, kF16, kSat, 0), map<&half_up64<f16, kSat>>},
    {TS_KEY(kF64, kBF16, 0, 0), map<&half_up64<bf16, 0>>},
    {TS_KEY(kF64, kBF16, kSat, 0), map<&half_up64<bf16, kSat>>},
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, 0),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kSat),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kRelu),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kFtz),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kFtz | kSat),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kSatFinite),
    TS_FOUR_MODES(TS_DOWN, kF16, HalfFormat, kRelu | kSatFinite),
    TS_FOUR_MODES(TS_DOWN, kBF16, BfloatFormat, 0),
    TS_FOUR_MODES(TS_DOWN, kBF16, BfloatFormat, kSat),
    TS_FOUR_MODES(TS_DOWN, kBF16, BfloatFormat, kRelu),
    TS_FOUR_MODES(TS_DOWN, kBF16, BfloatFormat, kSatFinite),
    TS_FOUR_MODES(TS_DOWN, kBF16, BfloatFormat, kRelu | kSatFinite),
    TS_FOUR_MODES(TS_DOWN64, kF16, HalfFormat, 0),
    TS_FOUR_MODES(TS_DOWN64, kF16, HalfFormat, kSat),
    TS_FOUR_MODES(TS_DOWN64, kBF16, BfloatFormat, 0),
    TS_FOUR_MODES(TS_DOWN64, kBF16, BfloatFormat, kSat),
    TS_FOUR_MODES(TS_ACROSS, kF16, HalfFormat, kBF16, bf16, 0),
    TS_FOUR_MODES(TS_ACROSS, kF16, HalfFormat, kBF16, bf16, kSat),
    TS_FOUR_MODES(TS_ACROSS, kBF16, BfloatFormat, kF16, f16, 0),
    TS_FOUR_MODES(TS_ACROSS, kBF16, BfloatFormat, kF16, f16, kSat),
    {TS_KEY(kF16, kF16, 0, 0), map<&half_across<HalfFormat, Rounding::kNearestEven, 0, f16>>},
    {TS_KEY(kF16, kF16, kSat, 0), map<&half_across<HalfFormat, Rounding::kNearestEven, kSat, f16>>},
    {TS_KEY(kBF16, kBF16, 0, 0), map<&half_across<BfloatFormat, Rounding::kNearestEven, 0, bf16>>},
    {TS_KEY(kBF16, kBF16, kSat, 0), map<&half_across<BfloatFormat, Rounding::kNearestEven, kSat, bf16>>},
    TS_TF32_MODE(Rounding::kNearestAway),
    TS_TF32_MODE(Rounding::kNearestEven),
    TS_TF32_MODE(Rounding::kZero),
};

}  // namespace

OpEntries convert_float_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
