// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/memory/interval_map.h"

namespace tessera::memory {

constexpr uint32_t kHome = 0;  // device indices: 0 home, 1..15 workers
constexpr uint16_t kNoLane = 0xffff;

/// The last remote operation that moved or wrote a range: an operation of a
/// lane, named by its serial. Until that lane has finished it, every user in
/// another stream has to wait for it.
struct Touch {
  uint16_t worker = 0;
  uint16_t lane = kNoLane;
  uint32_t serial = 0;
  bool none() const { return lane == kNoLane; }
  bool operator==(const Touch&) const = default;
};

struct Replicas {
  uint16_t valid = 1u << kHome;  // bit d: device d holds the current bytes; never 0
  Touch touch;
  bool valid_on(uint32_t device) const { return (valid >> device & 1u) != 0; }
  bool operator==(const Replicas&) const = default;
};

struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Range&) const = default;
};

/// Whether any of the one overlaps any of the other.
inline bool overlap(std::span<const Range> one, std::span<const Range> other) {
  return std::any_of(one.begin(), one.end(), [&](const Range& a) {
    return std::any_of(other.begin(), other.end(), [&](const Range& b) { return a.overlaps(b); });
  });
}

/// Sorts, drops empty ranges, and merges those that overlap or touch.
void normalize(std::vector<Range>& ranges);

/// Which devices hold the current bytes of which addresses. The default, for
/// every address that it does not list, is "home alone, nothing in flight".
/// Not thread-safe, but for `quiet()`.
class Directory {
 public:
  /// True while every byte is valid at home alone: home launches then need no
  /// look at their ranges. Any thread may ask.
  bool quiet() const { return quiet_.load(std::memory_order_acquire); }

  template <class Visit>
  void for_each(Range range, Visit&& visit) const {
    map_.for_each(range.begin, range.end,
                  [&](uint64_t begin, uint64_t end, const Replicas& replicas) { visit(Range{begin, end}, replicas); });
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    map_.for_each([&](uint64_t begin, uint64_t end, const Replicas& replicas) { visit(Range{begin, end}, replicas); });
  }

  /// `device` has written the range: its replica is the only valid one.
  void written(Range range, uint32_t device, Touch touch);
  /// `device` has received a copy of the range; the others stay valid.
  void copied(Range range, uint32_t device, Touch touch);
  /// The contents of the range no longer matter (freed memory).
  void forget(Range range);
  /// `device` no longer holds the range. Precondition: another device does.
  void dropped(Range range, uint32_t device);
  /// Every replica on `device` is gone. Returns the bytes that only it held:
  /// they are lost, and from now on home's stale bytes count as valid.
  uint64_t lost(uint32_t device);
  /// Forgets touches for which `finished(touch)` holds, so that the directory
  /// can become quiet again.
  template <class Finished>
  void settle(Finished&& finished);

  size_t intervals() const { return map_.size(); }

 private:
  template <class Change>
  void change(Range range, Change&& change);
  void update_quiet() { quiet_.store(map_.empty(), std::memory_order_release); }

  IntervalMap<Replicas> map_;
  std::atomic<bool> quiet_{true};
};

template <class Finished>
void Directory::settle(Finished&& finished) {
  std::vector<Range> done;
  map_.for_each([&](uint64_t begin, uint64_t end, const Replicas& replicas) {
    if (!replicas.touch.none() && finished(replicas.touch)) done.push_back({begin, end});
  });
  for (const Range& range : done) {
    change(range, [&](Replicas replicas) {
      if (!replicas.touch.none() && finished(replicas.touch)) replicas.touch = Touch{};
      return replicas;
    });
  }
}

template <class Change>
void Directory::change(Range range, Change&& change) {
  std::vector<std::pair<Range, Replicas>> pieces;
  for_each(range, [&](Range piece, const Replicas& replicas) { pieces.emplace_back(piece, change(replicas)); });
  for (const auto& [piece, replicas] : pieces) map_.set(piece.begin, piece.end, replicas);
  update_quiet();
}

}  // namespace tessera::memory
