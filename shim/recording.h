// SPDX-License-Identifier: Apache-2.0
// The order of launches, and what each of them reads and writes, for as many launches as the controller asks for: what
// plans need to know of what kernels hand to each other. The launch path of a calm world knows nothing of it: a
// recording keeps the world awake, so that every launch takes the lock and has its claims evaluated.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "claims.h"
#include "tessera/protocol/control.h"

namespace tessera::shim {

class Recording {
 public:
  /// The controller wants the next so many launches. Any thread, whatever lock it holds.
  void ask(uint32_t launches) { asked_.store(launches, std::memory_order_relaxed); }

  /// Whether launches are recorded: then their classes are told apart. Any thread.
  bool is_on() const { return left_.load(std::memory_order_relaxed) != 0; }

  /// A launch as it comes; nothing happens while none are recorded. With the world's lock held.
  void launched(uint32_t counter_slot, CUstream stream, const Claims& claims) {
    if (is_on()) [[unlikely]]
      add(counter_slot, stream, claims);
  }

  /// Begins what was asked for and ends what takes too long. What there is to tell the controller since the last call:
  /// messages, ready to be sent. Never waits for a lock: called again and again.
  std::vector<std::vector<uint8_t>> step();

 private:
  void add(uint32_t counter_slot, CUstream stream, const Claims& claims);
  void begin(uint32_t launches);
  void end();
  std::vector<std::vector<uint8_t>> messages();

  std::atomic<uint32_t> asked_{0};
  std::atomic<uint32_t> left_{0};  // launches still to be recorded; changed under the world's lock
  // Under the world's lock.
  struct Entry {
    ts_recorded_launch launch;
    std::vector<ts_recorded_range> ranges;
  };
  bool ended_ = false;
  std::vector<Entry> entries_;
  std::chrono::steady_clock::time_point until_;
};

Recording& recording();

}  // namespace tessera::shim
