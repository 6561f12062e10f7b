// SPDX-License-Identifier: Apache-2.0
// Owners of what the driver's virtual memory calls hand out.
#pragma once

#include <utility>

#include "device.h"

namespace tessera::worker {

/// Physical memory: a handle of cuMemCreate or cuMemImportFromShareableHandle. Mappings outlive it.
class MemoryHandle {
 public:
  MemoryHandle() = default;
  /// `bytes` of this device's memory. Throws DriverError.
  static MemoryHandle create(const Device& device, uint64_t bytes);
  /// The memory behind a descriptor of another process; the descriptor stays the caller's. Throws DriverError.
  static MemoryHandle import(const Device& device, int fd);

  MemoryHandle(MemoryHandle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_) {}
  MemoryHandle& operator=(MemoryHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~MemoryHandle() {
    if (driver_ != nullptr) driver_->note(driver_->cuMemRelease(handle_), "cuMemRelease");
  }

  /// Maps all of it at `address` for reading and writing by `device`. Throws DriverError, and then nothing is mapped.
  void map(const Device& device, uint64_t address, uint64_t bytes) const;

 private:
  MemoryHandle(const Driver* driver, CUmemGenericAllocationHandle handle) : driver_(driver), handle_(handle) {}
  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// A reserved range of addresses.
class Reservation {
 public:
  Reservation() = default;
  /// At `address`, or anywhere when it is 0. Throws DriverError, also when the driver gives other addresses.
  Reservation(const Device& device, uint64_t address, uint64_t bytes);
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation() {
    if (driver_ != nullptr) driver_->note(driver_->cuMemAddressFree(address_, bytes_), "cuMemAddressFree");
  }
  uint64_t address() const { return address_; }
  explicit operator bool() const { return driver_ != nullptr; }
  /// Forgets it without a driver call.
  void abandon() { driver_ = nullptr; }

 private:
  const Driver* driver_ = nullptr;
  uint64_t address_ = 0, bytes_ = 0;
};

}  // namespace tessera::worker
