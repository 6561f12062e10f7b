// SPDX-License-Identifier: Apache-2.0
// The approximate functions. Each is evaluated in double with an error far below
// one float ulp and rounded once, so that results are well inside PTX's stated
// tolerances and do not depend on the instruction set level. They do not have
// the bits of any one GPU's tables.
#pragma once

#include "numerics.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

/// Nearest integer of |x| < 2^51, without a library call.
TS_INLINE f64 nearest(f64 x) {
  constexpr f64 kMagic = 0x1.8p52;
  return (x + kMagic) - kMagic;
}

/// 2^f for |f| <= 0.5: the Taylor series, with a relative error below 1e-11.
TS_INLINE f64 exp2_fraction(f64 f) {
  f64 p = 1.0178086009239699e-07;
  p = p * f + 1.3215486790144307e-06;
  p = p * f + 1.5252733804059841e-05;
  p = p * f + 1.5403530393381609e-04;
  p = p * f + 1.3333558146428443e-03;
  p = p * f + 9.6181291076284771e-03;
  p = p * f + 5.5504108664821579e-02;
  p = p * f + 2.4022650695910071e-01;
  p = p * f + 6.9314718055994531e-01;
  return p * f + 1.0;
}
/// 2^x for |x| <= 1000.
TS_INLINE f64 exp2_wide(f64 x) {
  const f64 whole = nearest(x);
  // The magic sum holds the integer in its low bits.
  const u64 integer = bits_of(x + 0x1.8p52) << 52;
  return f64_of(bits_of(exp2_fraction(x - whole)) + integer);
}
TS_INLINE f64 exp2_of(f32 x) {
  const f32 clamped = x > 200.0f ? 200.0f : x < -200.0f ? -200.0f : x;  // also for a NaN: replaced below
  return exp2_wide(clamped == clamped ? static_cast<f64>(clamped) : 0.0);
}
TS_INLINE f32 exp2_float(f32 x) { return x == x ? static_cast<f32>(exp2_of(x)) : f32_of(kNanF32); }

/// Base-2 logarithm of a positive finite double.
TS_INLINE f64 log2_positive(f64 x) {
  const u64 bits = bits_of(x);
  // Splits so that the fraction lies in [sqrt(1/2), sqrt(2)).
  const u64 shifted = bits + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  const u64 exponent_bits = shifted >> 52;
  const f64 exponent = f64_of(0x4330000000000000ull | exponent_bits) - (0x1p52 + 1023.0);
  const f64 m = f64_of((shifted & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const f64 s = (m - 1.0) / (m + 1.0), s2 = s * s;
  f64 p = 2.2195308321368667e-01;
  p = p * s2 + 2.6230818925253881e-01;
  p = p * s2 + 3.2059889797532520e-01;
  p = p * s2 + 4.1219858311113243e-01;
  p = p * s2 + 5.7707801635558536e-01;
  p = p * s2 + 9.6179669392597568e-01;
  p = p * s2 + 2.8853900817779268e+00;
  return exponent + p * s;
}
TS_INLINE f32 log2_float(f32 x) {
  const u32 bits = bits_of(x), magnitude = bits & 0x7fffffffu;
  const bool usual = bits - 1u < 0x7f7fffffu;  // positive and finite
  const f32 value = static_cast<f32>(log2_positive(usual ? static_cast<f64>(x) : 1.0));
  const u32 special = magnitude == 0 ? 0xff800000u : bits == 0x7f800000u ? 0x7f800000u : kNanF32;
  return usual ? value : f32_of(special);
}

/// Quadrant and remainder in [-pi/4, pi/4] of |x| < 2^20.
struct Reduced {
  f64 remainder;
  u32 quadrant;
};
TS_INLINE Reduced reduce_angle(f64 x) {
  constexpr f64 kHigh = 1.57079632673412561417e+00, kLow = 6.07710050650619224932e-11;  // kHigh has 33 bits
  const f64 sum = x * 6.36619772367581382433e-01 + 0x1.8p52;
  const f64 n = sum - 0x1.8p52;
  return {(x - n * kHigh) - n * kLow, static_cast<u32>(bits_of(sum))};
}
TS_INLINE f64 sine_core(f64 r) {
  const f64 z = r * r;
  f64 p = -2.50521083854417188e-08;
  p = p * z + 2.75573192239858907e-06;
  p = p * z - 1.98412698412698413e-04;
  p = p * z + 8.33333333333333333e-03;
  p = p * z - 1.66666666666666667e-01;
  return r + r * z * p;
}
TS_INLINE f64 cosine_core(f64 r) {
  const f64 z = r * r;
  f64 p = 2.08767569878680990e-09;
  p = p * z - 2.75573192239858907e-07;
  p = p * z + 2.48015873015873016e-05;
  p = p * z - 1.38888888888888889e-03;
  p = p * z + 4.16666666666666667e-02;
  p = p * z - 0.5;
  return 1.0 + z * p;
}
constexpr f32 kFastAngle = 1048576.0f;  // 2^20: beyond it the library's reduction is used
TS_INLINE f32 trigonometric(f32 x, u32 quarter_turns) {
  const Reduced reduced = reduce_angle(static_cast<f64>(x));
  const u32 quadrant = reduced.quadrant + quarter_turns;
  const f64 value = (quadrant & 1) != 0 ? cosine_core(reduced.remainder) : sine_core(reduced.remainder);
  return static_cast<f32>((quadrant & 2) != 0 ? -value : value);
}

TS_INLINE f32 tanh_float(f32 x) {
  const f32 magnitude = f32_of(bits_of(x) & 0x7fffffffu);
  const f32 clamped = magnitude < 20.0f ? magnitude : 20.0f;
  const f64 e = exp2_wide(2.8853900817779268 * static_cast<f64>(clamped));
  const f64 wide = 1.0 - 2.0 / (e + 1.0);
  const f32 result = magnitude < 0x1p-12f ? magnitude : static_cast<f32>(wide);
  return x == x ? f32_of(bits_of(result) | (bits_of(x) & 0x80000000u)) : f32_of(kNanF32);
}

TS_INLINE f32 rsqrt_float(f32 x) { return canonical(static_cast<f32>(1.0 / __builtin_sqrt(static_cast<f64>(x)))); }

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
