// SPDX-License-Identifier: Apache-2.0
// Memory that others can reach. What cuMemAlloc gives is reachable by every peer
// that asked; a mapped piece of the slot has to be told of each. And memory of
// which a handle was given away can change unseen: it stays home from then on.
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

/// Makes a call that gives away a handle to the memory at `address`.
template <class Call>
CUresult expose(CUdeviceptr address, Call&& call) {
  if (!runtime().active() || !world().memory.may_move(address)) return after_call(call());
  {
    // First: whatever becomes of the call, a launch after it finds the memory staying home.
    const std::lock_guard lock(world().mutex);
    world().memory.expose(address);
  }
  const CUresult home = enqueue(nullptr, false, anything, [] { return CUDA_SUCCESS; });
  return home == CUDA_SUCCESS ? after_call(call()) : home;
}

/// The same for all of a range.
template <class Call>
CUresult expose_all(CUdeviceptr address, uint64_t size, Call&& call) {
  if (!runtime().active() || !world().memory.may_move(address)) return after_call(call());
  const Range range{address, address + size};
  {
    const std::lock_guard lock(world().mutex);
    world().memory.expose(range);
  }
  const CUresult home = bring_to_rest({range});
  return after_call(home == CUDA_SUCCESS ? call() : home);
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t size,
                                                                    CUmemRangeHandleType type,
                                                                    unsigned long long flags) {
  return expose_all(address, size,
                    [&] { return driver().cuMemGetHandleForAddressRange(handle, address, size, type, flags); });
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset,
                                                          CUdeviceptr address, size_t size, unsigned long long flags) {
  return expose_all(address, size,
                    [&] { return driver().cuMulticastBindAddr(multicast, offset, address, size, flags); });
}

namespace {

/// A wait for memory in which a kernel may write: the kernel has to stay home for the wait to see it.
template <class Call>
CUresult wait_for_value(CUstream stream, bool per_thread, CUdeviceptr address, Call&& call) {
  return expose(address, [&] { return enqueue_waiting(stream, per_thread, anything, call); });
}

CUdeviceptr waited_for(const CUstreamBatchMemOpParams& operation) {
  const bool waits =
      operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  return waits ? operation.waitValue.address : 0;
}

template <class Call>
CUresult wait_for_values(CUstream stream, bool per_thread, unsigned int count, CUstreamBatchMemOpParams* operations,
                         Call&& call) {
  constexpr unsigned int kMost = 256;  // a driver refuses more without a look at them, and so there may be fewer
  for (unsigned int i = 0; operations != nullptr && count <= kMost && i < count; ++i) {
    const CUresult exposed = expose(waited_for(operations[i]), [] { return CUDA_SUCCESS; });
    if (exposed != CUDA_SUCCESS) return exposed;
  }
  return wait_for_value(stream, per_thread, 0, call);
}

}  // namespace

#define TESSERA_WAIT_VALUE(symbol, Value, per_thread)                                             \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUdeviceptr address, Value value, \
                                               unsigned int flags) {                              \
    return wait_for_value(stream, per_thread, address,                                            \
                          [&] { return driver().symbol(stream, address, value, flags); });        \
  }
TESSERA_WAIT_VALUE(cuStreamWaitValue32, cuuint32_t, false)
TESSERA_WAIT_VALUE(cuStreamWaitValue32_v2, cuuint32_t, false)
TESSERA_WAIT_VALUE(cuStreamWaitValue32_ptsz, cuuint32_t, true)
TESSERA_WAIT_VALUE(cuStreamWaitValue32_v2_ptsz, cuuint32_t, true)
TESSERA_WAIT_VALUE(cuStreamWaitValue64, cuuint64_t, false)
TESSERA_WAIT_VALUE(cuStreamWaitValue64_v2, cuuint64_t, false)
TESSERA_WAIT_VALUE(cuStreamWaitValue64_ptsz, cuuint64_t, true)
TESSERA_WAIT_VALUE(cuStreamWaitValue64_v2_ptsz, cuuint64_t, true)

#define TESSERA_BATCH_MEM_OP(symbol, per_thread)                                                           \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, unsigned int count,                        \
                                               CUstreamBatchMemOpParams* operations, unsigned int flags) { \
    return wait_for_values(stream, per_thread, count, operations,                                          \
                           [&] { return driver().symbol(stream, count, operations, flags); });             \
  }
TESSERA_BATCH_MEM_OP(cuStreamBatchMemOp, false)
TESSERA_BATCH_MEM_OP(cuStreamBatchMemOp_v2, false)
TESSERA_BATCH_MEM_OP(cuStreamBatchMemOp_ptsz, true)
TESSERA_BATCH_MEM_OP(cuStreamBatchMemOp_v2_ptsz, true)

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

// A part of a device, with streams of its own that use the same memory. What is elsewhere comes home before the first
// of them can touch it: they are no streams of the context that its bytes are followed in.
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description,
                                                       CUdevice device, unsigned int flags) {
  if (!runtime().active()) return driver().cuGreenCtxCreate(context, description, device, flags);
  runtime().saw_green_context();
  CUcontext current = nullptr;
  if (!world().calm() && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) {
    context_leaves(current);
  }
  return after_call(driver().cuGreenCtxCreate(context, description, device, flags));
}
