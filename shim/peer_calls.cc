// SPDX-License-Identifier: Apache-2.0
// Peer access. What cuMemAlloc gives is reachable by every peer that asked; a
// mapped piece of the slot has to be told of each.
#include "driver.h"
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

}  // namespace

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
