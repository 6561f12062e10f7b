// SPDX-License-Identifier: Apache-2.0
// The default memory pool of a device. What it would give in stream order comes
// from the slot, so what it says of itself has to include that.
#include "driver.h"
#include "order.h"

using namespace tessera::shim;

namespace {

/// The device whose default pool this is; -1: another pool, or a shim that serves nothing.
CUdevice device_of_default(CUmemoryPool pool) {
  if (pool == nullptr || !runtime().active() || !world().memory.started()) return -1;
  int count = 0;
  if (driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (CUdevice device = 0; device < count; ++device) {
    CUmemoryPool usual = nullptr;
    if (driver().cuDeviceGetDefaultMemPool(&usual, device) == CUDA_SUCCESS && usual == pool) return device;
  }
  return -1;
}

/// Calls `visit` with what the slot serves in the place of a default pool, if this is one.
template <class Visit>
void visit_use(CUmemoryPool pool, Visit&& visit) {
  const CUdevice device = device_of_default(pool);
  if (device < 0) return;
  cuuint64_t threshold = 0;
  driver().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  const std::lock_guard lock(world().mutex);
  if (DeviceMemory::PoolUse* use = world().memory.pool_use(device, threshold)) visit(*use);
}

uint64_t* field(DeviceMemory::PoolUse& use, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &use.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &use.reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &use.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &use.used_high;
    default:
      return nullptr;
  }
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                                            void* value) {
  const CUresult result = driver().cuMemPoolGetAttribute(pool, attribute, value);
  if (result != CUDA_SUCCESS) return after_call(result);
  visit_use(pool, [&](DeviceMemory::PoolUse& use) {
    if (const uint64_t* ours = field(use, attribute)) *static_cast<cuuint64_t*>(value) += *ours;
  });
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                                            void* value) {
  const CUresult result = driver().cuMemPoolSetAttribute(pool, attribute, value);
  if (result != CUDA_SUCCESS) return after_call(result);
  visit_use(pool, [&](DeviceMemory::PoolUse& use) {
    // The high-water marks can be set to 0 alone, which begins them anew.
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) use.reserved_high = use.reserved;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) use.used_high = use.used;
  });
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep) {
  const CUresult result = driver().cuMemPoolTrimTo(pool, bytes_to_keep);
  if (result != CUDA_SUCCESS) return after_call(result);
  if (const CUdevice device = device_of_default(pool); device >= 0) {
    const std::lock_guard lock(world().mutex);
    if (DeviceMemory::PoolUse* use = world().memory.pool_use(device, bytes_to_keep); use != nullptr && use->used == 0) {
      world().memory.trim(device);
    }
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  CUresult result = driver().cuMemPoolSetAccess(pool, map, count);
  if (result != CUDA_SUCCESS) return after_call(result);
  if (const CUdevice device = device_of_default(pool); device >= 0) {
    const std::lock_guard lock(world().mutex);
    for (size_t i = 0; i < count; ++i) {
      if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        continue;
      const CUresult granted = world().memory.grant(device, map[i].location.id);
      if (result == CUDA_SUCCESS) result = granted;
    }
  }
  return after_call(result);
}
