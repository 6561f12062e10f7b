// SPDX-License-Identifier: Apache-2.0
#include "host_waits.h"

#include <algorithm>

#include "driver.h"
#include "own_events.h"
#include "streams.h"

namespace tessera::shim {
namespace {

constexpr size_t kLookAt = 16;  // waits from which it pays to look for ended ones

}  // namespace

void HostWaits::add(const StreamState& stream, std::span<const Range> watched) {
  if (waits_.size() >= kLookAt) forget_ended();
  auto wait = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& it) { return it.stream == stream.id; });
  if (wait == waits_.end()) {
    const CUevent behind = own_events().ordering_at_hand();
    if (behind == nullptr) {
      lost_count_ = true;
      return;
    }
    wait = waits_.insert(waits_.end(), Wait{stream.id, behind, {}});
  }
  if (driver().cuEventRecord(wait->behind, stream.handle) != CUDA_SUCCESS) lost_count_ = true;
  // Those of earlier ones of this stream stay until the last has ended: there is one event for all.
  wait->watched.insert(wait->watched.end(), watched.begin(), watched.end());
  memory::normalize(wait->watched);
}

bool HostWaits::unfinished_in(const StreamState& stream) {
  if (lost_count_) return true;
  if (waits_.empty()) return false;
  forget_ended();
  return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) { return wait.stream == stream.id; });
}

bool HostWaits::unfinished_beside(const StreamState& stream) {
  if (lost_count_) return true;
  forget_ended();
  return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) { return wait.stream != stream.id; });
}

bool HostWaits::watched_beside(const StreamState& stream, std::span<const Range> ranges) {
  if (lost_count_) return true;
  if (waits_.empty()) return false;
  forget_ended();
  return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) {
    return wait.stream != stream.id && memory::overlap(wait.watched, ranges);
  });
}

void HostWaits::forget_ended() {
  std::erase_if(waits_, [](const Wait& wait) {
    if (driver().cuEventQuery(wait.behind) == CUDA_ERROR_NOT_READY) return false;
    own_events().discard(wait.behind);  // an error: its context is gone, and the wait with it
    return true;
  });
}

}  // namespace tessera::shim
