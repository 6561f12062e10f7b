// SPDX-License-Identifier: Apache-2.0
// Allocations. Device memory comes from the program's slot of addresses where
// the device can export memory; everything else is the driver's, and kernels
// that use it stay home.
#include <algorithm>

#include "context.h"
#include "driver.h"
#include "imported_memory.h"
#include "order.h"
#include "own_events.h"
#include "session.h"

using namespace tessera::shim;

namespace {

/// Whether the call may be served from the slot. Inside a capture an allocation
/// is a node of the graph, and beside one it may be an error: both are the driver's.
bool serves() {
  return runtime().active() && world().memory.started() && world().captures.load(std::memory_order_acquire) == 0;
}

void report_memory() { report_arena(world().memory.mapped_bytes(), world().memory.used_bytes()); }

/// Frees what could not be freed while something was captured. False when there is nothing of the kind.
bool free_what_waits() {
  if (!world().memory.has_deferred() || cuCtxSynchronize() != CUDA_SUCCESS) return false;
  const std::lock_guard lock(world().mutex);
  world().memory.free_deferred();
  return true;
}

/// False where the driver would refuse whatever is asked of it: the context is gone, or a kernel has failed.
bool context_is_well() {
  const CUresult result = driver().cuStreamQuery(CU_STREAM_LEGACY);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
}

/// CUDA_ERROR_NOT_SUPPORTED: ask the driver.
CUresult allocate(CUdeviceptr* address, uint64_t bytes) {
  if (address == nullptr || bytes == 0 || !serves() || !context_is_well()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto attempt = [&] {
    const std::lock_guard lock(world().mutex);
    return world().memory.allocate(bytes, address);
  };
  CUresult result = attempt();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && free_what_waits()) result = attempt();
  const std::lock_guard lock(world().mutex);
  report_memory();
  return result;
}

bool owns(CUdeviceptr address) {
  if (!runtime().active() || !world().memory.in_slot(address)) return false;
  const std::lock_guard lock(world().mutex);
  const auto allocation = world().memory.find(address);
  return allocation && allocation->begin == address && world().memory.owner_of(address);
}

/// What the driver says to a free at a time when something is captured: for some threads it is an error.
CUresult free_is_allowed() {
  CUdeviceptr probe = 0;
  const CUresult result = driver().cuMemAlloc_v2(&probe, 1);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? driver().cuMemFree_v2(probe) : result;
}

/// Waits for the context in which the memory was allocated: that of the caller may be another, or none.
CUresult wait_for_owner(CUdeviceptr address) {
  DeviceMemory::Owner owner;
  {
    const std::lock_guard lock(world().mutex);
    owner = world().memory.owner_of(address).value_or(DeviceMemory::Owner{});
  }
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == owner.context) return cuCtxSynchronize();
  const Entered entered(owner.context);
  if (!entered) return entered.result();
  const CUresult result = cuCtxSynchronize();
  // Memory in stream order belongs to the device: it outlives the context, whose work has ended with it.
  return owner.ordered && result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_SUCCESS : result;
}

/// cuMemFree waits for the device, so that memory still in use is not given out
/// again. While a stream is captured it cannot, and the memory waits instead.
CUresult release(CUdeviceptr address) {
  World& all = world();
  const bool capturing = all.captures.load(std::memory_order_acquire) != 0;
  const CUresult allowed = capturing ? free_is_allowed() : wait_for_owner(address);
  if (allowed != CUDA_SUCCESS) return allowed;
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
  if (address == nullptr || bytes == 0 || !serves()) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(world().mutex);
  const CUresult result = world().memory.allocate_ordered(bytes, world().streams.get(handle).id, address);
  report_memory();
  return result;
}

CUresult free_ordered(CUdeviceptr address, CUstream handle) {
  const std::lock_guard lock(world().mutex);
  World& all = world();
  StreamState& stream = all.streams.get(handle);
  // Whatever is still under way to or from these bytes, in any stream, comes before their next user.
  const auto block = all.memory.find(address);
  const Footprint footprint = block ? writing(block->begin, block->size()) : nothing();
  if (const CUresult ready = Coherence(all).before_home(stream, footprint); ready != CUDA_SUCCESS) return ready;
  CUevent freed = nullptr;
  CUresult result = own_events().ordering(&freed);
  if (result != CUDA_SUCCESS) return result;
  activity().bump(handle);
  result = driver().cuEventRecord(freed, handle);
  if (result != CUDA_SUCCESS) {
    own_events().discard(freed);
    return result;
  }
  if (const auto range = all.memory.free_ordered(address, stream.id, freed)) {
    all.directory.forget(*range);
    all.rest();
    return CUDA_SUCCESS;
  }
  own_events().discard(freed);
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
  if (owns(address)) return after_call(release(address));
  // The driver knows the slot as mapped memory: a free of what is free already means nothing to it.
  const bool stale = runtime().active() && world().memory.in_slot(address);
  return after_call(driver().cuMemFree_v2(stale ? kNowhere : address));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = driver().cuMemGetInfo_v2(free, total);
  CUdevice device = -1;
  if (result == CUDA_SUCCESS && free != nullptr && runtime().active() &&
      driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    const std::lock_guard lock(world().mutex);
    *free += world().memory.unused_bytes(device);  // mapped, but free to the program
  }
  return after_call(result);
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
