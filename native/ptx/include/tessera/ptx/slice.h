// SPDX-License-Identifier: Apache-2.0
// A read-only view of consecutive values in a module's arena. Like std::span,
// but usable inside the very type that it views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::ptx {

template <class T>
class Slice {
 public:
  using value_type = T;
  using const_iterator = const T*;

  constexpr Slice() = default;
  constexpr Slice(const T* data, size_t size) : data_(data), size_(static_cast<uint32_t>(size)) {}

  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  constexpr const T& front() const { return data_[0]; }
  constexpr const T& back() const { return data_[size_ - 1]; }

 private:
  const T* data_ = nullptr;
  uint32_t size_ = 0;
};

/// Bump allocator for what lives as long as its module: names, operands.
/// Holds trivially destructible values only; frees everything at once.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* allocate(size_t bytes, size_t alignment);

  /// A NUL-terminated copy.
  std::string_view copy(std::string_view text);

  /// A copy of `count` values, open to change while the module is being built.
  template <class T>
  T* copy(const T* values, size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (count == 0) return nullptr;
    T* out = static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
    std::uninitialized_copy(values, values + count, out);
    return out;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace tessera::ptx
