// SPDX-License-Identifier: Apache-2.0
// Allocations. Device memory comes from the program's slot of addresses where
// the device can export memory; everything else is the driver's, and kernels
// that use it stay home.
#include <algorithm>

#include "driver.h"
#include "order.h"
#include "session.h"

using namespace tessera::shim;

namespace {

/// Whether the call may be served from the slot. Inside a capture an allocation
/// is a node of the graph, and a free one too: those are the driver's.
bool serves(CUstream handle) { return runtime().active() && world().memory.started() && !is_capturing(handle); }

void report_memory() { report_arena(world().memory.mapped_bytes(), world().memory.used_bytes()); }

/// CUDA_ERROR_NOT_SUPPORTED: ask the driver.
CUresult allocate(CUdeviceptr* address, uint64_t bytes) {
  if (address == nullptr || bytes == 0 || !serves(CU_STREAM_LEGACY)) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(world().mutex);
  const CUresult result = world().memory.allocate(bytes, address);
  report_memory();
  return result;
}

bool owns(CUdeviceptr address) {
  if (!runtime().active() || !world().memory.in_slot(address)) return false;
  const std::lock_guard lock(world().mutex);
  const auto allocation = world().memory.find(address);
  return allocation && allocation->begin == address && world().memory.owner_of(address);
}

/// cuMemFree waits for the device, so that memory still in use is not given out
/// again. While a stream is captured it cannot, and the memory waits instead.
CUresult release(CUdeviceptr address) {
  World& all = world();
  const bool capturing = all.captures.load(std::memory_order_acquire) != 0;
  if (!capturing) {
    const CUresult synchronized = cuCtxSynchronize();
    if (synchronized != CUDA_SUCCESS) return synchronized;
  }
  const std::lock_guard lock(all.mutex);
  const auto freed = capturing ? all.memory.defer_free(address) : all.memory.free(address);
  if (!freed) return CUDA_ERROR_INVALID_VALUE;
  all.directory.forget(*freed);
  if (!capturing) {
    all.memory.free_deferred();
    all.memory.settle();
  }
  all.rest();
  report_memory();
  return CUDA_SUCCESS;
}

CUresult allocate_ordered(CUdeviceptr* address, uint64_t bytes, CUstream handle) {
  if (address == nullptr || bytes == 0 || !serves(handle)) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(world().mutex);
  const CUresult result = world().memory.allocate_ordered(bytes, world().streams.get(handle).id, address);
  report_memory();
  return result;
}

CUresult free_ordered(CUdeviceptr address, CUstream handle) {
  const std::lock_guard lock(world().mutex);
  World& all = world();
  StreamState& stream = all.streams.get(handle);
  if (const CUresult ready = Coherence(all).before_home(stream, {}); ready != CUDA_SUCCESS) return ready;
  CUevent freed = nullptr;
  CUresult result = driver().cuEventCreate(&freed, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  activity().bump(handle);
  result = driver().cuEventRecord(freed, handle);
  if (result != CUDA_SUCCESS) {
    driver().cuEventDestroy_v2(freed);
    return result;
  }
  if (const auto range = all.memory.free_ordered(address, stream.id, freed)) {
    all.directory.forget(*range);
    all.rest();
    return CUDA_SUCCESS;
  }
  driver().cuEventDestroy_v2(freed);
  return CUDA_ERROR_INVALID_VALUE;
}

/// The pool that plain cuMemAllocAsync would use on the current device.
bool is_current_pool(CUmemoryPool pool) {
  CUdevice device = 0;
  CUmemoryPool current = nullptr;
  return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS &&
         driver().cuDeviceGetMemPool(&current, device) == CUDA_SUCCESS && current == pool &&
         is_default_pool(pool, device);
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const CUresult result = allocate(address, bytes);
  return after_call(result == CUDA_ERROR_NOT_SUPPORTED ? driver().cuMemAlloc_v2(address, bytes) : result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                                         size_t height, unsigned int element) {
  constexpr size_t kPitch = 512;  // what devices report as the texture pitch alignment, or a multiple of it
  const bool plain = pitch != nullptr && width != 0 && height != 0 && (element == 4 || element == 8 || element == 16) &&
                     width <= SIZE_MAX - kPitch;
  const size_t padded = plain ? (width + kPitch - 1) / kPitch * kPitch : 0;
  if (plain && height <= SIZE_MAX / padded) {
    const CUresult result = allocate(address, padded * height);
    if (result == CUDA_SUCCESS) *pitch = padded;
    if (result != CUDA_ERROR_NOT_SUPPORTED) return after_call(result);
  }
  return after_call(driver().cuMemAllocPitch_v2(address, pitch, width, height, element));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  return after_call(owns(address) ? release(address) : driver().cuMemFree_v2(address));
}

namespace {

template <class Call>
CUresult allocate_in_order(CUdeviceptr* address, size_t bytes, CUstream handle, Call&& call) {
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  const bool plain = runtime().active() && driver().cuCtxGetDevice(&device) == CUDA_SUCCESS &&
                     driver().cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS && is_default_pool(pool, device);
  const CUresult result = plain ? allocate_ordered(address, bytes, handle) : CUDA_ERROR_NOT_SUPPORTED;
  return after_call(result == CUDA_ERROR_NOT_SUPPORTED ? call() : result);
}

template <class Call>
CUresult free_in_order(CUdeviceptr address, CUstream handle, Call&& call) {
  if (!owns(address) || is_capturing(handle)) return after_call(call());
  return after_call(free_ordered(address, handle));
}

}  // namespace

#define TESSERA_ALLOCATE_ORDERED(symbol, per_thread)                                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr* address, size_t bytes, CUstream stream) { \
    return allocate_in_order(address, bytes, normalized(stream, per_thread),                          \
                             [&] { return driver().symbol(address, bytes, stream); });                \
  }
TESSERA_ALLOCATE_ORDERED(cuMemAllocAsync, false)
TESSERA_ALLOCATE_ORDERED(cuMemAllocAsync_ptsz, true)

#define TESSERA_ALLOCATE_FROM_POOL(symbol, per_thread)                                                              \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,               \
                                               CUstream stream) {                                                   \
    const CUstream handle = normalized(stream, per_thread);                                                         \
    const bool plain = runtime().active() && is_current_pool(pool);                                                 \
    const CUresult result = plain ? allocate_ordered(address, bytes, handle) : CUDA_ERROR_NOT_SUPPORTED;            \
    return after_call(result == CUDA_ERROR_NOT_SUPPORTED ? driver().symbol(address, bytes, pool, stream) : result); \
  }
TESSERA_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync, false)
TESSERA_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

#define TESSERA_FREE_ORDERED(symbol, per_thread)                                                                     \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr address, CUstream stream) {                               \
    return free_in_order(address, normalized(stream, per_thread), [&] { return driver().symbol(address, stream); }); \
  }
TESSERA_FREE_ORDERED(cuMemFreeAsync, false)
TESSERA_FREE_ORDERED(cuMemFreeAsync_ptsz, true)

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  if (runtime().active() && world().memory.in_slot(address)) {
    const std::lock_guard lock(world().mutex);
    if (const auto allocation = world().memory.find(address)) {
      if (base != nullptr) *base = allocation->begin;
      if (size != nullptr) *size = allocation->size();
      return after_call(CUDA_SUCCESS);
    }
  }
  return after_call(driver().cuMemGetAddressRange_v2(base, size, address));
}

namespace {

/// What differs between memory of cuMemAlloc and a mapped piece of the slot.
/// False: the driver's answer is right as it stands.
bool slot_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (data == nullptr || !world().memory.in_slot(address)) return false;
  const std::lock_guard lock(world().mutex);
  const auto allocation = world().memory.find(address);
  const auto owner = world().memory.owner_of(address);
  if (!allocation || !owner) return false;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = owner->context;
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = owner->id;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = allocation->begin;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = allocation->size();
      return true;
    default:
      return false;
  }
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                                            CUdeviceptr address) {
  const CUresult result = driver().cuPointerGetAttribute(data, attribute, address);
  if (runtime().active() && slot_attribute(data, attribute, address)) return after_call(CUDA_SUCCESS);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                                             void** data, CUdeviceptr address) {
  const CUresult result = driver().cuPointerGetAttributes(count, attributes, data, address);
  if (result == CUDA_SUCCESS && runtime().active()) {
    for (unsigned int i = 0; i < count; ++i) slot_attribute(data[i], attributes[i], address);
  }
  return after_call(result);
}
