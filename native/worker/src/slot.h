// SPDX-License-Identifier: Apache-2.0
// The addresses of one program: [base, base + size), whole granules.
#pragma once

#include <cstdint>

#include "tessera/protocol/channel.h"

namespace tessera::worker {

struct Slot {
  uint64_t base = 0, size = 0;

  uint64_t end() const { return base + size; }
  uint64_t granules() const { return size / TS_GRANULE; }
  bool contains(uint64_t begin, uint64_t stop) const { return begin >= base && begin < stop && stop <= end(); }
  bool overlaps(const Slot& other) const { return base < other.end() && other.base < end(); }
  uint64_t address_of(uint64_t granule) const { return base + granule * TS_GRANULE; }

  /// Granules touched by [begin, stop), which lies in the slot.
  struct Granules {
    uint64_t first, end;
  };
  Granules touched(uint64_t begin, uint64_t stop) const {
    return {(begin - base) / TS_GRANULE, (stop - base + TS_GRANULE - 1) / TS_GRANULE};
  }
  bool aligned(uint64_t begin, uint64_t stop) const {
    return (begin - base) % TS_GRANULE == 0 && (stop - base) % TS_GRANULE == 0;
  }
};

}  // namespace tessera::worker
