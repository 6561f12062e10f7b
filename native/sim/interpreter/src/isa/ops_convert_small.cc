// SPDX-License-Identifier: Apache-2.0
// cvt of packed pairs: halves, 8-, 6- and 4-bit floats, scale factors, and cvt.pack.
#include "map.h"
#include "numerics.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <u32 kSign, u8 kFlags>
TS_INLINE u32 relu_code(u32 code) {
  return (kFlags & kRelu) != 0 && (code & kSign) != 0 ? 0u : code;
}

/// d = {a, b}: the first source becomes the upper half.
template <class F, Rounding kMode, u8 kFlags>
TS_INLINE u32 pair_to_halves(f32 a, f32 b) {
  constexpr bool kFinite = (kFlags & kSatFinite) != 0;
  return relu_code<0x8000, kFlags>(encode<F, kMode, kFinite>(a)) << 16 |
         relu_code<0x8000, kFlags>(encode<F, kMode, kFinite>(b));
}

/// Small formats are always saturated to finite. A code takes `kSpacing` bits in the pair.
template <class F, u8 kFlags>
TS_INLINE u16 pair_to_small(f32 a, f32 b) {
  constexpr int kSpacing = F::kSignShift == 3 ? 4 : 8;
  const u32 high = relu_code<1u << F::kSignShift, kFlags>(encode<F, Rounding::kNearestEven, true>(a));
  const u32 low = relu_code<1u << F::kSignShift, kFlags>(encode<F, Rounding::kNearestEven, true>(b));
  return static_cast<u16>(high << kSpacing | low);
}
template <class F, u8 kFlags, f32 (*kDecode)(u16)>
TS_INLINE u16 halves_to_small(u32 a) {
  return pair_to_small<F, kFlags>(kDecode(static_cast<u16>(a >> 16)), kDecode(static_cast<u16>(a)));
}

template <class F, class Target, u8 kFlags>
TS_INLINE u32 small_to_halves(u16 a) {
  constexpr int kSpacing = F::kSignShift == 3 ? 4 : 8;
  constexpr u32 kMask = (1u << (F::kSignShift + 1)) - 1;
  const u32 low = encode<Target, Rounding::kNearestEven>(decode<F>(a & kMask));
  const u32 high = encode<Target, Rounding::kNearestEven>(decode<F>(a >> kSpacing & kMask));
  return relu_code<0x8000, kFlags>(low) | relu_code<0x8000, kFlags>(high) << 16;
}

// ue8m0: a power of two, 2^(code - 127); 0xff is NaN.
template <Rounding kMode, u8 kFlags>
TS_INLINE u32 to_scale(f32 a) {
  const u32 bits = bits_of(a) & 0x7fffffffu;
  if (bits > 0x7f800000u) return 0xff;
  const u32 exponent = bits >> 23, up = kMode == Rounding::kUp && (bits & 0x7fffffu) != 0 ? 1u : 0u;
  const u32 code = exponent + up;
  return code >= 0xff ? ((kFlags & kSatFinite) != 0 ? 0xfeu : 0xffu) : code;
}
template <Rounding kMode, u8 kFlags>
TS_INLINE u16 pair_to_scales(f32 a, f32 b) {
  return static_cast<u16>(to_scale<kMode, kFlags>(a) << 8 | to_scale<kMode, kFlags>(b));
}
template <Rounding kMode, u8 kFlags>
TS_INLINE u16 bfloats_to_scales(u32 a) {
  return pair_to_scales<kMode, kFlags>(bfloat_to_float(static_cast<u16>(a >> 16)),
                                       bfloat_to_float(static_cast<u16>(a)));
}
TS_INLINE u32 scale_to_bfloat(u32 code) { return code == 0xff ? 0x7fffu : code == 0 ? 0x40u : code << 7; }
TS_INLINE u32 scales_to_bfloats(u16 a) { return scale_to_bfloat(a & 0xff) | scale_to_bfloat(a >> 8) << 16; }

// cvt.pack: two saturated integers, above them what c had below.
template <int kWidth, bool kSigned>
TS_INLINE u32 clamp_to(s32 a) {
  const s64 low = kSigned ? -(s64{1} << (kWidth - 1)) : 0;
  const s64 high = kSigned ? (s64{1} << (kWidth - 1)) - 1 : (s64{1} << kWidth) - 1;
  const s64 value = a < low ? low : a > high ? high : a;
  return static_cast<u32>(value) & ((u32{1} << kWidth) - 1);
}
template <int kWidth, bool kSigned>
TS_INLINE u32 pack_clamped(s32 a, s32 b, u32 c) {
  const u32 pair = clamp_to<kWidth, kSigned>(a) << kWidth | clamp_to<kWidth, kSigned>(b);
  return kWidth == 16 ? pair : c << (2 * kWidth & 31) | pair;
}

#define TS_PAIR(DT, F, MODE, FLAGS) \
  {op_key(Op::kCvtPair, Type::DT, Type::kF32, FLAGS, static_cast<u8>(MODE)), map<&pair_to_halves<F, MODE, FLAGS>>}
#define TS_PAIR_MODE(DT, F, MODE)                                                         \
  TS_PAIR(DT, F, MODE, 0), TS_PAIR(DT, F, MODE, kRelu), TS_PAIR(DT, F, MODE, kSatFinite), \
      TS_PAIR(DT, F, MODE, kRelu | kSatFinite)
#define TS_SMALL(DT, F, FLAGS)                                                                                \
  {op_key(Op::kCvtPair, Type::DT, Type::kF32, kSatFinite | FLAGS), map<&pair_to_small<F, FLAGS>>},            \
      {op_key(Op::kCvtPair, Type::DT, Type::kF16x2, kSatFinite | FLAGS),                                      \
       map<&halves_to_small<F, FLAGS, &half_to_float>>},                                                      \
      {op_key(Op::kCvtPair, Type::DT, Type::kBF16x2, kSatFinite | FLAGS),                                     \
       map<&halves_to_small<F, FLAGS, &bfloat_to_float>>},                                                    \
      {op_key(Op::kCvtExpand, Type::kF16x2, Type::DT, FLAGS), map<&small_to_halves<F, HalfFormat, FLAGS>>}, { \
    op_key(Op::kCvtExpand, Type::kBF16x2, Type::DT, FLAGS), map<&small_to_halves<F, BfloatFormat, FLAGS>>     \
  }
#define TS_SMALL_BOTH(DT, F) TS_SMALL(DT, F, 0), TS_SMALL(DT, F, kRelu)
#define TS_SCALE(MODE, FLAGS)                                                                                          \
  {op_key(Op::kCvtPair, Type::kUE8M0x2, Type::kF32, FLAGS, static_cast<u8>(MODE)), map<&pair_to_scales<MODE, FLAGS>>}, \
  {                                                                                                                    \
    op_key(Op::kCvtPair, Type::kUE8M0x2, Type::kBF16x2, FLAGS, static_cast<u8>(MODE)),                                 \
        map<&bfloats_to_scales<MODE, FLAGS>>                                                                           \
  }
#define TS_PACK(WIDTH)                                                                           \
  {op_key(Op::kCvtPack, Type::kU32, Type::kNone, 0, WIDTH), map<&pack_clamped<WIDTH, false>>}, { \
    op_key(Op::kCvtPack, Type::kS32, Type::kNone, 0, WIDTH), map<&pack_clamped<WIDTH, true>>     \
  }

constexpr OpEntry kEntries[] = {
    TS_PAIR_MODE(kF16x2, HalfFormat, Rounding::kNearestEven),
    TS_PAIR_MODE(kF16x2, HalfFormat, Rounding::kZero),
    TS_PAIR_MODE(kBF16x2, BfloatFormat, Rounding::kNearestEven),
    TS_PAIR_MODE(kBF16x2, BfloatFormat, Rounding::kZero),
    TS_SMALL_BOTH(kE4M3x2, E4M3Format),
    TS_SMALL_BOTH(kE5M2x2, E5M2Format),
    TS_SMALL_BOTH(kE2M3x2, E2M3Format),
    TS_SMALL_BOTH(kE3M2x2, E3M2Format),
    TS_SMALL_BOTH(kE2M1x2, E2M1Format),
    TS_SCALE(Rounding::kZero, 0),
    TS_SCALE(Rounding::kZero, kSatFinite),
    TS_SCALE(Rounding::kUp, 0),
    TS_SCALE(Rounding::kUp, kSatFinite),
    {op_key(Op::kCvtExpand, Type::kBF16x2, Type::kUE8M0x2), map<&scales_to_bfloats>},
    TS_PACK(16),
    TS_PACK(8),
    TS_PACK(4),
    TS_PACK(2),
};

}  // namespace

OpEntries convert_small_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
