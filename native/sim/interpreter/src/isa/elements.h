// SPDX-License-Identifier: Apache-2.0
// Elements of matrices, as registers hold them. A 32-bit register of a fragment,
// seen over the warp, is 8 rows of 4 words: 128 bits of one row.
#pragma once

#include "numerics.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

/// kPerRegister: elements of a row that one register holds over four lanes.
struct HalfElement {
  using Calc = f32;
  static constexpr int kPerRegister = 8;
  static TS_INLINE f32 at(const u32* words, int row, int column) {
    return half_to_float(static_cast<u16>(words[row * 4 + column / 2] >> (16 * (column & 1))));
  }
};
struct BfloatElement {
  using Calc = f32;
  static constexpr int kPerRegister = 8;
  static TS_INLINE f32 at(const u32* words, int row, int column) {
    return bfloat_to_float(static_cast<u16>(words[row * 4 + column / 2] >> (16 * (column & 1))));
  }
};
struct Tf32Element {
  using Calc = f32;
  static constexpr int kPerRegister = 4;
  static TS_INLINE f32 at(const u32* words, int row, int column) {
    return f32_of(words[row * 4 + column] & 0xffffe000u);
  }
};
template <class F>
struct SmallFloatElement {
  using Calc = f32;
  static constexpr int kPerRegister = 16;
  static TS_INLINE f32 at(const u32* words, int row, int column) {
    return decode<F>(words[row * 4 + column / 4] >> (8 * (column & 3)) & 0xff);
  }
};
template <int kBits, bool kSigned>
struct IntegerElement {
  using Calc = s32;
  static constexpr int kPerRegister = 128 / kBits;
  static TS_INLINE s32 at(const u32* words, int row, int column) {
    constexpr int kPerWord = 32 / kBits;
    const u32 field = words[row * 4 + column / kPerWord] << (32 - kBits - kBits * (column % kPerWord));
    return kSigned ? static_cast<s32>(field) >> (32 - kBits) : static_cast<s32>(field >> (32 - kBits));
  }
};
struct DoubleElement {
  using Calc = f64;
  static constexpr int kPerRegister = 4;
  static TS_INLINE f64 at(const u64* words, int row, int column) { return f64_of(words[row * 4 + column]); }
};

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
