// SPDX-License-Identifier: Apache-2.0
// cuCtxDetach, from before cuCtxDestroy could be called from anywhere: it lets
// go of one use of a context, and the last one takes the context along.
#include "context.h"
#include "driver.h"
#include "order.h"
#include "registry.h"

using namespace tessera::shim;

namespace {

bool is_gone(CUcontext context) {
  const Entered entered(context);
  if (!entered) return true;
  const CUresult state = driver().cuStreamQuery(CU_STREAM_LEGACY);
  return state == CUDA_ERROR_CONTEXT_IS_DESTROYED || state == CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxDetach(CUcontext context) {
  if (!runtime().active() || context == nullptr) return driver().cuCtxDetach(context);
  const Belongings belongings = context_leaves(context);
  const CUresult result = driver().cuCtxDetach(context);
  if (result == CUDA_SUCCESS && is_gone(context)) {
    forget_context(context);
    context_left(context, belongings);
  }
  return result;
}
