// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include "tessera/protocol/control.h"

namespace tessera::shim {

/// Times the first launches of each kernel at home, for `tessera-ctl status` and
/// the placement. Later launches are never timed: they are to cost nothing.
class HomeTimer {
 public:
  static constexpr uint64_t kLaunchesTimed = 8;

  /// Runs `call` between two events of the stream, when events can be had.
  template <class Call>
  CUresult time(CUstream stream, ts_kernel_counters& counters, Call&& call) {
    Sample sample = begin(stream, counters);
    const CUresult result = call();
    if (sample.begin != nullptr) end(stream, sample, result == CUDA_SUCCESS);
    return result;
  }

  /// Adds what has ended to the counters: to be called where the program has waited for its work, so that the last
  /// samples do not wait for another launch to be timed. One load when there are none.
  void collect() {
    if (waiting_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      collect_waiting();
  }

 private:
  struct Sample {
    ts_kernel_counters* counters = nullptr;
    CUcontext context = nullptr;
    CUevent begin = nullptr, end = nullptr;
  };
  Sample begin(CUstream stream, ts_kernel_counters& counters);
  void end(CUstream stream, const Sample& sample, bool launched);
  void collect_waiting();
  void harvest();

  std::atomic<size_t> waiting_{0};  // running_.size()
  std::mutex mutex_;
  std::vector<Sample> running_, idle_;
};

HomeTimer& home_timer();

}  // namespace tessera::shim
