// SPDX-License-Identifier: Apache-2.0
// Directed rounding: a handler run under another rounding mode of the SSE unit.
// The handlers read operands from memory and write results to memory between the
// two changes, so the compiler cannot move arithmetic out of the bracket.
#pragma once

#include "map.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

TS_INLINE u32 rounding_control(Rounding mode) {
  return mode == Rounding::kZero ? 0x6000u : mode == Rounding::kUp ? 0x4000u : mode == Rounding::kDown ? 0x2000u : 0u;
}

template <Handler kHandler, Rounding kMode>
void rounded(Warp& w, const MicroOp& op, u32 mask) {
  u32 before;
  asm volatile("stmxcsr %0" : "=m"(before)::"memory");
  const u32 inside = (before & ~0x6000u) | rounding_control(kMode);
  asm volatile("ldmxcsr %0" ::"m"(inside) : "memory");
  kHandler(w, op, mask);
  asm volatile("ldmxcsr %0" ::"m"(before) : "memory");
}

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
