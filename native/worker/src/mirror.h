// SPDX-License-Identifier: Apache-2.0
// This worker's own memory at the program's addresses, mapped when it is first
// needed.
//
// Neighbouring granules that are missing together are taken from the driver as
// one block: on an H200 2.6 us a granule instead of 34. A block can only be
// unmapped whole, so eviction of a part marks it, and compact() splits such
// blocks when memory is short.
#pragma once

#include <functional>
#include <map>

#include "chunks.h"
#include "granule_set.h"
#include "memory_handle.h"
#include "slot.h"

namespace tessera::worker {

class Mirror {
 public:
  static constexpr uint64_t kMaxBlock = 16;  // granules

  /// Reserves the slot's addresses. Throws DriverError when they are taken.
  Mirror(const Device& device, StatusPage& status, const Slot& slot);
  /// Unmaps everything; no stream may use it any more.
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// Maps what is missing of the granules of [begin, end), which live chunks cover. False: the budget does not allow
  /// it; what was mapped until then stays. Throws DriverError when the driver refuses. Adds the newly mapped bytes to
  /// `*mapped`.
  bool map(const Chunks& chunks, uint64_t begin, uint64_t end, uint64_t* mapped);
  bool is_mapped(uint64_t begin, uint64_t end) const;
  bool has(uint64_t granule) const { return mapped_.has(granule); }

  /// No stream uses these granules and nothing in them is needed. Those that are not mapped do not matter.
  void evict(uint64_t first_granule, uint64_t end_granule);

  /// Whether compact() would free memory.
  bool can_compact() const { return partial_blocks_ != 0; }
  /// Gives evicted granules of partly used blocks back. No stream uses the mirror; `stream` is for the copies that keep
  /// what is in use, `wait` returns when they are done. Throws DriverError.
  void compact(CUstream stream, const std::function<void()>& wait);

  /// Mapped granules, evicted parts of blocks included.
  uint64_t granules_held() const { return held_; }
  void abandon();

 private:
  struct Block {
    uint64_t count = 0;
    uint64_t evicted = 0;  // granules of it
  };
  using Blocks = std::map<uint64_t, Block>;  // by first granule

  Blocks::iterator block_of(uint64_t granule);
  bool map_run(uint64_t first, uint64_t end, uint64_t* mapped);
  uint64_t revive(Blocks::iterator block, uint64_t first, uint64_t end);
  void unmap(Blocks::iterator block);
  void split(Blocks::iterator block, CUstream stream, const std::function<void()>& wait);
  void clear_scratch();

  const Device& device_;
  StatusPage& status_;
  Slot slot_;
  Reservation addresses_, scratch_;
  GranuleSet mapped_;  // and not evicted
  Blocks blocks_;
  uint64_t held_ = 0;
  uint64_t partial_blocks_ = 0;
  uint64_t scratch_granules_ = 0;  // mapped ones
};

}  // namespace tessera::worker
