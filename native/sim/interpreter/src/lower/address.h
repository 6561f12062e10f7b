// SPDX-License-Identifier: Apache-2.0
// The address operand of a memory instruction.
#pragma once

#include "../memory_op.h"
#include "function_compiler.h"

namespace tessera::sim {

struct Address {
  MemorySpace space = MemorySpace::kGeneric;
  Ref ref = 0;  // unused for kFrame, and for kParam where `fixed`
  s64 offset = 0;
  bool narrow = false;  // a 32-bit register
  bool fixed = false;   // kParam at `offset`

  u64 imm(u8 extra = 0) const { return memory_imm(space, offset, narrow, extra); }
};

/// Takes the words of a state space; generic when there is none.
MemorySpace take_space(FunctionCompiler& c, Modifiers& modifiers);

Address read_address(FunctionCompiler& c, const ptx::Operand& operand, MemorySpace space);

/// The address as one 64-bit value, for operations that take several addresses.
Ref flat_address(FunctionCompiler& c, const Address& address);

/// Takes ordering, scope and caching words, none of which changes what is computed
/// here. True when the access has to be one that other threads see whole.
bool take_ordering(Modifiers& modifiers);

}  // namespace tessera::sim
