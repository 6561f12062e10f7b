// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace tessera::transport {

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

void Backoff::pause() {
  ++steps_;
  if (steps_ <= kSpins) {
    cpu_relax();
  } else if (steps_ <= kSpins + kYields) {
    sched_yield();
  } else {
    const int doublings = std::min(steps_ - kSpins - kYields, 5);
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(32 << doublings, 1000)));
  }
}

}  // namespace tessera::transport
