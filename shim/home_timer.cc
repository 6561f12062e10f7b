// SPDX-License-Identifier: Apache-2.0
#include "home_timer.h"

#include <atomic>

#include "context.h"
#include "driver.h"
#include "own_events.h"
#include "world.h"

namespace tessera::shim {

HomeTimer& home_timer() {
  static HomeTimer* timer = new HomeTimer;
  return *timer;
}

HomeTimer::Sample HomeTimer::begin(CUstream stream, ts_kernel_counters& counters) {
  const std::lock_guard lock(mutex_);
  harvest();
  const CUcontext context = current_context();
  if (context == nullptr) return {};
  Sample sample;
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->context != context) continue;
    sample = *it;
    idle_.erase(it);
    break;
  }
  sample.context = context;
  sample.counters = &counters;
  if (sample.begin == nullptr) sample.begin = own_events().timing();
  if (sample.begin == nullptr) return {};
  if (sample.end == nullptr) sample.end = own_events().timing();
  if (sample.end == nullptr) {
    idle_.push_back(sample);  // its other event comes later
    return {};
  }
  if (driver().cuEventRecord(sample.begin, stream) == CUDA_SUCCESS) return sample;
  idle_.push_back(sample);
  return {};
}

void HomeTimer::end(CUstream stream, const Sample& sample, bool launched) {
  const std::lock_guard lock(mutex_);
  const bool recorded = driver().cuEventRecord(sample.end, stream) == CUDA_SUCCESS;
  (launched && recorded ? running_ : idle_).push_back(sample);
  waiting_.store(running_.size(), std::memory_order_relaxed);
}

void HomeTimer::collect_waiting() {
  // While anything is captured, anywhere, asking for an event's time would spoil the capture.
  if (world().captures.load(std::memory_order_acquire) != 0) return;
  const std::lock_guard lock(mutex_);
  harvest();
}

void HomeTimer::harvest() {
  std::erase_if(running_, [&](const Sample& sample) {
    const CUresult state = driver().cuEventQuery(sample.end);
    if (state == CUDA_ERROR_NOT_READY) return false;
    float milliseconds = 0;
    // An event of a context that is gone: the sample is dropped with it.
    if (state != CUDA_SUCCESS) return true;
    if (driver().cuEventElapsedTime(&milliseconds, sample.begin, sample.end) == CUDA_SUCCESS) {
      const auto nanoseconds = static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
      std::atomic_ref(sample.counters->time_ns[0]).fetch_add(nanoseconds, std::memory_order_relaxed);
      std::atomic_ref(sample.counters->timed[0]).fetch_add(1, std::memory_order_relaxed);
    }
    idle_.push_back(sample);
    return true;
  });
  waiting_.store(running_.size(), std::memory_order_relaxed);
}

}  // namespace tessera::shim
