// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::ptx {

/// Bytes that are read with every offset checked.
class Bytes {
 public:
  Bytes(const void* data, size_t size) : data_(static_cast<const char*>(data)), size_(size) {}

  size_t size() const { return size_; }
  bool holds(uint64_t offset, uint64_t count) const { return offset <= size_ && count <= size_ - offset; }

  /// The little-endian value at `offset`; `fallback` where the bytes end before.
  template <class T>
  T at(uint64_t offset, T fallback = T{}) const {
    if (!holds(offset, sizeof(T))) return fallback;
    T value;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return value;
  }

  /// Empty when the range isn't inside.
  std::string_view view(uint64_t offset, uint64_t count) const {
    return holds(offset, count) ? std::string_view(data_ + offset, count) : std::string_view();
  }

  /// The text up to the first NUL, or up to the end.
  std::string_view text(uint64_t offset) const {
    if (offset >= size_) return {};
    return {data_ + offset, strnlen(data_ + offset, size_ - offset)};
  }

 private:
  const char* data_;
  size_t size_;
};

}  // namespace tessera::ptx
