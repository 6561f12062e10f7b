// SPDX-License-Identifier: Apache-2.0
// .ftz looks at the result as it would be rounded with an unbounded exponent: one
// that is then below the least normal number is flushed, although as a subnormal
// it would round up to that number. Results of exactly that magnitude are rare,
// so they are found after the fact.
#pragma once

#include <utility>

#include "map.h"
#include "numerics.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

/// Which bits of a result are its magnitude, and which magnitude is the least normal one.
struct SingleFormat {
  static constexpr u32 kMagnitude = 0x7fffffffu, kLeastNormal = 0x00800000u;
  static TS_INLINE bool tiny(f64 exact) { return __builtin_fabsf(static_cast<f32>(exact * 0x1p64)) < 0x1p-62f; }
};
struct HalfSingle {
  static constexpr u32 kMagnitude = 0x7fffu, kLeastNormal = 0x0400u;
  static TS_INLINE bool tiny(f64 exact) { return __builtin_fabs(exact) < 0x1p-14 * (1.0 - 0x1p-12); }
};

template <class T>
TS_INLINE f64 exact(T a) {
  return static_cast<f64>(value_of<T, true>(a));
}
template <class T>
TS_INLINE f64 exact_product(T a, T b) {
  return exact(a) * exact(b);
}
template <class T>
TS_INLINE f64 exact_fma(T a, T b, T c) {
  return exact(a) * exact(b) + exact(c);
}
template <class T>
TS_INLINE f64 exact_quotient(T a, T b) {
  return exact(a) / exact(b);
}
template <class T>
TS_INLINE f64 exact_reciprocal(T a) {
  return 1.0 / exact(a);
}

/// As map<kFunction>, for a flushing operation whose exact result kExact gives in double.
template <class F, auto kFunction, auto kExact>
struct Flushing;
template <class F, class T, class... Ts, T (*kFunction)(Ts...), f64 (*kExact)(Ts...)>
struct Flushing<F, kFunction, kExact> {
  static void run(Warp& w, const MicroOp& op, u32 mask) { apply(w, op, mask, std::index_sequence_for<Ts...>()); }

  template <size_t... kIndex>
  static TS_INLINE void apply(Warp& w, const MicroOp& op, u32 mask, std::index_sequence<kIndex...>) {
    const Storage<T>* sources[] = {lanes_of<T>(w, op.r[1 + kIndex])...};
    alignas(64) Storage<T> result[kLanes];
    u32 suspicious = 0;
    TS_LANES { result[i] = to_storage<T>(kFunction(from_storage<T>(sources[kIndex][i])...)); }
    for (int i = 0; i < kLanes; ++i) suspicious |= (result[i] & F::kMagnitude) == F::kLeastNormal ? 1u : 0u;
    for (int i = 0; i < kLanes && suspicious != 0; ++i) {
      const bool least = (result[i] & F::kMagnitude) == F::kLeastNormal;
      if (least && F::tiny(kExact(from_storage<T>(sources[kIndex][i])...)))
        result[i] = static_cast<Storage<T>>(result[i] & ~F::kMagnitude);
    }
    Storage<T>* d = lanes_of<T>(w, op.r[0]);
    TS_LANES d[i] = (mask >> i & 1) != 0 ? result[i] : d[i];
  }
};

/// The same for two halves in a word.
template <auto kFunction, auto kExact>
struct FlushingPair;
template <class... Ts, f16 (*kFunction)(Ts...), f64 (*kExact)(Ts...)>
struct FlushingPair<kFunction, kExact> {
  static void run(Warp& w, const MicroOp& op, u32 mask) { apply(w, op, mask, std::index_sequence_for<Ts...>()); }

  template <size_t... kIndex>
  static TS_INLINE void apply(Warp& w, const MicroOp& op, u32 mask, std::index_sequence<kIndex...>) {
    const u32* sources[] = {w.lanes32(op.r[1 + kIndex])...};
    u32* d = w.lanes32(op.r[0]);
    for (int i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      u32 result = 0;
      for (int shift = 0; shift < 32; shift += 16) {
        u32 half = kFunction(f16{static_cast<u16>(sources[kIndex][i] >> shift)}...).bits;
        const bool least = (half & HalfSingle::kMagnitude) == HalfSingle::kLeastNormal;
        if (least && HalfSingle::tiny(kExact(f16{static_cast<u16>(sources[kIndex][i] >> shift)}...)))
          half &= ~HalfSingle::kMagnitude;
        result |= half << shift;
      }
      d[i] = result;
    }
  }
};

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
