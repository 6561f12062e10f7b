// SPDX-License-Identifier: Apache-2.0
#include "recording.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>

#include "session.h"
#include "tessera/transport/socket.h"
#include "world.h"

namespace tessera::shim {
namespace {

constexpr uint32_t kMostLaunches = 65536;
constexpr size_t kMostRanges = 32;  // of one launch's reads, or writes: of more their hull is told
constexpr size_t kMessageBytes = TS_MAX_MESSAGE / 2;
constexpr std::chrono::seconds kLongest{10};  // for programs that launch little

/// Appends ranges; their number.
uint16_t append(std::span<const Range> ranges, std::vector<ts_recorded_range>& out) {
  if (ranges.empty()) return 0;
  if (ranges.size() > kMostRanges) {
    out.push_back({ranges.front().begin, ranges.back().end});
    return 1;
  }
  for (const Range& range : ranges) out.push_back({range.begin, range.end});
  return static_cast<uint16_t>(ranges.size());
}

}  // namespace

Recording& recording() {
  static Recording* instance = new Recording;
  return *instance;
}

std::vector<std::vector<uint8_t>> Recording::step() {
  std::unique_lock lock(world().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  if (!is_on() && !ended_) {
    if (const uint32_t launches = asked_.exchange(0, std::memory_order_relaxed); launches != 0) begin(launches);
  }
  if (is_on() && std::chrono::steady_clock::now() > until_) end();
  // What there is so far, too: the program may end before as many launches have come.
  return ended_ || !entries_.empty() ? messages() : std::vector<std::vector<uint8_t>>{};
}

void Recording::begin(uint32_t launches) {
  if (!world().wake()) {
    asked_.store(launches, std::memory_order_relaxed);  // a home call does not come to an end: later
    return;
  }
  world().record(true);
  entries_.clear();
  left_ = std::min(launches, kMostLaunches);
  until_ = std::chrono::steady_clock::now() + kLongest;
}

void Recording::add(uint32_t counter_slot, CUstream stream, const Claims& claims) {
  Entry entry{};
  entry.launch.kernel_id = kernel_of_counters(counter_slot);
  entry.launch.counter_slot = counter_slot;
  entry.launch.flags = (claims.known ? 0u : uint32_t{TS_RECORDED_UNKNOWN}) | TS_RECORDED_IN_ROW;
  entry.launch.stream = reinterpret_cast<uint64_t>(stream);
  entry.launch.n_reads = append(claims.needed, entry.ranges);
  entry.launch.n_writes = append(claims.written, entry.ranges);
  entries_.push_back(std::move(entry));
  if (--left_ == 0) end();
}

void Recording::end() {
  left_ = 0;
  ended_ = true;
  world().record(false);
}

std::vector<std::vector<uint8_t>> Recording::messages() {
  std::vector<std::vector<uint8_t>> found;
  auto it = entries_.begin();
  do {
    std::vector<uint8_t> message(sizeof(ts_recorded));
    uint32_t launches = 0;
    for (; it != entries_.end() && message.size() < kMessageBytes; ++it, ++launches) {
      const auto* launch = reinterpret_cast<const uint8_t*>(&it->launch);
      const auto* ranges = reinterpret_cast<const uint8_t*>(it->ranges.data());
      message.insert(message.end(), launch, launch + sizeof it->launch);
      message.insert(message.end(), ranges, ranges + it->ranges.size() * sizeof it->ranges[0]);
    }
    ts_recorded head{};
    head.header = transport::make_header(TS_RECORDED, message.size(), 0);
    head.n_launches = launches;
    head.last = ended_ && it == entries_.end() ? 1u : 0u;
    std::memcpy(message.data(), &head, sizeof head);
    found.push_back(std::move(message));
  } while (it != entries_.end());
  entries_.clear();
  if (ended_) entries_.shrink_to_fit();
  ended_ = false;
  return found;
}

}  // namespace tessera::shim
