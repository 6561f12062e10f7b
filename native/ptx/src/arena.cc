// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tessera/ptx/slice.h"

namespace tessera::ptx {

namespace {
constexpr size_t kFirstChunk = size_t{4} << 10;
constexpr size_t kLargestChunk = size_t{1} << 20;
}  // namespace

void* Arena::allocate(size_t bytes, size_t alignment) {
  const size_t padding = (alignment - reinterpret_cast<uintptr_t>(next_) % alignment) % alignment;
  if (next_ != nullptr && padding + bytes <= left_) {
    std::byte* out = next_ + padding;
    next_ = out + bytes;
    left_ -= padding + bytes;
    return out;
  }
  const size_t wanted = std::min(kLargestChunk, kFirstChunk << std::min<size_t>(chunks_.size(), 8));
  const size_t chunk = std::max(wanted, bytes + alignment);
  chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk));
  next_ = chunks_.back().get();
  left_ = chunk;
  return allocate(bytes, alignment);
}

std::string_view Arena::copy(std::string_view text) {
  char* out = static_cast<char*>(allocate(text.size() + 1, 1));
  std::copy(text.begin(), text.end(), out);
  out[text.size()] = '\0';
  return {out, text.size()};
}

}  // namespace tessera::ptx
