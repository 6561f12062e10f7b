// SPDX-License-Identifier: Apache-2.0
// Simulated time. Every stream has its own; the host has one too: it moves to
// the end of whatever the host has waited for, and no operation starts before
// the host time at which it was submitted. So times compare across streams.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::sim {

using VirtualTime = int64_t;  // picoseconds

constexpr VirtualTime picoseconds(double seconds) { return static_cast<VirtualTime>(seconds * 1e12); }

/// TESSERA_SIM_CLOCK: "virtual" (default): as fast as this machine computes;
/// "paced" or "paced:SCALE": streams sleep so that a simulated second takes SCALE real ones.
/// With ",exclusive" behind it a device runs one kernel at a time, so that kernels of several
/// streams queue for it; without, streams do not slow each other down.
class Clock {
 public:
  bool paced() const { return paced_; }
  bool exclusive() const { return exclusive_; }

  /// The host's place in simulated time.
  VirtualTime now() const;
  /// The host has seen an operation that ended at `end`.
  void observe(VirtualTime end);
  /// Sleeps until real time has reached `end`. Nothing to do unless paced.
  void pace(VirtualTime end) const;

  /// Reads the environment. Throws std::runtime_error with a message for the user.
  void configure(const char* setting);

 private:
  bool paced_ = false;
  bool exclusive_ = false;
  double scale_ = 1;
  std::chrono::steady_clock::time_point epoch_;
  std::atomic<VirtualTime> host_{0};
};

Clock& sim_clock();

}  // namespace tessera::sim
