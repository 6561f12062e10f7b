// SPDX-License-Identifier: Apache-2.0
// The form in which a function is executed: one MicroOp per warp-wide operation,
// with a handler chosen at load for its operation, types and modifiers.
//
// An operand is a reference: a byte offset of a register slot in the frame, or,
// with bit 0 set, of a broadcast value in the program's constant pool. A slot
// holds 32 lanes: 64 bytes for 16-bit registers, 128 for 32-bit, 256 for 64-bit,
// 512 for 128-bit ones. A predicate is one 32-bit word, a bit per lane.
#pragma once

#include "scalar.h"

namespace tessera::sim {

struct Warp;
struct MicroOp;

/// `mask` is never 0. Lanes outside `mask` keep their registers, except that a
/// handler may write lanes that have exited.
using Handler = void (*)(Warp& warp, const MicroOp& op, u32 mask);

constexpr u32 kNoGuard = 0xffffffffu;

struct MicroOp {
  Handler run = nullptr;
  u64 imm = 0;             // a constant whose meaning the handler knows: an offset, a mode
  const u32* r = nullptr;  // destinations first, then sources
  u32 guard = kNoGuard;    // predicate reference
  u8 guard_negated = 0;
  u8 cost_kind = 0;  // enum CostKind, for guarded operations
  u16 cost_weight = 0;
};

/// What one lane's execution of an operation adds to the launch's work.
enum CostKind : u8 {
  kCostNone,
  kCostInteger,
  kCostF32,
  kCostF64,
  kCostF16,
  kLaneCostKinds,
  // per warp instruction, not per lane:
  kCostTensorF16 = kLaneCostKinds,
  kCostTensorBf16,
  kCostTensorTf32,
  kCostTensorF64,
  kCostTensorI8,
  kCostKinds
};

}  // namespace tessera::sim
