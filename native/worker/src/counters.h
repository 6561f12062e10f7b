// SPDX-License-Identifier: Apache-2.0
// This worker's columns of a program's counters table. kernels[].launches and
// .bytes_in are the program's own business: it knows them when it decides.
#pragma once

#include <atomic>

#include "tessera/protocol/control.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::worker {

class Counters {
 public:
  /// Throws transport::TransportError when the memory is no counters table of this version.
  Counters(transport::UniqueFd fd, uint32_t index);

  void add(uint64_t ts_worker_counters::* counter, uint64_t amount) { add_to(worker_->*counter, amount); }

  /// Whether this slot has a row; programs name a slot beyond the table for kernels without one.
  bool has_row(uint32_t slot) const { return slot < kRows; }
  uint64_t timed(uint32_t slot) const { return std::atomic_ref(table()->kernels[slot].timed[index_]).load(); }
  void add_time(uint32_t slot, uint64_t nanoseconds) {
    add_to(table()->kernels[slot].time_ns[index_], nanoseconds);
    add_to(table()->kernels[slot].timed[index_], 1);
  }

 private:
  static constexpr uint32_t kRows = sizeof(ts_counters_table::kernels) / sizeof(ts_kernel_counters);
  static void add_to(uint64_t& counter, uint64_t amount) {
    std::atomic_ref<uint64_t>(counter).fetch_add(amount, std::memory_order_relaxed);
  }
  ts_counters_table* table() const { return memory_.as<ts_counters_table>(); }
  transport::SharedMemory memory_;
  uint32_t index_;
  ts_worker_counters* worker_;
};

}  // namespace tessera::worker
