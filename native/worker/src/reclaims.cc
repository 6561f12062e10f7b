// SPDX-License-Identifier: Apache-2.0
#include "reclaims.h"

namespace tessera::worker {

Reclaims::~Reclaims() {
  for (const Entry& entry : queue_) {
    for (const CUevent event : entry.events) events_.give(event);
  }
}

void Reclaims::abandon() {
  queue_.clear();
  events_.abandon();
}

void Reclaims::push(bool is_release, std::span<const ts_ring_range> ranges) {
  Entry& entry = queue_.emplace_back();
  entry.is_release = is_release;
  entry.id = ++last_id_;
  entry.ranges.assign(ranges.begin(), ranges.end());
  for (const uint32_t lane : lanes_.open_lanes()) {
    if (!lanes_.busy(lane)) continue;
    entry.events.push_back(events_.take());
    device_.driver().check(device_.driver().cuEventRecord(entry.events.back(), lanes_.stream(lane)), "cuEventRecord");
  }
}

void Reclaims::release(std::span<const ts_ring_range> chunks) { push(true, chunks); }

void Reclaims::evict(std::span<const ts_ring_range> ranges) {
  push(false, ranges);
  for (const ts_ring_range& range : ranges) {
    const auto [first, end] = slot_.touched(range.begin, range.end);
    for (uint64_t granule = first; granule < end; ++granule) {
      if (mirror_.has(granule)) evicting_[granule] = last_id_;
    }
  }
}

void Reclaims::keep(uint64_t begin, uint64_t end) {
  if (evicting_.empty()) return;
  const auto [first, stop] = slot_.touched(begin, end);
  for (uint64_t granule = first; granule < stop; ++granule) evicting_.erase(granule);
}

bool Reclaims::due(Entry& entry) {
  while (!entry.events.empty()) {
    const CUresult state = device_.driver().cuEventQuery(entry.events.back());
    if (state == CUDA_ERROR_NOT_READY) return false;
    device_.driver().check(state, "cuEventQuery");
    events_.give(entry.events.back());
    entry.events.pop_back();
  }
  return true;
}

void Reclaims::poll() {
  while (!queue_.empty() && due(queue_.front())) {
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    carry_out(entry);
  }
}

void Reclaims::carry_out(const Entry& entry) {
  for (const ts_ring_range& range : entry.ranges) {
    const auto [first, end] = slot_.touched(range.begin, range.end);
    if (entry.is_release) {
      mirror_.evict(first, end);
      chunks_.finish_release(range.begin, range.end);
      continue;
    }
    for (uint64_t granule = first; granule < end; ++granule) {
      const auto mark = evicting_.find(granule);
      if (mark == evicting_.end() || mark->second != entry.id) continue;
      evicting_.erase(mark);
      mirror_.evict(granule, granule + 1);
    }
  }
}

}  // namespace tessera::worker
