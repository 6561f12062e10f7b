// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace tessera::sim {

VirtualTime Clock::now() const {
  const VirtualTime seen = host_.load(std::memory_order_acquire);
  if (!paced_) return seen;
  const double real = std::chrono::duration<double>(std::chrono::steady_clock::now() - epoch_).count();
  return picoseconds(real / scale_);
}

void Clock::observe(VirtualTime end) {
  VirtualTime seen = host_.load(std::memory_order_relaxed);
  while (seen < end && !host_.compare_exchange_weak(seen, end, std::memory_order_release)) {
  }
}

void Clock::pace(VirtualTime end) const {
  if (!paced_) return;
  const auto real = std::chrono::duration<double>(static_cast<double>(end) * 1e-12 * scale_);
  std::this_thread::sleep_until(epoch_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(real));
}

void Clock::configure(const char* setting) {
  std::string text = setting == nullptr || *setting == '\0' ? "virtual" : setting;
  epoch_ = std::chrono::steady_clock::now();
  const std::string given = text;
  constexpr std::string_view kExclusive = ",exclusive";
  if (text.size() > kExclusive.size() && text.ends_with(kExclusive)) {
    exclusive_ = true;
    text.resize(text.size() - kExclusive.size());
  }
  if (text == "virtual") return;
  char* end = nullptr;
  if (text == "paced") {
    paced_ = true;
  } else if (text.compare(0, 6, "paced:") == 0) {
    scale_ = std::strtod(text.c_str() + 6, &end);
    paced_ = *end == '\0' && scale_ > 0;
  }
  if (!paced_) {
    throw std::runtime_error("TESSERA_SIM_CLOCK='" + given +
                             "': it is virtual, paced or paced:SCALE, and may end in ,exclusive");
  }
}

Clock& sim_clock() {
  static auto* const one = new Clock;
  return *one;
}

}  // namespace tessera::sim
