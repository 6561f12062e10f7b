// SPDX-License-Identifier: Apache-2.0
#include "api.h"
#include "context.h"
#include "device.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

CUresult create_context(CUcontext* out, unsigned flags, CUdevice dev) {
  return api([&] {
    Device& device = device_of(dev);
    require(out != nullptr);
    require((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
            (flags & CU_CTX_SCHED_MASK) <= CU_CTX_SCHED_BLOCKING_SYNC && (flags & CU_CTX_SCHED_MASK) != 3);
    device.check_fault();
    Context* const context = new Context(device, false);  // never freed: a destroyed handle is still recognised
    context->start(flags);
    thread_state().contexts.push_back(Ref<Context>::share(context));
    *out = to_handle<CUcontext>(context);
  });
}

Context& context_or_current(CUcontext ctx) {
  return ctx == nullptr ? current_context() : from_handle<Context>(ctx, CUDA_ERROR_INVALID_CONTEXT);
}

void synchronize(Context& context) {
  context.check_alive();
  check_context_not_capturing(context);
  check_capture_allows_unsafe_call();
  context.synchronize();
  context.device().check_fault();
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) { return create_context(pctx, flags, dev); }

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags, CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create_context(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags, CUdevice dev) {
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr)) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  return create_context(pctx, flags, dev);
}

// Every use of a context counts once: cuCtxAttach, which adds to it, is not simulated.
CUresult cuCtxDetach(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return api([&] {
    require(ctx != nullptr);
    Context& context = from_handle<Context>(ctx, CUDA_ERROR_INVALID_CONTEXT);
    require(!context.primary(), CUDA_ERROR_INVALID_CONTEXT);
    context.check_alive();
    context.tear_down();
    auto& stack = thread_state().contexts;
    if (!stack.empty() && stack.back().get() == &context) stack.pop_back();
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return api([&] {
    require(ctx != nullptr);
    thread_state().contexts.push_back(Ref<Context>::share(&from_handle<Context>(ctx, CUDA_ERROR_INVALID_CONTEXT)));
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return api([&] {
    auto& stack = thread_state().contexts;
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (pctx != nullptr) *pctx = to_handle<CUcontext>(stack.back().get());
    stack.pop_back();
  });
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return api([&] {
    thread_state().set_current(ctx == nullptr ? nullptr : &from_handle<Context>(ctx, CUDA_ERROR_INVALID_CONTEXT));
  });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return api([&] {
    require(pctx != nullptr);
    Context* context = thread_state().current_or_null();
    *pctx = context == nullptr ? nullptr : to_handle<CUcontext>(context);
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return api([&] {
    Context* context = thread_state().current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    require(device != nullptr);
    *device = context->device().index();
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  return api([&] {
    require(device != nullptr);
    *device = from_handle<Context>(ctx, CUDA_ERROR_INVALID_CONTEXT).device().index();
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return api([&] {
    Context& context = current_context();
    require(flags != nullptr);
    *flags = context.flags.load() | CU_CTX_MAP_HOST;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return api([&] {
    Context& context = current_context();
    require((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0);
    context.flags.store(flags);
  });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return api([&] {
    require(ctxId != nullptr);
    *ctxId = context_or_current(ctx).id();
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return api([&] {
    context_or_current(ctx);
    require(version != nullptr);
    *version = 3020;
  });
}

CUresult cuCtxSynchronize() {
  return api([&] { synchronize(current_context()); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return api([&] { synchronize(context_or_current(ctx)); });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return api([&] {
    Context& context = current_context();
    require(pvalue != nullptr);
    require(limit >= 0 && limit <= CU_LIMIT_CIG_ENABLED, CUDA_ERROR_UNSUPPORTED_LIMIT);
    const bool gone = limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH && context.device().model().major >= 9;
    require(!gone, CUDA_ERROR_UNSUPPORTED_LIMIT);
    const std::lock_guard lock(context.limits_mutex);
    *pvalue = context.limits[static_cast<size_t>(limit)];
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return api([&] {
    Context& context = current_context();
    require(limit >= 0 && limit <= CU_LIMIT_CIG_ENABLED, CUDA_ERROR_UNSUPPORTED_LIMIT);
    const std::lock_guard lock(context.limits_mutex);
    context.limits[static_cast<size_t>(limit)] = value;
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return api([&] {
    Context& context = current_context();
    require(pconfig != nullptr);
    *pconfig = context.cache_config.load();
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return api([&] {
    Context& context = current_context();
    require(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
    context.cache_config.store(config);
  });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return api([&] {
    current_context();
    require(pConfig != nullptr);
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  return api([&] { current_context(); });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return api([&] {
    current_context();
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
  });
}

CUresult cuCtxResetPersistingL2Cache() {
  return api([&] { current_context(); });
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  return api([&] {
    Context& context = current_context();
    require(pExecAffinity != nullptr && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = context.device().model().multiprocessors;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return api([&] {
    Context& context = current_context();
    Context& peer = from_handle<Context>(peerContext, CUDA_ERROR_INVALID_CONTEXT);
    require(Flags == 0);
    require(&peer.device() != &context.device(), CUDA_ERROR_INVALID_DEVICE);
    const uint32_t bit = 1u << static_cast<unsigned>(peer.device().index());
    require((context.peers.fetch_or(bit) & bit) == 0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return api([&] {
    Context& context = current_context();
    Context& peer = from_handle<Context>(peerContext, CUDA_ERROR_INVALID_CONTEXT);
    const uint32_t bit = 1u << static_cast<unsigned>(peer.device().index());
    require((context.peers.load() & bit) != 0, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context.synchronize();
    context.peers.fetch_and(~bit);
  });
}
