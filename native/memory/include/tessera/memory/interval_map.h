// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace tessera::memory {

/// A map from half-open intervals of addresses to values. What was never set has
/// the default value `T{}`, and setting the default value erases: an empty map
/// says "default everywhere". Neighbours with equal values are one interval.
/// Not thread-safe.
template <class T>
class IntervalMap {
 public:
  struct Interval {
    uint64_t end;
    T value;
  };

  bool empty() const { return intervals_.empty(); }
  size_t size() const { return intervals_.size(); }
  void clear() { intervals_.clear(); }

  /// Calls `visit(begin, end, value)` for consecutive pieces that cover
  /// [begin, end), default gaps included. `visit` must not change the map.
  template <class Visit>
  void for_each(uint64_t begin, uint64_t end, Visit&& visit) const {
    uint64_t at = begin;
    for (auto it = first_overlap(begin); at < end && it != intervals_.end() && it->first < end; ++it) {
      const uint64_t from = std::max(it->first, at);
      if (from > at) visit(at, from, T{});
      const uint64_t to = std::min(it->second.end, end);
      visit(from, to, it->second.value);
      at = to;
    }
    if (at < end) visit(at, end, T{});
  }

  /// Visits only the intervals that differ from the default, over all addresses.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [begin, interval] : intervals_) visit(begin, interval.end, interval.value);
  }

  void set(uint64_t begin, uint64_t end, const T& value) {
    if (begin >= end) return;
    auto next = cut(begin, end);
    if (value == T{}) return;
    uint64_t from = begin, to = end;
    if (next != intervals_.end() && next->first == end && next->second.value == value) {
      to = next->second.end;
      next = intervals_.erase(next);
    }
    if (next != intervals_.begin()) {
      auto before = std::prev(next);
      if (before->second.end == begin && before->second.value == value) {
        before->second.end = to;
        return;
      }
    }
    intervals_.emplace_hint(next, from, Interval{to, value});
  }

 private:
  using Map = std::map<uint64_t, Interval>;

  typename Map::const_iterator first_overlap(uint64_t address) const {
    auto it = intervals_.upper_bound(address);
    if (it != intervals_.begin() && std::prev(it)->second.end > address) --it;
    return it;
  }

  /// Removes [begin, end), splitting what crosses its ends; returns what follows.
  typename Map::iterator cut(uint64_t begin, uint64_t end) {
    auto it = intervals_.upper_bound(begin);
    if (it != intervals_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != intervals_.end() && it->first < end) {
      const uint64_t piece_begin = it->first;
      const Interval piece = it->second;
      it = intervals_.erase(it);
      if (piece_begin < begin) intervals_.emplace_hint(it, piece_begin, Interval{begin, piece.value});
      if (piece.end > end) it = intervals_.emplace_hint(it, end, Interval{piece.end, piece.value});
    }
    return it;
  }

  Map intervals_;
};

}  // namespace tessera::memory
