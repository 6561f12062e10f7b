// SPDX-License-Identifier: Apache-2.0
// How a handler ends the launch: it throws, and Kernel::run turns the exception
// into an outcome. Faults are rare, so the usual path pays nothing for them.
#pragma once

#include <string>

#include "micro_op.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

struct FaultError {
  Fault::Kind kind;
  std::string what;   // without kernel, line and thread: the executor adds those
  const MicroOp* op;  // null: not tied to one operation
  int lane;           // -1: the whole warp
};

enum class AccessVerb : u8 { kRead, kWrite, kAtomic };

[[noreturn]] void raise_fault(Fault::Kind kind, const char* what, const MicroOp& op, int lane);
[[noreturn]] void raise_illegal_address(const MicroOp& op, int lane, u64 address, u32 bytes, AccessVerb verb,
                                        const char* space);
[[noreturn]] void raise_misaligned(const MicroOp& op, int lane, u64 address, u32 alignment);

}  // namespace tessera::sim
