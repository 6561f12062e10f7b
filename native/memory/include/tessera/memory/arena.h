// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/memory/directory.h"

namespace tessera::memory {

/// Hands out addresses inside chunks of backed memory. It knows nothing of the
/// driver: the owner maps a chunk, adds it, and unmaps it when it may be
/// removed. Best fit; blocks of one chunk coalesce; no block spans chunks.
/// Not thread-safe.
class Arena {
 public:
  static constexpr uint64_t kAlignment = 512;  // what cuMemAlloc gives in practice; it promises 256

  /// Precondition: the chunk overlaps no other; begin is a multiple of kAlignment.
  void add_chunk(Range chunk);
  /// Precondition: `chunk_is_free(begin)`. Returns the chunk.
  Range remove_chunk(uint64_t begin);
  bool chunk_is_free(uint64_t begin) const;
  /// Chunks with nothing allocated in them.
  std::vector<Range> free_chunks() const;
  /// The chunk that holds the address, if any.
  std::optional<Range> chunk_of(uint64_t address) const;
  template <class Visit>
  void for_each_chunk(Visit&& visit) const {
    for (const auto& [begin, end] : chunks_) visit(Range{begin, end});
  }

  /// The address of `size` bytes, or none when no chunk has room. size 0 is refused.
  std::optional<uint64_t> allocate(uint64_t size);
  /// The freed range (without padding), or none when `address` is no allocation's start.
  std::optional<Range> free(uint64_t address);

  /// Gives a live allocation another size, within the room that its block has.
  bool resize(uint64_t address, uint64_t size);

  /// The live allocation that holds `address`.
  std::optional<Range> find(uint64_t address) const;
  /// The live allocation that ends exactly at `address`.
  std::optional<Range> find_ending_at(uint64_t address) const;
  /// The first live allocation that begins behind `address`.
  std::optional<Range> find_next(uint64_t address) const;
  /// The parts of `range` that lie in live allocations.
  void intersect(Range range, std::vector<Range>& out) const;

  /// Another number after every change of what is allocated where.
  uint64_t changes() const { return changes_; }

  uint64_t used_bytes() const { return used_; }
  uint64_t occupied_bytes() const { return occupied_; }  // with padding
  uint64_t mapped_bytes() const { return mapped_; }

 private:
  struct Block {
    uint64_t end;        // of the block, padding included
    uint64_t requested;  // bytes asked for; 0: free
  };
  using Blocks = std::map<uint64_t, Block>;

  void insert_free(uint64_t begin, uint64_t end);
  void erase_free(uint64_t begin, uint64_t end) { free_.erase({end - begin, begin}); }

  std::map<uint64_t, uint64_t> chunks_;           // begin -> end
  Blocks blocks_;                                 // every block of every chunk
  std::set<std::pair<uint64_t, uint64_t>> free_;  // (size, begin)
  uint64_t used_ = 0, occupied_ = 0, mapped_ = 0, changes_ = 0;
};

}  // namespace tessera::memory
