// SPDX-License-Identifier: Apache-2.0
// cvt where one side is an integer.
#include "integer.h"
#include "map.h"
#include "numerics.h"
#include "rounding.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
constexpr bool kSignedType = static_cast<T>(-1) < static_cast<T>(0);
template <class T>
constexpr T kGreatest = static_cast<T>(kSignedType<T> ? (u64{1} << (sizeof(T) * 8 - 1)) - 1 : ~u64{0});
template <class T>
constexpr T kLeast = static_cast<T>(kSignedType<T> ? ~u64{0} << (sizeof(T) * 8 - 1) : 0);

template <class S, class D>
TS_INLINE D convert(S a) {
  return static_cast<D>(a);
}
template <class S, class D>
TS_INLINE D convert_saturated(S a) {
  const Signed128 value = a, low = kLeast<D>, high = kGreatest<D>;
  return static_cast<D>(value < low ? low : value > high ? high : value);
}

TS_INLINE f32 round_integral(f32 a, Rounding mode) {
  switch (mode) {
    case Rounding::kZero:
      return __builtin_truncf(a);
    case Rounding::kDown:
      return __builtin_floorf(a);
    case Rounding::kUp:
      return __builtin_ceilf(a);
    default:
      return __builtin_rintf(a);
  }
}
TS_INLINE f64 round_integral(f64 a, Rounding mode) {
  switch (mode) {
    case Rounding::kZero:
      return __builtin_trunc(a);
    case Rounding::kDown:
      return __builtin_floor(a);
    case Rounding::kUp:
      return __builtin_ceil(a);
    default:
      return __builtin_rint(a);
  }
}

/// 2^n as S.
template <class S>
constexpr S power_of_two(int n) {
  S value = 1;
  for (int i = 0; i < n; ++i) value *= 2;
  return value;
}

// What a NaN becomes: 0 in 32 bits and below from float, the "integer indefinite" value otherwise.
template <class S, class D>
constexpr D kNanInteger = sizeof(S) == 8 || sizeof(D) == 8 ? static_cast<D>(u64{1} << (sizeof(D) * 8 - 1)) : D{0};

/// Out of range clamps to the destination's range.
template <class S, class D, Rounding kMode, bool kFlush>
TS_INLINE D to_integer(S a) {
  constexpr int kValueBits = static_cast<int>(sizeof(D)) * 8 - (kSignedType<D> ? 1 : 0);
  const S rounded_value = round_integral(value_of<S, kFlush>(a), kMode);
  constexpr S kAbove = power_of_two<S>(kValueBits);
  const bool too_great = rounded_value >= kAbove;
  const bool too_small = kSignedType<D> ? rounded_value < -kAbove : rounded_value < S{0};
  const S safe = too_great || too_small || rounded_value != rounded_value ? S{0} : rounded_value;
  D result;
  if constexpr (sizeof(D) == 8 && !kSignedType<D>) {
    constexpr S kHalf = power_of_two<S>(63);
    result = safe >= kHalf ? static_cast<D>(static_cast<s64>(safe - kHalf)) ^ (u64{1} << 63)
                           : static_cast<D>(static_cast<s64>(safe));
  } else if constexpr (sizeof(D) == 4 && !kSignedType<D>) {
    result = static_cast<D>(static_cast<s64>(safe));
  } else if constexpr (sizeof(D) < 4) {
    result = static_cast<D>(static_cast<s32>(safe));
  } else {
    result = static_cast<D>(safe);
  }
  result = too_great ? kGreatest<D> : too_small ? kLeast<D> : result;
  return a != a ? kNanInteger<S, D> : result;
}

template <class S, class D>
TS_INLINE D from_integer(S a) {
  return static_cast<D>(a);
}

/// To half formats through a double rounded to odd, so that the final rounding is the only one.
template <class S>
TS_INLINE f64 to_odd_double(S a) {
  if constexpr (sizeof(S) < 8) {
    return static_cast<f64>(a);
  } else {
    const bool negative = kSignedType<S> && a < 0;
    const u64 magnitude = negative ? u64{0} - static_cast<u64>(a) : static_cast<u64>(a);
    // 53 bits hold the result's 11 at most and a sticky bit.
    const u64 folded = magnitude >> 53 != 0 ? (magnitude >> 12) | ((magnitude & 0xfff) != 0 ? 1 : 0) : magnitude;
    const f64 value = static_cast<f64>(static_cast<s64>(folded)) * (magnitude >> 53 != 0 ? 4096.0 : 1.0);
    return negative ? -value : value;
  }
}
template <class S, class Target, Rounding kMode>
TS_INLINE u16 to_half(S a) {
  return static_cast<u16>(encode<Target, kMode>(to_odd_double<S>(a)));
}

#define TS_DESTINATIONS(X, ST, S)                                                                      \
  X(ST, S, kU8, u8), X(ST, S, kS8, s8), X(ST, S, kU16, u16), X(ST, S, kS16, s16), X(ST, S, kU32, u32), \
      X(ST, S, kS32, s32), X(ST, S, kU64, u64), X(ST, S, kS64, s64)
#define TS_SOURCES(X)                                                                              \
  TS_DESTINATIONS(X, kU8, u8), TS_DESTINATIONS(X, kS8, s8), TS_DESTINATIONS(X, kU16, u16),         \
      TS_DESTINATIONS(X, kS16, s16), TS_DESTINATIONS(X, kU32, u32), TS_DESTINATIONS(X, kS32, s32), \
      TS_DESTINATIONS(X, kU64, u64), TS_DESTINATIONS(X, kS64, s64)
#define TS_INTEGERS(ST, S, DT, D)                                             \
  {op_key(Op::kCvt, Type::DT, Type::ST), map<&convert<S, D>>}, {              \
    op_key(Op::kCvt, Type::DT, Type::ST, kSat), map<&convert_saturated<S, D>> \
  }
#define TS_TO_INTEGER_MODE(ST, S, DT, D, FLAGS, MODE)                  \
  {op_key(Op::kCvt, Type::DT, Type::ST, FLAGS, static_cast<u8>(MODE)), \
   map<&to_integer<S, D, MODE, ((FLAGS) & kFtz) != 0>>}
#define TS_TO_INTEGER_FLAGS(ST, S, DT, D, FLAGS)                   \
  TS_TO_INTEGER_MODE(ST, S, DT, D, FLAGS, Rounding::kNearestEven), \
      TS_TO_INTEGER_MODE(ST, S, DT, D, FLAGS, Rounding::kZero),    \
      TS_TO_INTEGER_MODE(ST, S, DT, D, FLAGS, Rounding::kDown), TS_TO_INTEGER_MODE(ST, S, DT, D, FLAGS, Rounding::kUp)
#define TS_TO_INTEGER(ST, S, DT, D) TS_TO_INTEGER_FLAGS(ST, S, DT, D, 0)
#define TS_TO_INTEGER_FTZ(ST, S, DT, D) TS_TO_INTEGER_FLAGS(ST, S, DT, D, kFtz)
#define TS_FROM_MODE(ST, S, DT, HANDLER)                                                  \
  {op_key(Op::kCvt, Type::DT, Type::ST, 0, 0), HANDLER},                                  \
      {op_key(Op::kCvt, Type::DT, Type::ST, 0, 1), &rounded<HANDLER, Rounding::kZero>},   \
      {op_key(Op::kCvt, Type::DT, Type::ST, 0, 2), &rounded<HANDLER, Rounding::kDown>}, { \
    op_key(Op::kCvt, Type::DT, Type::ST, 0, 3), &rounded<HANDLER, Rounding::kUp>          \
  }
#define TS_TO_HALF(ST, S, DT, FORMAT)                                                             \
  {op_key(Op::kCvt, Type::DT, Type::ST, 0, 0), map<&to_half<S, FORMAT, Rounding::kNearestEven>>}, \
      {op_key(Op::kCvt, Type::DT, Type::ST, 0, 1), map<&to_half<S, FORMAT, Rounding::kZero>>},    \
      {op_key(Op::kCvt, Type::DT, Type::ST, 0, 2), map<&to_half<S, FORMAT, Rounding::kDown>>}, {  \
    op_key(Op::kCvt, Type::DT, Type::ST, 0, 3), map<&to_half<S, FORMAT, Rounding::kUp>>           \
  }
#define TS_FROM_INTEGER(ST, S)                                                                                      \
  TS_FROM_MODE(ST, S, kF32, (map<&from_integer<S, f32>>)), TS_FROM_MODE(ST, S, kF64, (map<&from_integer<S, f64>>)), \
      TS_TO_HALF(ST, S, kF16, HalfFormat), TS_TO_HALF(ST, S, kBF16, BfloatFormat)

constexpr OpEntry kEntries[] = {
    TS_SOURCES(TS_INTEGERS),
    TS_DESTINATIONS(TS_TO_INTEGER, kF32, f32),
    TS_DESTINATIONS(TS_TO_INTEGER_FTZ, kF32, f32),
    TS_DESTINATIONS(TS_TO_INTEGER, kF64, f64),
    TS_FROM_INTEGER(kU8, u8),
    TS_FROM_INTEGER(kS8, s8),
    TS_FROM_INTEGER(kU16, u16),
    TS_FROM_INTEGER(kS16, s16),
    TS_FROM_INTEGER(kU32, u32),
    TS_FROM_INTEGER(kS32, s32),
    TS_FROM_INTEGER(kU64, u64),
    TS_FROM_INTEGER(kS64, s64),
};

}  // namespace

OpEntries convert_integer_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
