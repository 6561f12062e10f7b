// SPDX-License-Identifier: Apache-2.0
// Memory pools for stream-ordered allocation. An allocation is usable as soon as
// it is returned; a free takes effect when the stream reaches it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory.h"
#include "op.h"

namespace tessera::sim {

class Pool : public Object {
 public:
  static constexpr Tag kTag = Tag::kPool;

  Pool(Device& device, CUmemAllocationHandleType handle_types, size_t max_size);
  ~Pool() override;

  Device& device() const { return device_; }
  CUmemAllocationHandleType handle_types() const { return handle_types_; }

  /// Where memory is short, waits for frees that are under way. Fails with CUDA_ERROR_OUT_OF_MEMORY.
  uint64_t allocate(size_t size);
  /// Called when the stream reaches the free.
  void released(uint64_t size);
  /// A free was submitted as `op`.
  void freeing(Ref<Op> op);

  uint64_t attribute(CUmemPool_attribute attribute) const;
  void set_attribute(CUmemPool_attribute attribute, const void* value);
  void trim(uint64_t bytes_to_keep);

  Access access(int device) const { return access_[static_cast<size_t>(device)].load(); }
  void set_access(int device, Access access);

 private:
  MemoryPtr take(size_t size);
  void wait_for_frees();

  Device& device_;
  const CUmemAllocationHandleType handle_types_;
  const size_t max_size_;
  std::array<std::atomic<Access>, kMaxDevices> access_ = {};
  mutable std::mutex mutex_;
  uint64_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  uint64_t release_threshold_ = 0;
  std::array<int, 3> reuse_ = {1, 1, 1};
  std::vector<Ref<Op>> pending_frees_;
};

}  // namespace tessera::sim
