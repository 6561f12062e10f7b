// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "home_timer.h"
#include "tessera/protocol/control.h"

namespace tessera::shim {

/// Counts launches in a row of the counters table: a kernel's, or one of its launch classes'. Without a row they are
/// counted as untracked. Any thread, once the row is set.
class Tally {
 public:
  /// Once, before others see the tally.
  void set_row(ts_kernel_counters* row, uint32_t slot) {
    row_ = row;
    slot_ = slot;
  }
  bool has_row() const { return row_ != nullptr; }
  /// UINT32_MAX without a row.
  uint32_t slot() const { return slot_; }

  void count(uint32_t device, uint32_t stay_reason) {
    if (row_ == nullptr) [[unlikely]]
      return count_untracked();
    add(device == 0 ? row_->stayed[stay_reason] : row_->launches[device], 1);
  }
  void count_bytes_in(uint32_t device, uint64_t bytes) {
    if (row_ != nullptr && bytes != 0) add(row_->bytes_in[device], bytes);
  }
  /// Only the first few launches at home are timed.
  bool may_be_timed() const { return timings_left_.load(std::memory_order_relaxed) > 0 && row_ != nullptr; }
  /// The row, for a launch that is one of them, or null. Precondition: it may be timed.
  ts_kernel_counters* to_be_timed() {
    return timings_left_.fetch_sub(1, std::memory_order_relaxed) > 0 ? row_ : nullptr;
  }

 private:
  static void count_untracked();
  static void add(uint64_t& counter, uint64_t value) {
    std::atomic_ref(counter).fetch_add(value, std::memory_order_relaxed);
  }

  ts_kernel_counters* row_ = nullptr;
  uint32_t slot_ = UINT32_MAX;
  std::atomic<int> timings_left_{HomeTimer::kLaunchesTimed};
};

}  // namespace tessera::shim
