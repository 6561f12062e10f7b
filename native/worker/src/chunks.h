// SPDX-License-Identifier: Apache-2.0
// Home's physical memory as this worker sees it: every chunk that home has
// mapped in its slot is mapped here too, at the same offset of another reserved
// range (the alias).
#pragma once

#include <map>
#include <string>

#include "granule_set.h"
#include "memory_handle.h"
#include "slot.h"

namespace tessera::worker {

class Chunks {
 public:
  Chunks(const Device& device, const Slot& slot);
  /// Unmaps everything; no stream may use it any more.
  ~Chunks();
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  /// What is wrong with a chunk at [address, address + size); empty when nothing is. Chunks that are being released
  /// do not count.
  std::string objection(uint64_t address, uint64_t size) const;
  /// Whether a chunk whose release has not ended lies there.
  bool releasing(uint64_t address, uint64_t size) const;
  /// Maps a chunk that has no objection and overlaps none in release. Throws DriverError.
  void add(uint64_t address, uint64_t size, const MemoryHandle& memory);

  /// Whether [begin, end) lies inside live chunks.
  bool cover(uint64_t begin, uint64_t end) const;
  /// Whether [begin, end) is exactly one or several whole live chunks.
  bool are_whole(uint64_t begin, uint64_t end) const;
  /// The end of the part of [granule, end) that lies in one chunk.
  uint64_t chunk_end(uint64_t granule, uint64_t end) const { return starts_.next_with(granule + 1, end); }

  /// From now on no message may use these whole chunks, but streams still do.
  void begin_release(uint64_t begin, uint64_t end);
  /// No stream uses them any more.
  void finish_release(uint64_t begin, uint64_t end);

  /// Where home's bytes of a slot address are mapped here.
  uint64_t alias(uint64_t address) const { return address - slot_.base + alias_.address(); }

  /// Forgets all without a driver call: the context is broken.
  void abandon();

 private:
  const Device& device_;
  Slot slot_;
  Reservation alias_;
  std::map<uint64_t, uint64_t> sizes_;  // all mapped ones, by address
  GranuleSet live_, releasing_, starts_;
};

}  // namespace tessera::worker
