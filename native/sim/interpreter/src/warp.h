// SPDX-License-Identifier: Apache-2.0
// What an operation's handler can see: its warp, the block around it, and the
// services of the launch.
#pragma once

#include "isa.h"
#include "memory_gate.h"
#include "micro_op.h"

namespace tessera::sim {

class LaunchServices;

/// One resident block, as seen by its warps.
struct BlockContext {
  u8* shared = nullptr;
  u32 shared_bytes = 0;  // static and dynamic
  u32 dynamic_shared_base = 0, dynamic_shared_bytes = 0;
  u32 ntid[3] = {}, ctaid[3] = {}, nctaid[3] = {};
  u32 cluster_ctaid[3] = {}, cluster_nctaid[3] = {1, 1, 1}, cluster_id[3] = {}, nclusters[3] = {};
  u32 cluster_rank = 0, cluster_size = 1;
  BlockContext* const* cluster = nullptr;  // by rank
  u64 grid_id = 0;
  u32 warp_count = 0;
  u32 sm_id = 0, sm_count = 1;
  const u8* parameters = nullptr;
  u32 parameter_bytes = 0;
};

struct Warp {
  u8* base[2] = {};     // registers of the current frame; the program's constants
  u32 live = 0;         // lanes that exist and have not exited
  u32 index = 0;        // in the block
  u32 local_base = 0;   // of the current frame, within each lane's local memory
  u32 local_bytes = 0;  // of one lane; lanes lie one after another
  u8* local = nullptr;
  bool yield = false;  // a handler asks that other warps run first
  BlockContext* block = nullptr;
  MemoryGate* memory = nullptr;
  LaunchServices* services = nullptr;
  alignas(64) u32 tid[3][kLanes] = {};

  TS_INLINE u8* at(u32 ref) const { return base[ref & 1] + (ref & ~1u); }
  TS_INLINE u16* lanes16(u32 ref) const { return reinterpret_cast<u16*>(at(ref)); }
  TS_INLINE u32* lanes32(u32 ref) const { return reinterpret_cast<u32*>(at(ref)); }
  TS_INLINE u64* lanes64(u32 ref) const { return reinterpret_cast<u64*>(at(ref)); }
  TS_INLINE u128* lanes128(u32 ref) const { return reinterpret_cast<u128*>(at(ref)); }
  TS_INLINE u32& predicate(u32 ref) const { return *reinterpret_cast<u32*>(at(ref)); }
};

}  // namespace tessera::sim
