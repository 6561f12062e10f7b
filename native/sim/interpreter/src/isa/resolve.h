// SPDX-License-Identifier: Apache-2.0
// From an operation's addresses to host pointers, with every check made.
#pragma once

#include "../fault.h"
#include "../memory_op.h"
#include "../warp.h"

namespace tessera::sim::TESSERA_SIM_ISA {

struct Resolved {
  alignas(64) u64 host[kLanes];  // inactive lanes repeat an active one's
  bool contiguous = false;       // all 32 lanes active, each right after the one before
  bool global = false;           // every lane's access is to global memory
};

/// Computes the lanes' addresses from register `ref` (unused for kFrame) and the
/// operation's offset, and checks `bytes` at each. Throws FaultError.
void resolve(Warp& w, const MicroOp& op, u32 mask, u32 ref, u32 bytes, AccessVerb verb, Resolved& out);

/// The same for addresses already computed, in `out.host`, with no offset.
void resolve_addresses(Warp& w, const MicroOp& op, u32 mask, MemorySpace space, u32 bytes, u32 alignment,
                       AccessVerb verb, Resolved& out);

}  // namespace tessera::sim::TESSERA_SIM_ISA
