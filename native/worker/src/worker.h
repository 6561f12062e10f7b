// SPDX-License-Identifier: Apache-2.0
// What all sessions of this process share.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "device.h"
#include "gate.h"
#include "loader.h"
#include "options.h"

namespace tessera::worker {

struct Timing {
  std::chrono::microseconds spin{50};        ///< an idle session polls its ring so long before it sleeps
  std::chrono::milliseconds timeout{5000};   ///< for what a program owes: first message, announced packets, reading
  std::chrono::milliseconds patience{2000};  ///< for a moment at which no stream waits for a flag
};

class Worker {
 public:
  Worker(Device& device_in, StatusPage& status_in, const Options& options_in, const Timing& timing_in)
      : device(device_in),
        status(status_in),
        options(options_in),
        timing(timing_in),
        loader(device_in, gate, timing_in.patience) {}

  Device& device;
  StatusPage& status;
  const Options options;
  const Timing timing;
  Gate gate;
  Loader loader;

  /// The context is broken: every session ends with this error, and then the process. The first call wins.
  void poison(CUresult code, const std::string& text);
  bool poisoned() const { return poisoned_.load(); }
  /// Meaningful once poisoned().
  DriverError poison_error() const;

  /// One session wants `wanted` bytes of the budget in all and has been promised `before`. Returns its new promise.
  uint64_t promise(uint64_t before, uint64_t wanted);

  /// Sessions are to tell their programs that this worker goes away.
  void stop() { stopping_.store(true); }
  bool stopping() const { return stopping_.load(); }

  std::atomic<int> live_sessions{0};    ///< attached, or being taken apart
  std::atomic<int> failed_sessions{0};  ///< of them, those whose program has been told

 private:
  std::atomic<bool> poisoned_{false}, stopping_{false};
  mutable std::mutex mutex_;
  CUresult poison_code_ = CUDA_SUCCESS;
  std::string poison_text_;
  uint64_t promised_ = 0;  // to all sessions
};

/// What one session may hold of the budget.
class Promise {
 public:
  explicit Promise(Worker& worker) : worker_(worker) {}
  ~Promise() { worker_.promise(bytes_, 0); }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  uint64_t change(uint64_t wanted) { return bytes_ = worker_.promise(bytes_, wanted); }

 private:
  Worker& worker_;
  uint64_t bytes_ = 0;
};

}  // namespace tessera::worker
