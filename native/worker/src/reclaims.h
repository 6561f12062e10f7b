// SPDX-License-Identifier: Apache-2.0
// Memory that goes once the session's streams are through with it: each entry
// holds an event for every stream that was busy when the program gave it up.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "chunks.h"
#include "lanes.h"
#include "mirror.h"
#include "samples.h"

namespace tessera::worker {

class Reclaims {
 public:
  Reclaims(const Device& device, const Slot& slot, Lanes& lanes, Chunks& chunks, Mirror& mirror)
      : slot_(slot),
        device_(device),
        lanes_(lanes),
        chunks_(chunks),
        mirror_(mirror),
        events_(device, CU_EVENT_DISABLE_TIMING) {}
  ~Reclaims();
  Reclaims(const Reclaims&) = delete;
  Reclaims& operator=(const Reclaims&) = delete;

  /// Chunks whose release has begun: alias and mirror go. Throws DriverError.
  void release(std::span<const ts_ring_range> chunks);
  /// Whole granules of the slot: the mirror goes, unless keep() names them before. Throws DriverError.
  void evict(std::span<const ts_ring_range> ranges);
  /// A message behind the eviction uses these granules: they stay mapped.
  void keep(uint64_t begin, uint64_t end);

  /// Carries out what is due. Throws DriverError.
  void poll();
  bool pending() const { return !queue_.empty(); }
  void abandon();

 private:
  struct Entry {
    bool is_release = false;
    uint64_t id = 0;
    std::vector<ts_ring_range> ranges;
    std::vector<CUevent> events;
  };
  void push(bool is_release, std::span<const ts_ring_range> ranges);
  bool due(Entry& entry);
  void carry_out(const Entry& entry);

  Slot slot_;
  const Device& device_;
  Lanes& lanes_;
  Chunks& chunks_;
  Mirror& mirror_;
  EventPool events_;
  std::deque<Entry> queue_;
  std::unordered_map<uint64_t, uint64_t> evicting_;  // granule -> id of the last entry that evicts it
  uint64_t last_id_ = 0;
};

}  // namespace tessera::worker
