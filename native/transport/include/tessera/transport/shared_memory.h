// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory that travels between processes as a descriptor. It is
// sealed against resizing, and whoever maps a received one asks for the seal: a
// peer that could shrink the file could kill its reader with SIGBUS.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/transport/unique_fd.h"

namespace tessera::transport {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { unmap(); }

  /// New zeroed memory of `size` bytes, mapped, sealed against resizing. `name` shows up in /proc/PID/maps.
  /// Throws TransportError (kRefused).
  static SharedMemory create(const char* name, size_t size);

  /// Maps `size` bytes of a received descriptor for reading and writing. Throws TransportError: kCorrupt when it
  /// is no memory that was sealed against resizing or is smaller than `size`; kRefused when mapping fails.
  static SharedMemory map(UniqueFd fd, size_t size);

  void* data() const { return data_; }
  size_t size() const { return size_; }
  const UniqueFd& fd() const { return fd_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void unmap();
  UniqueFd fd_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A descriptor of a copy of `size` bytes that nobody can change any more. Throws TransportError (kRefused).
UniqueFd make_constant(const char* name, const void* data, size_t size);

/// Reads exactly `size` bytes from the start of `fd`, without mapping it. Throws TransportError (kCorrupt) when the
/// file is shorter.
std::vector<char> read_whole(const UniqueFd& fd, size_t size);

}  // namespace tessera::transport
