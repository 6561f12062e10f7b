// SPDX-License-Identifier: Apache-2.0
// wmma: loading, storing and multiplying fragments.
#include "../wmma.h"
#include "elements.h"
#include "map.h"
#include "resolve.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

void require_whole_warp(Warp& w, const MicroOp& op, u32 mask) {
  if (mask != w.live)
    raise_fault(Fault::Kind::kIllegalInstruction, "a warp-wide matrix operation is executed by a part of the warp", op,
                -1);
}

/// Bytes of value `k` of a lane, wherever its register is.
TS_INLINE u8* value_at(Warp& w, const u32* refs, u32 bytes, int lane, u32 k) {
  const u32 width = bytes == 8 ? 8 : 4;
  const u32 at = k * bytes;
  return w.at(refs[at / width]) + static_cast<u32>(lane) * width + at % width;
}

/// Resolves the addresses of value `k` of every lane.
TS_INLINE void resolve_value(Warp& w, const MicroOp& op, const FragmentShape& f, u64 base, u32 stride, u32 per_lane,
                             u32 k, AccessVerb verb, Resolved& at) {
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 element = lane * per_lane + k, row = element / f.columns, column = element % f.columns;
    at.host[lane] = base + u64{f.by_columns ? column * stride + row : row * stride + column} * f.bytes;
  }
  resolve_addresses(w, op, kAllLanes, memory_space(op.imm), f.bytes, f.bytes, verb, at);
}

TS_INLINE u64 base_address(Warp& w, const MicroOp& op, u32 ref) {
  const u64 base = (op.imm & kNarrowAddress) != 0 ? w.lanes32(ref)[0] : w.lanes64(ref)[0];
  return base + static_cast<u64>(memory_offset(op.imm));
}

/// r = {registers ..., address, stride, shape}
void load_fragment(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  const u32 registers = memory_extra(op.imm);
  const u32* tail = op.r + registers;
  const FragmentShape f = unpack_fragment(w.lanes32(tail[2])[0]);
  const u32 per_lane = f.rows * f.columns / kLanes, per_register = f.bytes == 8 ? 1 : 4 / f.bytes;
  Resolved at;
  for (u32 k = 0; k < per_lane; ++k) {
    resolve_value(w, op, f, base_address(w, op, tail[0]), w.lanes32(tail[1])[0], per_lane, k, AccessVerb::kRead, at);
    for (int lane = 0; lane < kLanes; ++lane) {
      __builtin_memcpy(value_at(w, op.r, f.bytes, lane, k), reinterpret_cast<const void*>(at.host[lane]), f.bytes);
    }
  }
  const u32 filled = per_lane / per_register;
  for (u32 r = filled; r < registers; ++r) __builtin_memcpy(w.at(op.r[r]), w.at(op.r[r % filled]), 128);
}

/// r = {address, stride, shape, registers ...}
void store_fragment(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  const FragmentShape f = unpack_fragment(w.lanes32(op.r[2])[0]);
  const u32 per_lane = f.rows * f.columns / kLanes;
  Resolved at;
  for (u32 k = 0; k < per_lane; ++k) {
    resolve_value(w, op, f, base_address(w, op, op.r[0]), w.lanes32(op.r[1])[0], per_lane, k, AccessVerb::kWrite, at);
    for (int lane = 0; lane < kLanes; ++lane) {
      __builtin_memcpy(reinterpret_cast<void*>(at.host[lane]), value_at(w, op.r + 3, f.bytes, lane, k), f.bytes);
    }
  }
}

/// An element of a fragment of `columns` columns as a number.
template <class E, int kBits>
TS_INLINE typename E::Calc element(Warp& w, const u32* refs, u32 per_lane, u32 e) {
  const u32 lane = e / per_lane, k = e % per_lane;
  if constexpr (kBits == 64) {
    return E::at(w.lanes64(refs[k]) + lane, 0, 0);
  } else {
    constexpr u32 kPerRegister = 32 / kBits;
    return E::at(w.lanes32(refs[k / kPerRegister]) + lane, 0, static_cast<int>(k % kPerRegister));
  }
}

struct FloatValues {
  using Calc = f32;
  static TS_INLINE f32 get(Warp& w, const u32* refs, u32 per_lane, u32 e) {
    return f32_of(w.lanes32(refs[e % per_lane])[e / per_lane]);
  }
  static TS_INLINE void set(Warp& w, const u32* refs, u32 per_lane, u32 e, f32 v) {
    w.lanes32(refs[e % per_lane])[e / per_lane] = bits_of(canonical(v));
  }
};
struct HalfValues {
  using Calc = f32;
  static TS_INLINE f32 get(Warp& w, const u32* refs, u32 per_lane, u32 e) {
    return element<HalfElement, 16>(w, refs, per_lane, e);
  }
  static TS_INLINE void set(Warp& w, const u32* refs, u32 per_lane, u32 e, f32 v) {
    const u32 k = e % per_lane;
    u32& word = w.lanes32(refs[k / 2])[e / per_lane];
    const int shift = static_cast<int>(k % 2) * 16;
    word = (word & ~(0xffffu << shift)) | static_cast<u32>(float_to_half(v)) << shift;
  }
};
template <bool kSaturate>
struct IntegerValues {
  using Calc = s64;
  static TS_INLINE s64 get(Warp& w, const u32* refs, u32 per_lane, u32 e) {
    return static_cast<s32>(w.lanes32(refs[e % per_lane])[e / per_lane]);
  }
  static TS_INLINE void set(Warp& w, const u32* refs, u32 per_lane, u32 e, s64 v) {
    if (kSaturate) v = v > 0x7fffffffLL ? 0x7fffffffLL : v < -0x80000000LL ? -0x80000000LL : v;
    w.lanes32(refs[e % per_lane])[e / per_lane] = static_cast<u32>(v);
  }
};
struct DoubleValues {
  using Calc = f64;
  static TS_INLINE f64 get(Warp& w, const u32* refs, u32 per_lane, u32 e) {
    return f64_of(w.lanes64(refs[e % per_lane])[e / per_lane]);
  }
  static TS_INLINE void set(Warp& w, const u32* refs, u32 per_lane, u32 e, f64 v) {
    w.lanes64(refs[e % per_lane])[e / per_lane] = v == v ? bits_of(v) : kNanF64;
  }
};

/// r = {d ..., a ..., b ..., c ...}; imm: M, N, K and the numbers of registers of d, a and b, a byte each.
template <class E, int kBits, class D, class C>
void multiply_fragments(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  using Element = typename E::Calc;
  using Calc = typename D::Calc;
  const u32 m = op.imm & 0xff, n = op.imm >> 8 & 0xff, k = op.imm >> 16 & 0xff;
  const u32 *d = op.r, *a = d + (op.imm >> 24 & 0xff), *b = a + (op.imm >> 32 & 0xff), *c = b + (op.imm >> 40 & 0xff);
  alignas(64) Element left[512], right[512];
  alignas(64) Calc sum[256];
  for (u32 e = 0; e < m * k; ++e) left[e] = element<E, kBits>(w, a, m * k / kLanes, e);
  for (u32 e = 0; e < k * n; ++e) right[e] = element<E, kBits>(w, b, k * n / kLanes, e);
  for (u32 e = 0; e < m * n; ++e) sum[e] = C::get(w, c, m * n / kLanes, e);
  for (u32 row = 0; row < m; ++row) {
    for (u32 step = 0; step < k; ++step) {
      const Element factor = left[row * k + step];
      for (u32 column = 0; column < n; ++column) {
        if constexpr (kBits == 64) {
          sum[row * n + column] = __builtin_fma(factor, right[step * n + column], sum[row * n + column]);
        } else {
          sum[row * n + column] += static_cast<Calc>(factor * right[step * n + column]);
        }
      }
    }
  }
  for (u32 e = 0; e < m * n; ++e) D::set(w, d, m * n / kLanes, e, sum[e]);
}

#define TS_WMMA(TA, TD, TC, FLAGS, E, BITS, D, C)                                                    \
  {op_key(Op::kMma, Type::TA, Type::TD, static_cast<u8>((FLAGS) | kFtz), static_cast<u8>(Type::TC)), \
   &multiply_fragments<E, BITS, D, C>}
#define TS_ARGS(...) __VA_ARGS__
#define TS_WMMA_INTEGER(TA, E)                                                           \
  TS_WMMA(TA, kS32, kS32, 0, TS_ARGS(E), 8, IntegerValues<false>, IntegerValues<false>), \
      TS_WMMA(TA, kS32, kS32, kSatFinite, TS_ARGS(E), 8, IntegerValues<true>, IntegerValues<true>)

// kFtz tells these keys from those of mma.
constexpr OpEntry kEntries[] = {
    {op_key(Op::kWmmaLoad), &load_fragment},
    {op_key(Op::kWmmaStore), &store_fragment},
    TS_WMMA(kF16, kF32, kF32, 0, HalfElement, 16, FloatValues, FloatValues),
    TS_WMMA(kF16, kF16, kF16, 0, HalfElement, 16, HalfValues, HalfValues),
    TS_WMMA(kF16, kF32, kF16, 0, HalfElement, 16, FloatValues, HalfValues),
    TS_WMMA(kF16, kF16, kF32, 0, HalfElement, 16, HalfValues, FloatValues),
    TS_WMMA(kBF16, kF32, kF32, 0, BfloatElement, 16, FloatValues, FloatValues),
    TS_WMMA(kTF32, kF32, kF32, 0, Tf32Element, 32, FloatValues, FloatValues),
    TS_WMMA(kF64, kF64, kF64, 0, DoubleElement, 64, DoubleValues, DoubleValues),
    TS_WMMA_INTEGER(kU8, TS_ARGS(IntegerElement<8, false>)),
    TS_WMMA_INTEGER(kS8, TS_ARGS(IntegerElement<8, true>)),
};

}  // namespace

OpEntries fragment_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
