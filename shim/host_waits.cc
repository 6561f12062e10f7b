// SPDX-License-Identifier: Apache-2.0
#include "host_waits.h"

#include <algorithm>

#include "driver.h"
#include "streams.h"

namespace tessera::shim {
namespace {

constexpr size_t kLookAt = 16;  // waits from which it pays to look for ended ones

}  // namespace

void HostWaits::add(const StreamState& stream) {
  if (waits_.size() >= kLookAt) forget_ended();
  const auto known = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& it) { return it.stream == stream.id; });
  Wait wait = known == waits_.end() ? Wait{stream.id, nullptr} : *known;
  if (wait.behind == nullptr && driver().cuEventCreate(&wait.behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    lost_count_ = true;
    return;
  }
  if (driver().cuEventRecord(wait.behind, stream.handle) != CUDA_SUCCESS) lost_count_ = true;
  if (known == waits_.end()) waits_.push_back(wait);
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

void HostWaits::forget_ended() {
  std::erase_if(waits_, [](const Wait& wait) {
    if (driver().cuEventQuery(wait.behind) == CUDA_ERROR_NOT_READY) return false;
    driver().cuEventDestroy_v2(wait.behind);  // an error: its context is gone, and the wait with it
    return true;
  });
}

}  // namespace tessera::shim
