// SPDX-License-Identifier: Apache-2.0
// Integer operations on one lane, as the PTX manual defines them.
#pragma once

#include "../op_key.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
struct Traits;
#define TS_INTEGER_TRAITS(T, U, S, W, UW) \
  template <>                             \
  struct Traits<T> {                      \
    using Unsigned = U;                   \
    using Signed = S;                     \
    using Wide = W;                       \
    using UnsignedWide = UW;              \
  }
TS_INTEGER_TRAITS(u16, u16, s16, u32, u32);
TS_INTEGER_TRAITS(s16, u16, s16, s32, u32);
TS_INTEGER_TRAITS(u32, u32, s32, u64, u64);
TS_INTEGER_TRAITS(s32, u32, s32, s64, u64);
__extension__ typedef __int128 Signed128;
__extension__ typedef unsigned __int128 Unsigned128;
TS_INTEGER_TRAITS(u64, u64, s64, Unsigned128, Unsigned128);
TS_INTEGER_TRAITS(s64, u64, s64, Signed128, Unsigned128);
#undef TS_INTEGER_TRAITS

template <class T>
using Unsigned = typename Traits<T>::Unsigned;
template <class T>
using Wide = typename Traits<T>::Wide;
template <class T>
constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
template <class T>
constexpr bool kIsSigned = static_cast<T>(-1) < static_cast<T>(0);

template <class T>
TS_INLINE T add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
TS_INLINE T sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
TS_INLINE T mul_lo(T a, T b) {
  return static_cast<T>(1u * static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <class T>
TS_INLINE T mul_hi(T a, T b) {
  return static_cast<T>((Wide<T>{a} * Wide<T>{b}) >> kBits<T>);
}
template <class T>
TS_INLINE Wide<T> mul_wide(T a, T b) {
  return static_cast<Wide<T>>(Wide<T>{a} * Wide<T>{b});
}
template <class T>
TS_INLINE T mad_lo(T a, T b, T c) {
  return add<T>(mul_lo<T>(a, b), c);
}
template <class T>
TS_INLINE T mad_hi(T a, T b, T c) {
  return add<T>(mul_hi<T>(a, b), c);
}
template <class T>
TS_INLINE Wide<T> mad_wide(T a, T b, Wide<T> c) {
  return add<Wide<T>>(mul_wide<T>(a, b), c);
}

TS_INLINE s32 saturate(s64 value) {
  return static_cast<s32>(value > 0x7fffffffLL ? 0x7fffffffLL : value < -0x80000000LL ? -0x80000000LL : value);
}
TS_INLINE s32 add_sat(s32 a, s32 b) { return saturate(s64{a} + s64{b}); }
TS_INLINE s32 sub_sat(s32 a, s32 b) { return saturate(s64{a} - s64{b}); }
TS_INLINE s32 mad_hi_sat(s32 a, s32 b, s32 c) { return saturate(s64{mul_hi<s32>(a, b)} + s64{c}); }

TS_INLINE s64 low24(s32 a) { return static_cast<s32>(static_cast<u32>(a) << 8) >> 8; }
TS_INLINE s64 low24(u32 a) { return a & 0xffffff; }
template <class T>
TS_INLINE T mul24_lo(T a, T b) {
  return static_cast<T>(low24(a) * low24(b));
}
template <class T>
TS_INLINE T mul24_hi(T a, T b) {
  return static_cast<T>((low24(a) * low24(b)) >> 16);
}
template <class T>
TS_INLINE T mad24_lo(T a, T b, T c) {
  return add<T>(mul24_lo<T>(a, b), c);
}
template <class T>
TS_INLINE T mad24_hi(T a, T b, T c) {
  return add<T>(mul24_hi<T>(a, b), c);
}
TS_INLINE s32 mad24_hi_sat(s32 a, s32 b, s32 c) { return saturate(s64{mul24_hi<s32>(a, b)} + s64{c}); }

template <class T>
TS_INLINE T sad(T a, T b, T c) {
  return add<T>(c, a < b ? sub<T>(b, a) : sub<T>(a, b));
}

// Division by zero has no defined result in PTX; the hardware gives all ones for quotient and remainder.
template <class T>
TS_INLINE T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (kIsSigned<T>) {
    if (b == -1) return sub<T>(0, a);
  }
  return static_cast<T>(a / b);
}
template <class T>
TS_INLINE T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (kIsSigned<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
// A 32-bit quotient through double is exact, and vectorises.
template <>
TS_INLINE u32 divide<u32>(u32 a, u32 b) {
  const u32 quotient = static_cast<u32>(static_cast<s64>(static_cast<f64>(a) / static_cast<f64>(b == 0 ? 1 : b)));
  return b == 0 ? 0xffffffffu : quotient;
}
template <>
TS_INLINE u32 remainder<u32>(u32 a, u32 b) {
  return b == 0 ? 0xffffffffu : a - divide<u32>(a, b) * b;
}
template <>
TS_INLINE s32 divide<s32>(s32 a, s32 b) {
  // The quotient of INT_MIN by -1 is 2^31, which wraps.
  const s32 quotient =
      static_cast<s32>(static_cast<u32>(static_cast<s64>(static_cast<f64>(a) / static_cast<f64>(b == 0 ? 1 : b))));
  return b == 0 ? -1 : quotient;
}
template <>
TS_INLINE s32 remainder<s32>(s32 a, s32 b) {
  return b == 0 ? -1 : sub<s32>(a, mul_lo<s32>(divide<s32>(a, b), b));
}

template <class T>
TS_INLINE T negate(T a) {
  return sub<T>(0, a);
}
template <class T>
TS_INLINE T absolute(T a) {
  return a < 0 ? negate<T>(a) : a;
}
template <class T>
TS_INLINE T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
TS_INLINE T maximum(T a, T b) {
  return a < b ? b : a;
}
template <class T>
TS_INLINE T minimum_relu(T a, T b) {
  return maximum<T>(minimum<T>(a, b), 0);
}
template <class T>
TS_INLINE T maximum_relu(T a, T b) {
  return maximum<T>(maximum<T>(a, b), 0);
}

/// Applies a 16-bit operation to both halves of a word.
template <class T, T (*kFunction)(T, T)>
TS_INLINE u32 on_halves(u32 a, u32 b) {
  const u32 low = static_cast<u16>(kFunction(static_cast<T>(a), static_cast<T>(b)));
  const u32 high = static_cast<u16>(kFunction(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return low | high << 16;
}

TS_INLINE u32 popc32(u32 a) {
  a = a - (a >> 1 & 0x55555555u);
  a = (a & 0x33333333u) + (a >> 2 & 0x33333333u);
  return ((a + (a >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}
TS_INLINE u32 popc64(u64 a) { return popc32(static_cast<u32>(a)) + popc32(static_cast<u32>(a >> 32)); }
TS_INLINE u32 clz32(u32 a) { return a == 0 ? 32u : static_cast<u32>(__builtin_clz(a)); }
TS_INLINE u32 clz64(u64 a) { return a == 0 ? 64u : static_cast<u32>(__builtin_clzll(a)); }

template <class T>
TS_INLINE u32 bfind(T a) {
  Unsigned<T> bits = static_cast<Unsigned<T>>(a);
  if (kIsSigned<T> && a < 0) bits = ~bits;
  return bits == 0 ? 0xffffffffu : static_cast<u32>(63 - __builtin_clzll(u64{bits}));
}
template <class T>
TS_INLINE u32 bfind_shift(T a) {
  const u32 found = bfind<T>(a);
  return found == 0xffffffffu ? found : static_cast<u32>(kBits<T> - 1) - found;
}

TS_INLINE u32 fns(u32 mask, u32 base, s32 offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) != 0 ? base : 0xffffffffu;
  s64 left = offset > 0 ? offset : -s64{offset};
  const int step = offset > 0 ? 1 : -1;
  for (s64 position = base; position >= 0 && position < 32; position += step) {
    if ((mask >> position & 1) != 0 && --left == 0) return static_cast<u32>(position);
  }
  return 0xffffffffu;
}

TS_INLINE u32 reverse32(u32 a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
  a = (a >> 8 & 0x00ff00ffu) | (a & 0x00ff00ffu) << 8;
  return a >> 16 | a << 16;
}
TS_INLINE u64 reverse64(u64 a) {
  return u64{reverse32(static_cast<u32>(a))} << 32 | reverse32(static_cast<u32>(a >> 32));
}

template <class T>
TS_INLINE T bit_field_extract(T a, u32 b, u32 c) {
  using U = Unsigned<T>;
  constexpr u32 kMsb = kBits<T> - 1;
  const u32 position = b & 0xff, length = c & 0xff;
  const U bits = static_cast<U>(a);
  const u32 last = position + length - 1 > kMsb ? kMsb : position + length - 1;
  const U sign = kIsSigned<T> && length != 0 ? (bits >> (last & kMsb)) & 1 : 0;
  const U shifted = position > kMsb ? 0 : bits >> (position & kMsb);
  const u32 room = position > kMsb ? 0 : kMsb + 1 - position;
  const u32 valid = length < room ? length : room;
  const U keep = valid > kMsb ? ~U{0} : (U{1} << (valid & kMsb)) - 1;
  return static_cast<T>((shifted & keep) | ((U{0} - sign) & ~keep));
}
template <class T>
TS_INLINE T bit_field_insert(T a, T b, u32 c, u32 d) {
  constexpr u32 kMsb = kBits<T> - 1;
  const u32 position = c & 0xff, length = d & 0xff;
  const T field = length > kMsb ? ~T{0} : (T{1} << (length & kMsb)) - 1;
  const T keep = position > kMsb ? T{0} : field << (position & kMsb);
  const T moved = position > kMsb ? T{0} : a << (position & kMsb);
  return (b & ~keep) | (moved & keep);
}

template <bool kClamp>
TS_INLINE u32 bit_mask(u32 a, u32 b) {
  const u32 position = a & 31, end = position + (b & 31);
  const u32 from = kClamp && a >= 32 ? 0u : ~0u << position;
  const bool open = end >= 32 || (kClamp && (a >= 32 || b >= 32));
  return from & ~(open ? 0u : ~0u << (end & 31));
}
template <class T, bool kClamp>
TS_INLINE u32 sign_zero_extend(u32 a, u32 b) {
  const u32 bits = b & 31;
  const bool whole = kClamp && b >= 32;
  const u32 above = whole ? 0u : ~0u << bits;
  const bool sign = kIsSigned<T> && bits != 0 && !whole && (a >> ((bits - 1) & 31) & 1) != 0;
  return (a & ~above) | (sign ? above : 0u);
}

template <class A, class B>
TS_INLINE u32 dot4(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 8) c += static_cast<u32>(s32{static_cast<A>(a >> k)} * s32{static_cast<B>(b >> k)});
  return c;
}
template <class A, class B, int kFirst>
TS_INLINE u32 dot2(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 2; ++k) {
    c += static_cast<u32>(s32{static_cast<A>(a >> (16 * k))} * s32{static_cast<B>(b >> (8 * (k + kFirst)))});
  }
  return c;
}

template <class T>
TS_INLINE T bit_and(T a, T b) {
  return a & b;
}
template <class T>
TS_INLINE T bit_or(T a, T b) {
  return a | b;
}
template <class T>
TS_INLINE T bit_xor(T a, T b) {
  return a ^ b;
}
template <class T>
TS_INLINE T bit_not(T a) {
  return static_cast<T>(~a);
}
template <class T>
TS_INLINE T logical_not(T a) {
  return a == 0 ? 1 : 0;
}
// Amounts beyond the width are clamped, not wrapped.
template <class T>
TS_INLINE T shift_left(T a, u32 b) {
  return b >= kBits<T> ? T{0} : static_cast<T>(a << (b & (kBits<T> - 1)));
}
template <class T>
TS_INLINE T shift_right(T a, u32 b) {
  if constexpr (kIsSigned<T>) {
    return static_cast<T>(a >> (b >= kBits<T> ? kBits<T> - 1 : b));
  } else {
    return b >= kBits<T> ? T{0} : static_cast<T>(a >> (b & (kBits<T> - 1)));
  }
}
template <bool kClamp>
TS_INLINE u32 funnel_left(u32 a, u32 b, u32 c) {
  const u32 amount = kClamp ? (c < 32 ? c : 32) : c & 31;
  return static_cast<u32>(((u64{b} << 32 | a) << amount) >> 32);
}
template <bool kClamp>
TS_INLINE u32 funnel_right(u32 a, u32 b, u32 c) {
  const u32 amount = kClamp ? (c < 32 ? c : 32) : c & 31;
  return static_cast<u32>((u64{b} << 32 | a) >> amount);
}

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
