// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace tessera::transport {

using Clock = std::chrono::steady_clock;

/// Milliseconds left until `deadline`, rounded up, for poll(); 0 once it has passed.
int milliseconds_until(Clock::time_point deadline);

/// One step of waiting for memory that another process writes: first spins, then yields, then sleeps up to 1 ms.
class Backoff {
 public:
  void pause();
  /// True once waiting has become slow enough that a system call per step costs nothing.
  bool slow() const { return steps_ > kSpins; }

 private:
  static constexpr int kSpins = 200;
  static constexpr int kYields = 20;
  int steps_ = 0;
};

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace tessera::transport
