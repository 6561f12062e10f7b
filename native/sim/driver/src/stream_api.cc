// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api.h"
#include "device.h"
#include "event.h"
#include "stream.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

constexpr int kGreatestPriority = -5;

Stream& created_stream(CUstream handle) {
  Stream& stream = from_handle<Stream>(handle);
  stream.context().check_alive(stream.context_generation());
  stream.context().device().check_fault();
  return stream;
}

bool busy(const Stream& stream) {
  if (!stream.idle()) return true;
  if (stream.kind() != Stream::Kind::kLegacy) return false;
  const auto operations = stream.context().last_blocking_operations();
  return std::any_of(operations.begin(), operations.end(), [](const Ref<Op>& op) { return !op->done(); });
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return api([&] {
    Context& context = current_context();
    require(phStream != nullptr && (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) == 0);
    Ref<Stream> stream(new Stream(context, Stream::Kind::kCreated, flags, std::clamp(priority, kGreatestPriority, 0)));
    context.add_stream(*stream);
    *phStream = to_handle<CUstream>(stream.detach());
  });
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return api([&] {
    Stream& stream = created_stream(hStream);
    abandon_capture(stream);
    require(stream.kill(Stream::kTag), CUDA_ERROR_INVALID_HANDLE);
    stream.context().remove_stream(stream);
    stream.release();
  });
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return api([&] {
    const Stream& stream = stream_of(hStream);
    require(priority != nullptr);
    *priority = stream.priority();
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return api([&] {
    const Stream& stream = stream_of(hStream);
    require(flags != nullptr);
    *flags = stream.flags();
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return api([&] {
    const Stream& stream = stream_of(hStream);
    require(streamId != nullptr);
    *streamId = stream.id();
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return api([&] {
    const Stream& stream = stream_of(hStream);
    require(device != nullptr);
    *device = stream.context().device().index();
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return api([&] {
    const Stream& stream = stream_of(hStream);
    require(pctx != nullptr);
    *pctx = to_handle<CUcontext>(&stream.context());
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return api([&] {
    stream_of(hStream);
    require(phCtx != nullptr);
    *phCtx = nullptr;
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  return api([&]() -> CUresult {
    Stream& stream = stream_of(hStream);
    check_not_capturing(stream);
    check_legacy_allowed(stream);
    check_capture_allows_unsafe_call();
    if (busy(stream)) return CUDA_ERROR_NOT_READY;
    if (const Ref<Op> op = stream.last()) op->wait_on_host();
    return stream.context().device().fault();
  });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return api([&]() -> CUresult {
    Stream& stream = stream_of(hStream);
    check_not_capturing(stream);
    check_legacy_allowed(stream);
    check_capture_allows_unsafe_call();
    const Ref<Context> context = Ref<Context>::share(&stream.context());
    const Ref<Stream> kept = Ref<Stream>::share(&stream);
    kept->synchronize();
    context->flush_prints();
    return context->device().fault();
  });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    const Event& event = event_of(hEvent);
    require((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) == 0);
    wait_event(stream, event, Flags);
  });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(callback != nullptr && flags == 0);
    check_not_capturing(stream);
    submit(stream, std::make_shared<CallbackTask>(hStream, callback, userData));
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(fn != nullptr);
    submit(stream, std::make_shared<HostTask>(fn, userData));
  });
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t, unsigned int flags) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE);
    const MemoryPtr memory = address_map().find(dptr);
    require(memory != nullptr && memory->kind == MemoryKind::kManaged);
    submit(stream, MarkerTask::get());
  });
}

namespace {

bool known_attribute(CUstreamAttrID attribute) {
  switch (static_cast<int>(attribute)) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(value_out != nullptr && known_attribute(attr));
    const std::lock_guard lock(stream.attributes_mutex);
    const auto set = stream.attributes.find(attr);
    *value_out = {};
    if (set != stream.attributes.end()) {
      *value_out = set->second;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      value_out->priority = stream.priority();
    } else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
      value_out->syncPolicy = CU_SYNC_POLICY_AUTO;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
      value_out->memSyncDomainMap.remote = 1;
    }
  });
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(value != nullptr && known_attribute(attr));
    const std::lock_guard lock(stream.attributes_mutex);
    stream.attributes[attr] = *value;
  });
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  return api([&] {
    Stream &to = stream_of(dst), &from = stream_of(src);
    if (&to == &from) return;
    const std::scoped_lock lock(to.attributes_mutex, from.attributes_mutex);
    to.attributes = from.attributes;
  });
}
