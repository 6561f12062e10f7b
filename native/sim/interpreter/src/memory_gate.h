// SPDX-License-Identifier: Apache-2.0
// Every global access of a launch passes here: the address space says what may
// be touched, its last answers are kept, and the tracker notes what was.
#pragma once

#include "access_tracker.h"
#include "isa.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

class MemoryGate {
 public:
  MemoryGate(const AddressSpace& memory, bool record) : tracker(record), memory_(memory) {}

  /// Whether [begin, end) lies in one extent that allows the access.
  TS_INLINE bool allows(u64 begin, u64 end, bool write) {
    for (const AddressSpace::Extent& way : ways_) {
      if (begin >= way.begin && end <= way.end && (!write || way.writable)) [[likely]]
        return true;
    }
    return ask(begin, end, write);
  }

  AccessTracker tracker;
  u64 bytes_read = 0, bytes_written = 0;  // as requested by lanes

 private:
  bool ask(u64 begin, u64 end, bool write);

  const AddressSpace& memory_;
  AddressSpace::Extent ways_[8] = {};
  u32 next_way_ = 0;
};

// Windows of the generic address space. They lie above every address that user
// space of a 48-bit machine can map, and below 2^49 as on the hardware.
constexpr int kWindowShift = 46;
constexpr u64 kSharedWindow = u64{4} << kWindowShift;
constexpr u64 kParamWindow = u64{5} << kWindowShift;
constexpr u64 kLocalWindow = u64{6} << kWindowShift;
constexpr u64 kCodeWindow = u64{7} << kWindowShift;  // function pointers: not memory
constexpr u64 kWindowOffsetMask = (u64{1} << kWindowShift) - 1;

// A shared address of another block of the cluster carries that block's rank + 1 above the offset.
constexpr int kClusterRankShift = 24;
constexpr u64 kSharedOffsetMask = (u64{1} << kClusterRankShift) - 1;

}  // namespace tessera::sim
