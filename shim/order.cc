// SPDX-License-Identifier: Apache-2.0
#include "order.h"

#include "driver.h"
#include "registry.h"

namespace tessera::shim {

CUresult prepare_home(CUstream stream, const Footprint& footprint) {
  if (is_capturing(stream)) return CUDA_SUCCESS;
  return Coherence(world()).before_home(world().streams.get(stream), footprint);
}

CUresult opaque_call(CUstream stream, bool per_thread, CUresult (*call)(void*), void* argument) {
  return enqueue(stream, per_thread, anything, [&] { return call(argument); });
}

CUresult after_call(CUresult result) {
  const CUresult failure = world().failure();
  if (failure == CUDA_SUCCESS) [[likely]]
    return result;
  return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ? failure : result;
}

void context_leaves(CUcontext context) {
  forget_context(context);
  const std::lock_guard lock(world().mutex);
  CUcontext current = nullptr;
  // Another context's streams cannot be waited in from here; the driver ends their work with the context.
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) Coherence(world()).join_all();
}

void context_left(CUcontext context) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  for (const CUdeviceptr address : all.memory.owned_by(context)) {
    if (const auto freed = all.memory.free(address)) all.directory.forget(*freed);
  }
  all.streams.for_each([&](StreamState& stream) {
    if (stream.context == context && stream.unjoined != 0) --all.unjoined_streams;
  });
  all.streams.erase_context(context);
  // The flags were registered in a context that may be this one: workers are attached anew when next needed.
  all.detach_workers();
  all.rest();
}

}  // namespace tessera::shim
