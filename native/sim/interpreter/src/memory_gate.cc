// SPDX-License-Identifier: Apache-2.0
#include "memory_gate.h"

namespace tessera::sim {

bool MemoryGate::ask(u64 begin, u64 end, bool write) {
  const AddressSpace::Extent extent = memory_.find(begin);
  if (extent.begin == extent.end || begin < extent.begin || end > extent.end) return false;
  ways_[next_way_] = extent;
  next_way_ = (next_way_ + 1) % std::size(ways_);
  return !write || extent.writable;
}

}  // namespace tessera::sim
