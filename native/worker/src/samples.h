// SPDX-License-Identifier: Apache-2.0
// Device time of launches, by event pairs around a sample of them: every launch
// while fewer than kAlways of its counter slot are timed, then one in kEvery.
#pragma once

#include <unordered_map>
#include <vector>

#include "counters.h"
#include "device.h"

namespace tessera::worker {

/// Events for reuse.
class EventPool {
 public:
  EventPool(const Device& device, unsigned flags) : device_(device), flags_(flags) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  /// Throws DriverError.
  CUevent take();
  void give(CUevent event) { free_.push_back(event); }
  void abandon() { free_.clear(); }

 private:
  const Device& device_;
  unsigned flags_;
  std::vector<CUevent> free_;
};

class Samples {
 public:
  Samples(const Device& device, StatusPage& status, Counters& counters)
      : device_(device), status_(status), counters_(counters), events_(device, CU_EVENT_DEFAULT) {}
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  ~Samples();

  /// Right before a launch into `stream`: records the first event if this launch belongs to the sample.
  void before(uint32_t slot, CUstream stream);
  /// Right behind that launch.
  void after(CUstream stream);

  /// Adds what has ended to the counters.
  void poll();
  bool pending() const { return !pending_.empty(); }
  void abandon();

 private:
  static constexpr uint64_t kAlways = 20, kEvery = 64;
  static constexpr size_t kMostPending = 512;
  struct Sample {
    CUevent start = nullptr, stop = nullptr;
    uint32_t slot = 0;
    uint64_t stands_for = 1;  // launches, itself included: it is the last of them
  };
  struct Row {
    uint64_t unsampled = 0;  // launches since the last sample
    uint64_t pending = 0;
  };
  bool wanted(uint32_t slot);

  const Device& device_;
  StatusPage& status_;
  Counters& counters_;
  EventPool events_;
  std::unordered_map<uint32_t, Row> rows_;
  std::vector<Sample> pending_;
  Sample open_;
};

}  // namespace tessera::worker
