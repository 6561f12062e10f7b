// SPDX-License-Identifier: Apache-2.0
#include "api.h"
#include "capture.h"
#include "copy.h"
#include "device.h"
#include "pool.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"
#include "vmm.h"

using namespace tessera::sim;

namespace {

Pool& pool_handle(CUmemoryPool handle) { return from_handle<Pool>(handle, CUDA_ERROR_INVALID_VALUE); }

CUdeviceptr allocate(Pool& pool, size_t size, CUstream handle) {
  Stream& stream = stream_of(handle);
  if (size == 0) return 0;
  if (stream_is_capturing(stream)) return capture_allocation(stream, pool, size);
  check_legacy_allowed(stream);
  return pool.allocate(size);
}

void free_in_order(CUdeviceptr pointer, CUstream handle) {
  Stream& stream = stream_of(handle);
  if (pointer == 0) return;
  if (stream_is_capturing(stream)) return capture_free(stream, pointer);
  const MemoryPtr memory = address_map().find_start(pointer);
  if (memory != nullptr && memory->graph_owned) return;
  const bool ordered = memory != nullptr && (memory->kind == MemoryKind::kPool || memory->kind == MemoryKind::kDevice);
  require(ordered && !memory->freeing.exchange(true));
  const Ref<Op> op = submit(stream, std::make_shared<FreeTask>(memory));
  if (memory->pool && op) memory->pool->freeing(op);
}

Pool& current_pool_of(CUstream handle, Ref<Pool>& holder) {
  holder = stream_of(handle).context().device().current_pool();
  return *holder;
}

Device& location_device(const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  require(location.id >= 0 && location.id < static_cast<int>(devices().size()));
  return *devices()[static_cast<size_t>(location.id)];
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return api([&] {
    require(dptr != nullptr);
    Ref<Pool> pool;
    *dptr = allocate(current_pool_of(hStream, pool), bytesize, hStream);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return api([&] {
    require(dptr != nullptr);
    *dptr = allocate(pool_handle(pool), bytesize, hStream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return api([&] { free_in_order(dptr, hStream); });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(pool_out != nullptr);
    *pool_out = to_handle<CUmemoryPool>(&device.default_pool());
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(pool != nullptr);
    *pool = to_handle<CUmemoryPool>(device.current_pool().get());
  });
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return api([&] {
    Device& device = device_of(dev);
    Pool& wanted = pool_handle(pool);
    require(&wanted.device() == &device);
    device.set_current_pool(wanted);
  });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  return api([&] {
    require(pool_out != nullptr && location != nullptr && type == CU_MEM_ALLOCATION_TYPE_PINNED);
    *pool_out = to_handle<CUmemoryPool>(&location_device(*location).default_pool());
  });
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return api([&] {
    require(pool != nullptr && location != nullptr && type == CU_MEM_ALLOCATION_TYPE_PINNED);
    *pool = to_handle<CUmemoryPool>(location_device(*location).current_pool().get());
  });
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return api([&] {
    require(location != nullptr && type == CU_MEM_ALLOCATION_TYPE_PINNED);
    Device& device = location_device(*location);
    Pool& wanted = pool_handle(pool);
    require(&wanted.device() == &device);
    device.set_current_pool(wanted);
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return api([&] {
    require(pool != nullptr && poolProps != nullptr && poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) fail_unsupported("memory pools on the host");
    Device& device = location_device(poolProps->location);
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) fail_unsupported("memory pools shared between processes");
    *pool = to_handle<CUmemoryPool>(new Pool(device, poolProps->handleTypes, poolProps->maxSize));
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return api([&] {
    Pool& wanted = pool_handle(pool);
    Device& device = wanted.device();
    require(&wanted != &device.default_pool());
    require(wanted.kill(Pool::kTag));
    if (device.current_pool().get() == &wanted) device.set_current_pool(device.default_pool());
    wanted.release();
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return api([&] { pool_handle(pool).trim(minBytesToKeep); });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return api([&] {
    require(value != nullptr);
    pool_handle(pool).set_attribute(attr, value);
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return api([&] {
    require(value != nullptr);
    const uint64_t read = pool_handle(pool).attribute(attr);
    if (attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
      *static_cast<int*>(value) = static_cast<int>(read);
    else
      *static_cast<cuuint64_t*>(value) = read;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return api([&] {
    Pool& wanted = pool_handle(pool);
    require(map != nullptr || count == 0);
    for (size_t i = 0; i < count; ++i) {
      const Device& device = location_device(map[i].location);
      const bool own = &device == &wanted.device();
      require(map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
              (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && !own));
      wanted.set_access(device.index(), static_cast<Access>(map[i].flags));
    }
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
  return api([&] {
    const Pool& wanted = pool_handle(memPool);
    require(flags != nullptr && location != nullptr);
    *flags = static_cast<CUmemAccess_flags>(wanted.access(location_device(*location).index()));
  });
}
