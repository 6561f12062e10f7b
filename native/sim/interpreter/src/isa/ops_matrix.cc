// SPDX-License-Identifier: Apache-2.0
// mma.sync. Products are exact; sums are made in the accumulator's type (float
// for half accumulators, rounded once at the end) in the order of k.
#include "../fault.h"
#include "elements.h"
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

// ---- accumulators: the columns of an M x 8 matrix; lane 4g + t of the registers has row g (and g + 8), columns 2t, 2t
// + 1 ----

template <class T, int M>
using Column __attribute__((vector_size(M * sizeof(T)), aligned(64))) = T;

/// One value per register and lane.
template <class Calc, int M, class Word, class F>
TS_INLINE void load_values(Warp& w, const u32* refs, Calc (*sum)[M], F decode_word) {
  for (int r = 0; r < M / 4; ++r) {
    const Word* lanes = reinterpret_cast<const Word*>(w.at(refs[r]));
    for (int t = 0; t < 4; ++t) {
      for (int g = 0; g < 8; ++g) sum[2 * t + r % 2][r / 2 * 8 + g] = decode_word(lanes[4 * g + t]);
    }
  }
}
template <class Calc, int M, class Word, class F>
TS_INLINE void store_values(Warp& w, const u32* refs, const Calc (*sum)[M], F encode_word) {
  for (int r = 0; r < M / 4; ++r) {
    Word* lanes = reinterpret_cast<Word*>(w.at(refs[r]));
    for (int g = 0; g < 8; ++g) {
      for (int t = 0; t < 4; ++t) lanes[4 * g + t] = encode_word(sum[2 * t + r % 2][r / 2 * 8 + g]);
    }
  }
}

struct FloatAccumulator {
  using Calc = f32;
  template <int M>
  static constexpr int kRegisters = M / 4;
  template <int M>
  static TS_INLINE void load(Warp& w, const u32* refs, f32 (*sum)[M]) {
    load_values<f32, M, u32>(w, refs, sum, [](u32 bits) { return f32_of(bits); });
  }
  template <int M>
  static TS_INLINE void store(Warp& w, const u32* refs, const f32 (*sum)[M]) {
    store_values<f32, M, u32>(w, refs, sum, [](f32 value) { return bits_of(canonical(value)); });
  }
};

struct HalfAccumulator {
  using Calc = f32;
  template <int M>
  static constexpr int kRegisters = M / 8;
  template <int M>
  static TS_INLINE void load(Warp& w, const u32* refs, f32 (*sum)[M]) {
    for (int r = 0; r < kRegisters<M>; ++r) {
      const u32* lanes = w.lanes32(refs[r]);
      for (int i = 0; i < kLanes; ++i) {
        sum[i % 4 * 2][r * 8 + i / 4] = half_to_float(static_cast<u16>(lanes[i]));
        sum[i % 4 * 2 + 1][r * 8 + i / 4] = half_to_float(static_cast<u16>(lanes[i] >> 16));
      }
    }
  }
  template <int M>
  static TS_INLINE void store(Warp& w, const u32* refs, const f32 (*sum)[M]) {
    for (int r = 0; r < kRegisters<M>; ++r) {
      u32* lanes = w.lanes32(refs[r]);
      for (int i = 0; i < kLanes; ++i) {
        const int row = r * 8 + i / 4, column = i % 4 * 2;
        lanes[i] = float_to_half(sum[column][row]) | static_cast<u32>(float_to_half(sum[column + 1][row])) << 16;
      }
    }
  }
};

struct DoubleAccumulator {
  using Calc = f64;
  template <int M>
  static constexpr int kRegisters = M / 4;
  template <int M>
  static TS_INLINE void load(Warp& w, const u32* refs, f64 (*sum)[M]) {
    load_values<f64, M, u64>(w, refs, sum, [](u64 bits) { return f64_of(bits); });
  }
  template <int M>
  static TS_INLINE void store(Warp& w, const u32* refs, const f64 (*sum)[M]) {
    store_values<f64, M, u64>(w, refs, sum, [](f64 value) { return value == value ? bits_of(value) : kNanF64; });
  }
};

/// Sums that wrap, or are clamped at the end where the operation is saturating.
template <bool kSaturate>
struct IntegerAccumulator {
  using Calc = s64;
  template <int M>
  static constexpr int kRegisters = M / 4;
  template <int M>
  static TS_INLINE void load(Warp& w, const u32* refs, Calc (*sum)[M]) {
    load_values<Calc, M, u32>(w, refs, sum, [](u32 bits) { return static_cast<Calc>(static_cast<s32>(bits)); });
  }
  template <int M>
  static TS_INLINE void store(Warp& w, const u32* refs, const Calc (*sum)[M]) {
    store_values<Calc, M, u32>(w, refs, sum, [](s64 value) {
      if (kSaturate) value = value > 0x7fffffffLL ? 0x7fffffffLL : value < -0x80000000LL ? -0x80000000LL : value;
      return static_cast<u32>(value);
    });
  }
};

template <class E>
TS_INLINE auto fragment(Warp& w, u32 ref) {
  if constexpr (sizeof(typename E::Calc) == 8) {
    return w.lanes64(ref);
  } else {
    return w.lanes32(ref);
  }
}

/// sum[n] += left[k] * right[n][k], in the order of k.
template <class Calc, class Element, int M, int K>
TS_INLINE void accumulate(const Element (*left)[M], const Element (*right)[K], Calc (*sum)[M]) {
  Column<Calc, M> columns[8];
  __builtin_memcpy(columns, sum, sizeof columns);
  for (int k = 0; k < K; ++k) {
    if constexpr (sizeof(Element) == sizeof(Calc) && sizeof(Calc) == 4) {
      const Column<Element, M> row = *reinterpret_cast<const Column<Element, M>*>(left[k]);
      for (int n = 0; n < 8; ++n) columns[n] += row * right[n][k];
      continue;
    }
    for (int n = 0; n < 8; ++n) {
      Calc* column = reinterpret_cast<Calc*>(&columns[n]);
      for (int m = 0; m < M; ++m) {
        if constexpr (sizeof(Element) == 8) {
          column[m] = __builtin_fma(left[k][m], right[n][k], column[m]);
        } else {
          column[m] = column[m] + static_cast<Calc>(left[k][m] * right[n][k]);
        }
      }
    }
  }
  __builtin_memcpy(sum, columns, sizeof columns);
}

/// r = {d ..., a ..., b ..., c ...}. Register k-block * (M / 8) + row block of a holds rows of 8; b is stored by
/// columns.
template <class A, class B, class C, int M, int K>
void multiply(Warp& w, const MicroOp& op, u32 mask) {
  if (mask != w.live)
    raise_fault(Fault::Kind::kIllegalInstruction, "a warp-wide matrix operation is executed by a part of the warp", op,
                -1);
  using Calc = typename C::Calc;
  using Element = typename A::Calc;
  constexpr int kBlock = A::kPerRegister, kBlocks = K / kBlock, kRows = M / 8;
  constexpr int kAccumulators = C::template kRegisters<M>;
  const u32 *d = op.r, *a = d + kAccumulators, *b = a + kBlocks * kRows, *c = b + kBlocks;
  alignas(64) Element left[K][M], right[8][K];
  alignas(64) Calc sum[8][M];
  for (int k = 0; k < kBlocks; ++k) {
    for (int m = 0; m < kRows; ++m) {
      const auto* words = fragment<A>(w, a[k * kRows + m]);
      for (int column = 0; column < kBlock; ++column) {
        for (int row = 0; row < 8; ++row) left[k * kBlock + column][m * 8 + row] = A::at(words, row, column);
      }
    }
    const auto* words = fragment<B>(w, b[k]);
    for (int n = 0; n < 8; ++n) {
      for (int row = 0; row < kBlock; ++row) right[n][k * kBlock + row] = B::at(words, n, row);
    }
  }
  C::template load<M>(w, c, sum);
  accumulate<Calc, Element, M, K>(left, right, sum);
  C::template store<M>(w, d, sum);
}

/// Bits: population counts of a xor b, or a and b.
template <bool kAnd, int M, int K>
void multiply_bits(Warp& w, const MicroOp& op, u32 mask) {
  if (mask != w.live)
    raise_fault(Fault::Kind::kIllegalInstruction, "a warp-wide matrix operation is executed by a part of the warp", op,
                -1);
  using C = IntegerAccumulator<false>;
  constexpr int kBlocks = K / 128, kRows = M / 8, kAccumulators = C::template kRegisters<M>;
  const u32 *d = op.r, *a = d + kAccumulators, *b = a + kBlocks * kRows, *c = b + kBlocks;
  s64 sum[8][M];
  C::template load<M>(w, c, sum);
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < kBlocks; ++k) {
        const u32* x = w.lanes32(a[k * kRows + m / 8]) + m % 8 * 4;
        const u32* y = w.lanes32(b[k]) + n * 4;
        for (int word = 0; word < 4; ++word)
          sum[n][m] += __builtin_popcount(kAnd ? x[word] & y[word] : x[word] ^ y[word]);
      }
    }
  }
  C::template store<M>(w, d, sum);
}

// Keys: types of a and c; type of b and the shape in the variant, the rest in the flags.
constexpr u64 key(Type a, Type c, u8 m, u8 k_code, u8 flags = 0) {
  return op_key(Op::kMma, a, c, flags, static_cast<u8>(k_code | (m == 16 ? 0x80 : 0)));
}
constexpr u8 code(int k) {
  u8 n = 0;
  while ((1 << n) < k) ++n;
  return n;
}

#define TS_MMA(TA, TC, A, C, M, K) {key(Type::TA, Type::TC, M, code(K)), &multiply<A, A, C, M, K>}
#define TS_FLOAT_BOTH(TA, A, M, K) \
  TS_MMA(TA, kF32, A, FloatAccumulator, M, K), TS_MMA(TA, kF16, A, HalfAccumulator, M, K)
using E4M3 = SmallFloatElement<E4M3Format>;
using E5M2 = SmallFloatElement<E5M2Format>;
// b of another type than a: kUnsignedOther.
#define TS_FP8(TA, A, B, FLAGS, K)                                                             \
  {key(Type::TA, Type::kF32, 16, code(K), FLAGS), &multiply<A, B, FloatAccumulator, 16, K>}, { \
    key(Type::TA, Type::kF16, 16, code(K), FLAGS), &multiply<A, B, HalfAccumulator, 16, K>     \
  }
#define TS_INTEGER(TA, A, B, FLAGS, M, K)                                                                      \
  {key(Type::TA, Type::kS32, M, code(K), FLAGS), &multiply<A, B, IntegerAccumulator<false>, M, K>}, {          \
    key(Type::TA, Type::kS32, M, code(K), FLAGS | kSatFinite), &multiply<A, B, IntegerAccumulator<true>, M, K> \
  }
#define TS_INTEGERS(BITS, FLAGS, M, K)                                                                        \
  TS_INTEGER(kU8, TS_ARGS(IntegerElement<BITS, false>), TS_ARGS(IntegerElement<BITS, false>), FLAGS, M, K),   \
      TS_INTEGER(kU8, TS_ARGS(IntegerElement<BITS, false>), TS_ARGS(IntegerElement<BITS, true>),              \
                 (FLAGS) | kUnsignedOther, M, K),                                                             \
      TS_INTEGER(kS8, TS_ARGS(IntegerElement<BITS, true>), TS_ARGS(IntegerElement<BITS, true>), FLAGS, M, K), \
      TS_INTEGER(kS8, TS_ARGS(IntegerElement<BITS, true>), TS_ARGS(IntegerElement<BITS, false>),              \
                 (FLAGS) | kUnsignedOther, M, K)
#define TS_ARGS(...) __VA_ARGS__

// 4-bit elements share the 8-bit types' keys under kRelu, single bits under kNan.
constexpr OpEntry kEntries[] = {
    TS_FLOAT_BOTH(kF16, HalfElement, 16, 8),
    TS_FLOAT_BOTH(kF16, HalfElement, 16, 16),
    TS_MMA(kBF16, kF32, BfloatElement, FloatAccumulator, 16, 8),
    TS_MMA(kBF16, kF32, BfloatElement, FloatAccumulator, 16, 16),
    TS_MMA(kTF32, kF32, Tf32Element, FloatAccumulator, 16, 4),
    TS_MMA(kTF32, kF32, Tf32Element, FloatAccumulator, 16, 8),
    TS_MMA(kF64, kF64, DoubleElement, DoubleAccumulator, 8, 4),
    TS_MMA(kF64, kF64, DoubleElement, DoubleAccumulator, 16, 4),
    TS_MMA(kF64, kF64, DoubleElement, DoubleAccumulator, 16, 8),
    TS_MMA(kF64, kF64, DoubleElement, DoubleAccumulator, 16, 16),
    TS_FP8(kE4M3, E4M3, E4M3, 0, 16),
    TS_FP8(kE4M3, E4M3, E4M3, 0, 32),
    TS_FP8(kE4M3, E4M3, E5M2, kUnsignedOther, 16),
    TS_FP8(kE4M3, E4M3, E5M2, kUnsignedOther, 32),
    TS_FP8(kE5M2, E5M2, E5M2, 0, 16),
    TS_FP8(kE5M2, E5M2, E5M2, 0, 32),
    TS_FP8(kE5M2, E5M2, E4M3, kUnsignedOther, 16),
    TS_FP8(kE5M2, E5M2, E4M3, kUnsignedOther, 32),
    TS_INTEGERS(8, 0, 8, 16),
    TS_INTEGERS(8, 0, 16, 16),
    TS_INTEGERS(8, 0, 16, 32),
    TS_INTEGERS(4, kRelu, 8, 32),
    TS_INTEGERS(4, kRelu, 16, 32),
    TS_INTEGERS(4, kRelu, 16, 64),
    {key(Type::kB32, Type::kS32, 8, code(128), kNan), &multiply_bits<false, 8, 128>},
    {key(Type::kB32, Type::kS32, 8, code(128), kNan | kXorSign), &multiply_bits<true, 8, 128>},
    {key(Type::kB32, Type::kS32, 16, code(128), kNan), &multiply_bits<false, 16, 128>},
    {key(Type::kB32, Type::kS32, 16, code(128), kNan | kXorSign), &multiply_bits<true, 16, 128>},
    {key(Type::kB32, Type::kS32, 16, code(256), kNan), &multiply_bits<false, 16, 256>},
    {key(Type::kB32, Type::kS32, 16, code(256), kNan | kXorSign), &multiply_bits<true, 16, 256>},
};

}  // namespace

OpEntries matrix_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
