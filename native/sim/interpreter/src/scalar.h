// SPDX-License-Identifier: Apache-2.0
// Short names for the machine types that PTX computes with. Half-precision and
// packed values are distinct structs, so that an operation's C++ signature says
// which registers it reads and writes.
#pragma once

#include <cstdint>

namespace tessera::sim {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

struct u128 {
  u64 low, high;
};

constexpr int kLanes = 32;
constexpr u32 kAllLanes = 0xffffffffu;

}  // namespace tessera::sim
