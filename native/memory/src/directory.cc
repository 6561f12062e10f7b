// SPDX-License-Identifier: Apache-2.0
#include "tessera/memory/directory.h"

#include <algorithm>

namespace tessera::memory {

void normalize(std::vector<Range>& ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.begin >= range.end; });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const Range& range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

void Directory::written(Range range, uint32_t device, Touch touch) {
  map_.set(range.begin, range.end, Replicas{static_cast<uint16_t>(1u << device), touch});
  update_quiet();
}

void Directory::copied(Range range, uint32_t device, Touch touch) {
  change(range, [&](Replicas replicas) {
    replicas.valid |= static_cast<uint16_t>(1u << device);
    replicas.touch = touch;
    return replicas;
  });
}

void Directory::forget(Range range) {
  map_.set(range.begin, range.end, Replicas{});
  update_quiet();
}

void Directory::dropped(Range range, uint32_t device) {
  change(range, [&](Replicas replicas) {
    replicas.valid &= static_cast<uint16_t>(~(1u << device));
    return replicas;
  });
}

uint64_t Directory::lost(uint32_t device) {
  uint64_t bytes = 0;
  std::vector<Range> held;
  for_each([&](Range range, const Replicas& replicas) {
    if (replicas.valid_on(device) || (!replicas.touch.none() && replicas.touch.worker == device)) held.push_back(range);
  });
  for (const Range& range : held) {
    change(range, [&](Replicas replicas) {
      replicas.valid &= static_cast<uint16_t>(~(1u << device));
      if (replicas.touch.worker == device) replicas.touch = Touch{};
      if (replicas.valid == 0) {
        bytes += range.size();
        replicas.valid = 1u << kHome;
      }
      return replicas;
    });
  }
  return bytes;
}

}  // namespace tessera::memory
