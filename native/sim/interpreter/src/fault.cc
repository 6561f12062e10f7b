// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

#include <cstdio>

namespace tessera::sim {

void raise_fault(Fault::Kind kind, const char* what, const MicroOp& op, int lane) {
  throw FaultError{kind, what, &op, lane};
}

void raise_illegal_address(const MicroOp& op, int lane, u64 address, u32 bytes, AccessVerb verb, const char* space) {
  static constexpr const char* kVerbs[] = {"read", "write", "atomic access"};
  char text[160];
  std::snprintf(text, sizeof text, "illegal %s of %u bytes at %s address 0x%llx", kVerbs[static_cast<int>(verb)], bytes,
                space, static_cast<unsigned long long>(address));
  throw FaultError{Fault::Kind::kIllegalAddress, text, &op, lane};
}

void raise_misaligned(const MicroOp& op, int lane, u64 address, u32 alignment) {
  char text[120];
  std::snprintf(text, sizeof text, "address 0x%llx is not a multiple of %u", static_cast<unsigned long long>(address),
                alignment);
  throw FaultError{Fault::Kind::kMisaligned, text, &op, lane};
}

}  // namespace tessera::sim
