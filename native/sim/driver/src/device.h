// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arena.h"
#include "catalogue.h"
#include "clock.h"
#include "memory.h"
#include "object.h"

namespace tessera::sim {

class Context;
class Pool;

class Device {
 public:
  Device(int index, MachineDevice machine);
  ~Device() = delete;  // lives as long as the process

  int index() const { return index_; }
  const DeviceModel& model() const { return machine_.model; }
  const MachineDevice& machine() const { return machine_; }
  const Architecture& architecture() const { return architecture_; }
  std::string bus_id() const;

  /// Accounts for device memory. Fails with CUDA_ERROR_OUT_OF_MEMORY.
  void charge(uint64_t bytes);
  void refund(uint64_t bytes);
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t free_bytes() const;

  /// Takes memory from the arena and accounts for it; rounds up.
  uint64_t take(uint64_t size, uint64_t alignment);
  void give_back(uint64_t address, uint64_t size);
  Arena& arena();

  Context& primary() const { return *primary_; }
  CUresult retain_primary(Context** context);
  void release_primary();
  void reset_primary();
  std::atomic<unsigned> primary_flags{0};

  Pool& default_pool() const { return *default_pool_; }
  Ref<Pool> current_pool() const;
  void set_current_pool(Pool& pool);

  /// The simulated time from `start` to the end of a kernel that takes `duration`: longer than that
  /// when kernels run one at a time (see Clock) and others are before it.
  VirtualTime occupy(VirtualTime start, VirtualTime duration);

  /// A fault makes the device unusable to this process until it ends.
  CUresult fault() const { return fault_.load(std::memory_order_acquire); }
  void set_fault(CUresult code);
  void check_fault() const { require(fault() == CUDA_SUCCESS, fault()); }

 private:
  const int index_;
  const MachineDevice machine_;
  const Architecture architecture_;
  std::atomic<uint64_t> used_{0};
  std::atomic<CUresult> fault_{CUDA_SUCCESS};
  std::once_flag arena_once_;
  Arena* arena_ = nullptr;
  Ref<Context> primary_;
  unsigned primary_users_ = 0;
  mutable std::mutex mutex_;
  Ref<Pool> default_pool_, current_pool_;
  VirtualTime free_at_ = 0;  // the end of the last kernel, when they run one at a time
};

/// The devices of the process; empty before cuInit.
const std::vector<Device*>& devices();
/// Fails with CUDA_ERROR_INVALID_DEVICE.
Device& device_of(CUdevice ordinal);

/// cuInit's work, once. Prints what is wrong with the environment.
CUresult initialize();

constexpr int kDriverVersion = 13000;

}  // namespace tessera::sim
