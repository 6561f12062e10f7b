// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "tessera/transport/socket.h"

namespace tessera::shim {
namespace {

ts_class description_of(uint32_t kernel_id, const ClassKey& key, uint32_t slot) {
  auto description = transport::make_message<ts_class>(TS_CLASS, 0);
  description.counter_slot = slot;
  description.kernel_id = kernel_id;
  description.n_values = key.write(description.values);
  return description;
}

}  // namespace

void Counters::create() {
  memory_ = transport::SharedMemory::create("tessera-counters", sizeof(ts_counters_table));
  table().magic = TS_COUNTERS_MAGIC;
  table().version = TS_PROTOCOL_VERSION;
  table().pid = getpid();
  table().capacity = sizeof table().kernels / sizeof table().kernels[0];
}

ts_kernel_counters* Counters::of_kernel(uint32_t kernel_id, uint32_t* slot) {
  const std::lock_guard lock(mutex_);
  const auto known = slots_.find(kernel_id);
  if (known != slots_.end()) {
    *slot = known->second;
    return &table().kernels[*slot];
  }
  if (taken_ >= table().capacity) return nullptr;
  slots_[kernel_id] = taken_;
  return take_row(kernel_id, slot);
}

ts_kernel_counters* Counters::of_class(uint32_t kernel_id, const ClassKey& key, uint32_t* slot) {
  const std::lock_guard lock(mutex_);
  // Half of the rows stay for kernels that come later.
  if (kernel_id >= TS_MAX_KERNELS || taken_ >= table().capacity / 2) return nullptr;
  ts_kernel_counters* row = take_row(kernel_id, slot);
  untold_.push_back(description_of(kernel_id, key, *slot));
  return row;
}

std::vector<ts_class> Counters::take_untold() {
  const std::lock_guard lock(mutex_);
  return std::exchange(untold_, {});
}

/// Precondition: the lock is held, and there are more.
ts_kernel_counters* Counters::take_row(uint32_t kernel_id, uint32_t* slot) {
  *slot = taken_++;
  ts_kernel_counters& row = table().kernels[*slot];
  row.kernel_id = kernel_id;
  row.used = 1;
  std::atomic_ref(table().n_kernels).store(taken_, std::memory_order_release);
  return &row;
}

}  // namespace tessera::shim
