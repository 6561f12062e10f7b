// SPDX-License-Identifier: Apache-2.0
// Device memory of one device for cuMemAlloc, pools and module variables: a
// sparse file mapped once at the device's addresses. Pages cost memory when they
// are touched, and are given back when freed. A file, so that legacy IPC can map
// the same bytes into another process.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace tessera::sim {

class Arena {
 public:
  /// Addresses lie around 0x7e0000000000, apart from where programs ask cuMemAddressReserve for fixed ones.
  Arena(int physical_ordinal, uint64_t device_bytes);
  ~Arena() = delete;  // lives as long as the process

  /// 0 when no address range is left. Neighbours are kept apart by a gap, so that a stray access is seen.
  uint64_t allocate(uint64_t size, uint64_t alignment);
  void free(uint64_t address, uint64_t size);

  int file() const { return file_; }
  uint64_t base() const { return base_; }
  uint64_t span() const { return span_; }

 private:
  void insert_free(uint64_t begin, uint64_t end);
  void erase_free(std::map<uint64_t, uint64_t>::iterator range);

  std::mutex mutex_;
  int file_ = -1;
  uint64_t base_ = 0, span_ = 0;
  std::map<uint64_t, uint64_t> free_;                     // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> free_by_size_;  // (size, begin)
};

/// Allocation sizes are rounded up to this; a kernel may touch the rounded extent, as on hardware.
constexpr uint64_t kAllocationUnit = 512;
constexpr uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace tessera::sim
