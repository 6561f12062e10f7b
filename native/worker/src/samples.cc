// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

namespace tessera::worker {

EventPool::~EventPool() {
  const Driver& driver = device_.driver();
  for (const CUevent event : free_) driver.note(driver.cuEventDestroy_v2(event), "cuEventDestroy");
}

CUevent EventPool::take() {
  if (free_.empty()) {
    CUevent event = nullptr;
    device_.driver().check(device_.driver().cuEventCreate(&event, flags_), "cuEventCreate");
    return event;
  }
  const CUevent event = free_.back();
  free_.pop_back();
  return event;
}

Samples::~Samples() {
  pending_.push_back(open_);
  for (const Sample& sample : pending_) {
    if (sample.start != nullptr) events_.give(sample.start);
    if (sample.stop != nullptr) events_.give(sample.stop);
  }
}

bool Samples::wanted(uint32_t slot) {
  if (!counters_.has_row(slot)) return false;
  Row& row = rows_[slot];
  ++row.unsampled;
  const bool few = counters_.timed(slot) + row.pending < kAlways;
  return (few || row.unsampled >= kEvery) && pending_.size() < kMostPending;
}

void Samples::before(uint32_t slot, CUstream stream) {
  if (!wanted(slot)) return;
  open_.start = events_.take();
  open_.stop = events_.take();
  open_.slot = slot;
  open_.stands_for = rows_[slot].unsampled;
  device_.driver().check(device_.driver().cuEventRecord(open_.start, stream), "cuEventRecord");
}

void Samples::after(CUstream stream) {
  if (open_.start == nullptr) return;
  device_.driver().check(device_.driver().cuEventRecord(open_.stop, stream), "cuEventRecord");
  Row& row = rows_[open_.slot];
  row.unsampled = 0;
  ++row.pending;
  pending_.push_back(open_);
  open_ = Sample{};
}

void Samples::poll() {
  // Lanes finish in any order; one that is slow does not hold up the others for long.
  for (size_t i = 0; i < pending_.size();) {
    const Sample sample = pending_[i];
    const CUresult state = device_.driver().cuEventQuery(sample.stop);
    if (state == CUDA_ERROR_NOT_READY) {
      ++i;
      continue;
    }
    device_.driver().check(state, "cuEventQuery");
    float milliseconds = 0;
    device_.driver().check(device_.driver().cuEventElapsedTime(&milliseconds, sample.start, sample.stop),
                           "cuEventElapsedTime");
    const auto nanoseconds = static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
    counters_.add_time(sample.slot, nanoseconds);
    // The sample speaks for the launches since the one before it: an unbiased figure without timing all of them.
    status_.add_busy(nanoseconds * sample.stands_for);
    --rows_[sample.slot].pending;
    events_.give(sample.start);
    events_.give(sample.stop);
    pending_[i] = pending_.back();
    pending_.pop_back();
  }
}

void Samples::abandon() {
  pending_.clear();
  open_ = Sample{};
  events_.abandon();
}

}  // namespace tessera::worker
