// SPDX-License-Identifier: Apache-2.0
#include "pool.h"

#include <algorithm>

#include "device.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kReserveUnit = 32 << 20;  // what a real pool takes from the device at a time

}  // namespace

Pool::Pool(Device& device, CUmemAllocationHandleType handle_types, size_t max_size)
    : Object(kTag), device_(device), handle_types_(handle_types), max_size_(max_size) {
  access_[static_cast<size_t>(device.index())].store(Access::kReadWrite);
}

Pool::~Pool() = default;

MemoryPtr Pool::take(size_t size) {
  if (max_size_ != 0) {
    const std::lock_guard lock(mutex_);
    require(used_ + size <= max_size_, CUDA_ERROR_OUT_OF_MEMORY);
  }
  auto memory = std::make_shared<Memory>();
  memory->kind = MemoryKind::kPool;
  memory->begin = device_.take(size, kAllocationUnit);
  memory->size = size;
  memory->device = device_.index();
  memory->mapping_begin = memory->begin;
  memory->mapping_size = kReserveUnit;
  memory->pool = Ref<Pool>::share(this);
  for (int i = 0; i < kMaxDevices; ++i) memory->access[static_cast<size_t>(i)].store(access(i));
  address_map().insert(memory);
  return memory;
}

uint64_t Pool::allocate(size_t size) {
  MemoryPtr memory;
  try {
    memory = take(size);
  } catch (const Failure& failure) {
    if (failure.code != CUDA_ERROR_OUT_OF_MEMORY) throw;
    wait_for_frees();
    memory = take(size);
  }
  const std::lock_guard lock(mutex_);
  used_ += size;
  used_high_ = std::max(used_high_, used_);
  reserved_ = std::max(reserved_, round_up(used_, kReserveUnit));
  reserved_high_ = std::max(reserved_high_, reserved_);
  return memory->begin;
}

void Pool::wait_for_frees() {
  std::vector<Ref<Op>> pending;
  {
    const std::lock_guard lock(mutex_);
    pending.swap(pending_frees_);
  }
  for (const Ref<Op>& op : pending) op->wait();
}

void Pool::freeing(Ref<Op> op) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_frees_, [](const Ref<Op>& known) { return known->done(); });
  if (!op->done()) pending_frees_.push_back(std::move(op));
}

void Pool::released(uint64_t size) {
  const std::lock_guard lock(mutex_);
  used_ -= size;
  reserved_ = std::max(round_up(used_, kReserveUnit), std::min(reserved_, release_threshold_));
}

uint64_t Pool::attribute(CUmemPool_attribute attribute) const {
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return static_cast<uint64_t>(reuse_[static_cast<size_t>(attribute - 1)]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return release_threshold_;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return reserved_;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return reserved_high_;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return used_;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return used_high_;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void Pool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[static_cast<size_t>(attribute - 1)] = *static_cast<const int*>(value) != 0;
      return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = *static_cast<const uint64_t*>(value);
      return;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:  // only a reset to zero is defined
      require(*static_cast<const uint64_t*>(value) == 0);
      reserved_high_ = reserved_;
      return;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      require(*static_cast<const uint64_t*>(value) == 0);
      used_high_ = used_;
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void Pool::trim(uint64_t bytes_to_keep) {
  const std::lock_guard lock(mutex_);
  reserved_ = std::max(round_up(used_, kReserveUnit), std::min(reserved_, round_up(bytes_to_keep, kReserveUnit)));
}

void Pool::set_access(int device, Access access) {
  access_[static_cast<size_t>(device)].store(access);
  const auto mine = address_map().select([this](const Memory& memory) { return memory.pool.get() == this; });
  for (const MemoryPtr& memory : mine) memory->access[static_cast<size_t>(device)].store(access);
}

}  // namespace tessera::sim
