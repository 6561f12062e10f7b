// SPDX-License-Identifier: Apache-2.0
// Floating-point formats: decoding to float, encoding with one rounding, flushing
// of subnormals, saturation and the canonical NaN.
#pragma once

#include "../op_key.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

TS_INLINE u32 bits_of(f32 value) { return __builtin_bit_cast(u32, value); }
TS_INLINE u64 bits_of(f64 value) { return __builtin_bit_cast(u64, value); }
TS_INLINE f32 f32_of(u32 bits) { return __builtin_bit_cast(f32, bits); }
TS_INLINE f64 f64_of(u64 bits) { return __builtin_bit_cast(f64, bits); }

// Arithmetic gives these NaNs whatever the operands' payloads were.
constexpr u32 kNanF32 = 0x7fffffffu;
constexpr u64 kNanF64 = 0xfff8000000000000ull;
constexpr u16 kNanHalf = 0x7fffu;

TS_INLINE f32 flush(f32 value) {
  const u32 bits = bits_of(value);
  return f32_of((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
TS_INLINE f32 canonical(f32 value) { return value != value ? f32_of(kNanF32) : value; }

TS_INLINE f64 quieted(f64 nan) { return f64_of(bits_of(nan) | u64{1} << 51); }

/// Clamps to [0, 1]; a NaN becomes +0.
TS_INLINE f32 saturate01(f32 value) { return value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f; }
TS_INLINE f64 saturate01(f64 value) { return value > 0.0 ? (value < 1.0 ? value : 1.0) : 0.0; }

template <bool kFlush, bool kSaturate>
TS_INLINE f32 finish(f32 value) {
  if constexpr (kFlush) value = flush(value);
  if constexpr (kSaturate) return saturate01(value);
  return canonical(value);
}

TS_INLINE f32 half_to_float(u16 half) {
  const u32 magnitude = half & 0x7fffu, moved = magnitude << 13;
  // The product rescales the exponent, and normalises a subnormal half; it is exact.
  const u32 finite = bits_of(f32_of(moved) * 0x1p112f);
  const u32 bits = magnitude >= 0x7c00u ? moved | 0x7f800000u : finite;
  return f32_of(bits | (u32{half} & 0x8000u) << 16);
}
TS_INLINE f32 bfloat_to_float(u16 bits) { return f32_of(u32{bits} << 16); }

/// A binary format below float: `kMaxFinite` is the code of its greatest number,
/// `kInfinity` that of infinity, or 0 where the format has none.
template <int kMantissaBits, int kExponentBias, u32 kMaxFiniteCode, u32 kInfinityCode, u32 kNanCode, int kWidth>
struct Format {
  static constexpr int kMantissa = kMantissaBits, kBias = kExponentBias, kSignShift = kWidth - 1;
  static constexpr u32 kMaxFinite = kMaxFiniteCode, kInfinity = kInfinityCode, kNan = kNanCode;
};
using HalfFormat = Format<10, 15, 0x7bff, 0x7c00, 0x7fff, 16>;
using BfloatFormat = Format<7, 127, 0x7f7f, 0x7f80, 0x7fff, 16>;
using E4M3Format = Format<3, 7, 0x7e, 0, 0x7f, 8>;
using E5M2Format = Format<2, 15, 0x7b, 0x7c, 0x7f, 8>;
using E2M3Format = Format<3, 1, 0x1f, 0, 0x1f, 6>;
using E3M2Format = Format<2, 3, 0x1f, 0, 0x1f, 6>;
using E2M1Format = Format<1, 1, 0x7, 0, 0x7, 4>;

template <Rounding kMode>
TS_INLINE bool rounds_up(bool negative, bool odd, bool inexact, bool above_half, bool half) {
  if constexpr (kMode == Rounding::kNearestEven) return above_half || (half && odd);
  if constexpr (kMode == Rounding::kNearestAway) return above_half || half;
  if constexpr (kMode == Rounding::kUp) return inexact && !negative;
  if constexpr (kMode == Rounding::kDown) return inexact && negative;
  return false;
}

template <class F, Rounding kMode>
TS_INLINE u32 overflow_code(bool negative) {
  constexpr bool kNearest = kMode == Rounding::kNearestEven || kMode == Rounding::kNearestAway;
  const bool to_infinity = kNearest || (kMode == Rounding::kUp && !negative) || (kMode == Rounding::kDown && negative);
  return F::kInfinity != 0 && to_infinity ? F::kInfinity : F::kMaxFinite;
}

/// The code of `value` in format F, rounded once. With `kSaturateFinite`, what
/// overflows becomes the greatest finite number, infinities included.
template <class F, Rounding kMode, bool kSaturateFinite = false>
TS_INLINE u32 encode(f32 value) {
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffffu;
  const bool negative = bits >> 31 != 0;
  const s32 source_exponent = static_cast<s32>(magnitude >> 23);
  const u32 significand = (magnitude & 0x7fffffu) | (source_exponent != 0 ? 0x800000u : 0u);
  const s32 exponent = (source_exponent != 0 ? source_exponent : 1) - 127 + F::kBias;
  const s32 wanted = 23 - F::kMantissa + (exponent < 1 ? 1 - exponent : 0);
  const u32 shift = static_cast<u32>(wanted < 30 ? wanted : 30);
  const u32 kept = significand >> shift, rest = significand & ((1u << shift) - 1);
  const u32 half = shift == 0 ? 0u : 1u << ((shift - 1) & 31);
  const bool up = rounds_up<kMode>(negative, (kept & 1) != 0, rest != 0, rest > half, shift != 0 && rest == half);
  u32 code = kept + (up ? 1u : 0u) + (exponent > 1 ? static_cast<u32>(exponent - 1) << F::kMantissa : 0u);
  code = code > F::kMaxFinite ? (kSaturateFinite ? F::kMaxFinite : overflow_code<F, kMode>(negative)) : code;
  if constexpr (!kSaturateFinite && F::kInfinity != 0) code = magnitude == 0x7f800000u ? F::kInfinity : code;
  if constexpr (!kSaturateFinite && F::kInfinity == 0)
    code = code == F::kMaxFinite && magnitude == 0x7f800000u ? F::kNan : code;
  const u32 sign = (negative ? 1u : 0u) << F::kSignShift;
  return magnitude > 0x7f800000u ? F::kNan : code | sign;
}

/// The same from double, for operands that float cannot hold.
template <class F, Rounding kMode>
TS_INLINE u32 encode(f64 value) {
  static_assert(F::kSignShift == 15, "from double only to the half formats");
  const u64 bits = bits_of(value), magnitude = bits & 0x7fffffffffffffffull;
  const bool negative = bits >> 63 != 0;
  const s32 source_exponent = static_cast<s32>(magnitude >> 52);
  const u64 significand = (magnitude & 0xfffffffffffffull) | (source_exponent != 0 ? u64{1} << 52 : 0);
  const s32 exponent = (source_exponent != 0 ? source_exponent : 1) - 1023 + F::kBias;
  const s32 wanted = 52 - F::kMantissa + (exponent < 1 ? 1 - exponent : 0);
  const u32 shift = static_cast<u32>(wanted < 60 ? wanted : 60);
  const u64 kept = significand >> shift, rest = significand & ((u64{1} << shift) - 1), half = u64{1} << (shift - 1);
  const bool up = rounds_up<kMode>(negative, (kept & 1) != 0, rest != 0, rest > half, rest == half);
  const u64 wide = kept + (up ? 1u : 0u) + (exponent > 1 ? static_cast<u64>(exponent - 1) << F::kMantissa : 0u);
  u32 code = wide > F::kMaxFinite ? overflow_code<F, kMode>(negative) : static_cast<u32>(wide);
  if constexpr (F::kInfinity != 0) code = magnitude == 0x7ff0000000000000ull ? F::kInfinity : code;
  const u32 sign = (negative ? 1u : 0u) << F::kSignShift;
  // From double, unlike from float, a NaN keeps its sign and the top of its payload.
  const u32 nan = F::kInfinity | 1u << (F::kMantissa - 1) |
                  static_cast<u32>(magnitude >> (52 - F::kMantissa) & ((1u << F::kMantissa) - 1));
  return (magnitude > 0x7ff0000000000000ull ? nan : code) | sign;
}

/// The value of a code of a small format without infinities or with them.
template <class F>
TS_INLINE f32 decode(u32 code) {
  const u32 magnitude = code & ((1u << F::kSignShift) - 1);
  const u32 exponent = magnitude >> F::kMantissa, fraction = magnitude & ((1u << F::kMantissa) - 1);
  const f32 subnormal =
      static_cast<f32>(static_cast<s32>(fraction)) * f32_of(static_cast<u32>(127 + 1 - F::kBias - F::kMantissa) << 23);
  const u32 normal = (exponent + static_cast<u32>(127 - F::kBias)) << 23 | fraction << (23 - F::kMantissa);
  u32 bits = exponent == 0 ? bits_of(subnormal) : normal;
  if constexpr (F::kInfinity != 0) {
    bits = magnitude == F::kInfinity ? 0x7f800000u : magnitude > F::kInfinity ? kNanF32 : bits;
  } else if constexpr (F::kNan != F::kMaxFinite) {
    bits = magnitude == F::kNan ? kNanF32 : bits;
  }
  return f32_of(bits | (code >> F::kSignShift & 1) << 31);
}

TS_INLINE u16 float_to_half(f32 value) { return static_cast<u16>(encode<HalfFormat, Rounding::kNearestEven>(value)); }
TS_INLINE u16 float_to_bfloat(f32 value) {
  const u32 bits = bits_of(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? u32{kNanHalf} : rounded);
}

/// What an arithmetic operation sees of an operand: its value in float or double.
template <class T, bool kFlush>
struct Value;
template <bool kFlush>
struct Value<f32, kFlush> {
  static TS_INLINE f32 of(f32 a) { return kFlush ? flush(a) : a; }
};
template <bool kFlush>
struct Value<f64, kFlush> {
  static TS_INLINE f64 of(f64 a) { return a; }
};
template <bool kFlush>
struct Value<f16, kFlush> {
  static TS_INLINE f32 of(f16 a) {
    const u16 bits = kFlush && (a.bits & 0x7c00) == 0 ? a.bits & 0x8000 : a.bits;
    return half_to_float(bits);
  }
};
template <bool kFlush>
struct Value<bf16, kFlush> {
  static TS_INLINE f32 of(bf16 a) { return bfloat_to_float(a.bits); }
};
template <class T, bool kFlush>
TS_INLINE auto value_of(T a) {
  return Value<T, kFlush>::of(a);
}

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
