// SPDX-License-Identifier: Apache-2.0
// A file descriptor that is closed with its owner.
#pragma once

#include <utility>

namespace tessera::transport {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

  /// A second descriptor of the same file, close-on-exec. Throws std::system_error.
  UniqueFd duplicate() const;

 private:
  int fd_ = -1;
};

/// A descriptor that polls readable once process `pid` has ended; invalid where the kernel cannot say.
UniqueFd open_process(int pid);
/// Whether that process has ended. False for an invalid descriptor.
bool process_ended(const UniqueFd& process);

}  // namespace tessera::transport
