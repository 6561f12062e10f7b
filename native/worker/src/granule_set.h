// SPDX-License-Identifier: Apache-2.0
// A set of granules (TS_GRANULE bytes each) of one slot, one bit for each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::worker {

class GranuleSet {
 public:
  explicit GranuleSet(uint64_t count) : bits_((count + 63) / 64), count_(count) {}

  uint64_t count() const { return count_; }
  bool has(uint64_t granule) const { return (bits_[granule / 64] >> granule % 64 & 1) != 0; }
  void add(uint64_t first, uint64_t end) {
    for_each_word(first, end, [](uint64_t& word, uint64_t mask) { word |= mask; });
  }
  void remove(uint64_t first, uint64_t end) {
    for_each_word(first, end, [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  }
  bool has_all(uint64_t first, uint64_t end) const { return next_without(first, end) == end; }
  bool has_none(uint64_t first, uint64_t end) const { return next_with(first, end) == end; }
  /// The first granule of [first, end) that is (not) in the set; `end` when there is none.
  uint64_t next_with(uint64_t first, uint64_t end) const { return next(first, end, 0); }
  uint64_t next_without(uint64_t first, uint64_t end) const { return next(first, end, ~uint64_t{0}); }

 private:
  template <class Change>
  void for_each_word(uint64_t first, uint64_t end, Change change) {
    while (first < end) {
      const uint64_t stop = std::min(end, (first / 64 + 1) * 64);
      const uint64_t bits = stop - first;
      const uint64_t mask = (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << first % 64;
      change(bits_[first / 64], mask);
      first = stop;
    }
  }

  uint64_t next(uint64_t first, uint64_t end, uint64_t flip) const {
    while (first < end) {
      const uint64_t word = (bits_[first / 64] ^ flip) >> first % 64;
      if (word != 0) return std::min(end, first + static_cast<uint64_t>(__builtin_ctzll(word)));
      first = (first / 64 + 1) * 64;
    }
    return end;
  }

  std::vector<uint64_t> bits_;
  uint64_t count_;
};

}  // namespace tessera::worker
