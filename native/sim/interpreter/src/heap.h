// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>

#include "scalar.h"

namespace tessera::sim {

/// Device-side malloc and free over one region of device memory. Thread-safe.
class Heap {
 public:
  static constexpr u64 kBytes = u64{8} << 20;  // the default limit of the hardware's runtime

  explicit Heap(u64 begin, u64 bytes) { free_[begin] = bytes; }
  u64 allocate(u64 bytes);    // 0 when there is no room
  bool release(u64 address);  // false when the address was never given out

 private:
  std::mutex mutex_;
  std::map<u64, u64> free_, used_;  // begin -> bytes
};

}  // namespace tessera::sim
