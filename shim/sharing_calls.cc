// SPDX-License-Identifier: Apache-2.0
// Memory that others can reach. What cuMemAlloc gives is reachable by every peer
// that asked; a mapped piece of the slot has to be told of each. And memory of
// which a handle was given away can change unseen: it stays home from then on.
#include "driver.h"
#include "imported_memory.h"
#include "order.h"

using namespace tessera::shim;

namespace {

/// The device of a context. Precondition: some context is current.
CUresult device_of(CUcontext context, CUdevice* device) {
  CUresult result = driver().cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuCtxGetDevice(device);
  CUcontext popped = nullptr;
  const CUresult restored = driver().cuCtxPopCurrent_v2(&popped);
  return result == CUDA_SUCCESS ? restored : result;
}

/// Makes a call that gives away a handle to the memory at `address`.
template <class Call>
CUresult expose(CUdeviceptr address, Call&& call) {
  if (!runtime().active() || !world().memory.in_slot(address)) return after_call(call());
  {
    // First: whatever becomes of the call, a launch after it finds the memory staying home.
    const std::lock_guard lock(world().mutex);
    world().memory.expose(address);
  }
  const CUresult home = enqueue(nullptr, false, anything, [] { return CUDA_SUCCESS; });
  return home == CUDA_SUCCESS ? after_call(call()) : home;
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  // Memory of cuMemAlloc has no such handle, and the driver says so of any address that it did not map.
  const auto device_address = reinterpret_cast<CUdeviceptr>(address);
  const bool in_slot = runtime().active() && world().memory.in_slot(device_address);
  return after_call(
      driver().cuMemRetainAllocationHandle(handle, in_slot ? reinterpret_cast<void*>(kNowhere) : address));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t size,
                                                                    CUmemRangeHandleType type,
                                                                    unsigned long long flags) {
  return expose(address, [&] { return driver().cuMemGetHandleForAddressRange(handle, address, size, type, flags); });
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset,
                                                          CUdeviceptr address, size_t size, unsigned long long flags) {
  return expose(address, [&] { return driver().cuMulticastBindAddr(multicast, offset, address, size, flags); });
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  const CUresult result = driver().cuCtxEnablePeerAccess(peer, flags);
  if (result != CUDA_SUCCESS || !runtime().active()) return after_call(result);
  CUdevice owner = -1, accessor = -1;
  if (driver().cuCtxGetDevice(&accessor) != CUDA_SUCCESS || device_of(peer, &owner) != CUDA_SUCCESS) {
    return after_call(result);
  }
  const std::lock_guard lock(world().mutex);
  return after_call(world().memory.grant(owner, accessor));
}
