// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: address reservations, physical memory (a file each,
// so that a handle can be passed to another process), and what is mapped where.
#pragma once

#include <cstdint>
#include <mutex>

#include "memory.h"

namespace tessera::sim {

constexpr uint64_t kGranularity = 2 << 20;

class PhysicalMemory : public Object {
 public:
  static constexpr Tag kTag = Tag::kPhysicalMemory;

  /// Accounts for the memory on its device. Fails with the CUresult that cuMemCreate gives.
  static Ref<PhysicalMemory> create(uint64_t size, const CUmemAllocationProp& properties);
  /// Takes a file that another process (or this one) exported; the descriptor stays the caller's.
  static Ref<PhysicalMemory> import(int file);
  ~PhysicalMemory() override;

  uint64_t size() const { return size_; }
  int file() const { return file_; }
  /// A descriptor for the program to pass on and to close. Fails with CUDA_ERROR_INVALID_VALUE where the
  /// memory was not created to be exported.
  int export_file() const;
  int device() const { return device_; }  // visible index; -1: host memory, or a device hidden from this process
  const CUmemAllocationProp& properties() const { return properties_; }

  /// Handles that the program holds. A handle that is released while mapped lives on and can be retained again.
  void add_handle() {
    retain();
    handles_.fetch_add(1);
  }
  void drop_handle();
  bool has_handle() const { return handles_.load() > 0; }

 private:
  PhysicalMemory(int file, uint64_t size, int device, const CUmemAllocationProp& properties, bool charged);

  const int file_;
  const uint64_t size_;
  const int device_;
  const CUmemAllocationProp properties_;
  const bool charged_;
  std::atomic<int> handles_{1};
};

/// The physical memory behind a handle that the program holds; fails with CUDA_ERROR_INVALID_VALUE.
PhysicalMemory& physical_of(CUmemGenericAllocationHandle handle);

uint64_t vmm_reserve(uint64_t size, uint64_t alignment, uint64_t wanted);
void vmm_free_reservation(uint64_t address, uint64_t size);
void vmm_map(uint64_t address, uint64_t size, PhysicalMemory& physical);
void vmm_unmap(uint64_t address, uint64_t size);
void vmm_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc* descriptors, size_t count);
/// The reservation that holds `address`: begin and size; size 0 when there is none.
std::pair<uint64_t, uint64_t> vmm_reservation_of(uint64_t address);

/// Takes a range out of the address map and frees what stands behind it, whatever its kind.
void release_memory(const MemoryPtr& memory);

}  // namespace tessera::sim
