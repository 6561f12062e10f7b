// SPDX-License-Identifier: Apache-2.0
// The GPU that this process owns: its primary context, its description, and the
// page that tells controller and programs how it is doing.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "driver.h"
#include "tessera/protocol/channel.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::worker {

/// ts_worker_status with atomic access; every field may be read by other processes at any time.
class StatusPage {
 public:
  StatusPage(const ts_device& device, uint64_t budget);

  const transport::UniqueFd& fd() const { return memory_.fd(); }
  uint64_t budget() const { return page()->memory_budget; }
  uint64_t memory_used() const { return word(page()->memory_used).load(); }

  /// Takes `bytes` of the budget; false when they are not there.
  bool reserve(uint64_t bytes);
  void give_back(uint64_t bytes);

  void session_started() { word(page()->sessions).fetch_add(1); }
  void session_ended() { word(page()->sessions).fetch_sub(1); }
  uint64_t sessions() const { return word(page()->sessions).load(); }
  void add_launch() { add(page()->launches, 1); }
  void add_busy(uint64_t nanoseconds) { add(page()->busy_ns, nanoseconds); }
  void add_pulled(uint64_t bytes) { add(page()->bytes_pulled, bytes); }
  void add_pushed(uint64_t bytes) { add(page()->bytes_pushed, bytes); }
  void add_error() { add(page()->errors, 1); }
  void set_failed(const std::string& text);

 private:
  static std::atomic_ref<uint64_t> word(uint64_t& value) { return std::atomic_ref<uint64_t>(value); }
  static void add(uint64_t& value, uint64_t amount) { word(value).fetch_add(amount, std::memory_order_relaxed); }
  ts_worker_status* page() const { return memory_.as<ts_worker_status>(); }
  transport::SharedMemory memory_;
};

class Device {
 public:
  /// Retains the primary context of device `ordinal`. Throws DriverError with what this GPU or driver lacks.
  Device(const Driver& driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return driver_; }
  CUdevice handle() const { return device_; }
  const ts_device& description() const { return description_; }
  /// Free device memory, bytes.
  uint64_t free_memory() const;

  /// Makes the context current in this thread. Throws DriverError.
  void make_current() const;

  /// Whether the context is of no use any more after a call has answered `code`: the error is one that sticks.
  bool is_poisoned(CUresult code) const;

  /// The largest local memory per thread that any kernel launched so far has used. A kernel that needs more makes the
  /// driver wait until the device is idle.
  std::atomic<int>& local_memory_high_water() { return local_high_water_; }

 private:
  void require_attribute(CUdevice_attribute attribute, const char* what) const;
  void describe();

  const Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream probe_ = nullptr;  // never used for work: its state is that of the context
  ts_device description_{};
  std::atomic<int> local_high_water_{0};
};

}  // namespace tessera::worker
