// SPDX-License-Identifier: Apache-2.0
#include "gate.h"

#include <algorithm>

namespace tessera::worker {

StartWaits::StartWaits(Gate& gate, ts_lane* lanes) : gate_(gate), lanes_(lanes) { gate_.add(this); }
StartWaits::~StartWaits() { gate_.remove(this); }

bool StartWaits::announce(uint32_t lane, uint32_t start) {
  // The order of this store and of the look at the gate matters: either the closer sees our wait or we see it closed.
  const uint32_t before = last_[lane].exchange(start);
  if (!gate_.closed() || has_come(lane, start)) return true;
  last_[lane].store(before);
  return false;
}

bool StartWaits::outstanding() const {
  for (uint32_t lane = 0; lane < TS_LANES; ++lane) {
    const uint32_t last = last_[lane].load();
    if (last != 0 && !has_come(lane, last)) return true;
  }
  return false;
}

bool StartWaits::grows(uint32_t lane, uint32_t start) const {
  const uint32_t last = last_[lane].load();
  return last == 0 || reached(start, last);
}

void StartWaits::release_all(uint32_t round) const {
  constexpr uint32_t kQuarter = uint32_t{1} << 30;
  for (uint32_t lane = 0; lane < TS_LANES; ++lane) {
    const uint32_t last = last_[lane].load();
    if (last != 0) std::atomic_ref<uint32_t>(lanes_[lane].start).store(last + round % 4 * kQuarter);
  }
}

bool Gate::clear() {
  const std::lock_guard lock(mutex_);
  return std::none_of(sessions_.begin(), sessions_.end(), [](const StartWaits* waits) { return waits->outstanding(); });
}

void Gate::add(StartWaits* waits) {
  const std::lock_guard lock(mutex_);
  sessions_.push_back(waits);
}

void Gate::remove(StartWaits* waits) {
  const std::lock_guard lock(mutex_);
  std::erase(sessions_, waits);
}

}  // namespace tessera::worker
