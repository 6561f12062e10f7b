// SPDX-License-Identifier: Apache-2.0
// How lowering encodes a memory operation in MicroOp::imm.
#pragma once

#include "scalar.h"

namespace tessera::sim {

enum class MemorySpace : u8 {
  kGlobal,  // and .const
  kShared,  // offsets within the block's (or, with a rank, the cluster's) shared memory
  kLocal,   // offsets within the lane's local memory
  kGeneric,
  kParam,  // offsets within the kernel's parameter block
  kFrame,  // an offset from the current frame's local memory: no address register
};

constexpr int kSpaceShift = 48;
constexpr u64 kNarrowAddress = u64{1} << 52;  // the address register has 32 bits
constexpr u64 kMemoryExtraShift = 56;         // eight bits for the operation's own use

constexpr u64 memory_imm(MemorySpace space, s64 offset, bool narrow = false, u8 extra = 0) {
  return (static_cast<u64>(offset) & ((u64{1} << kSpaceShift) - 1)) | u64{static_cast<u8>(space)} << kSpaceShift |
         (narrow ? kNarrowAddress : 0) | u64{extra} << kMemoryExtraShift;
}
constexpr s64 memory_offset(u64 imm) { return static_cast<s64>(imm << (64 - kSpaceShift)) >> (64 - kSpaceShift); }
constexpr MemorySpace memory_space(u64 imm) { return static_cast<MemorySpace>(imm >> kSpaceShift & 15); }
constexpr u8 memory_extra(u64 imm) { return static_cast<u8>(imm >> kMemoryExtraShift); }

}  // namespace tessera::sim
