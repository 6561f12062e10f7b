// SPDX-License-Identifier: Apache-2.0
#include "api.h"
#include "device.h"
#include "event.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

namespace tessera::sim {

Event& event_of(CUevent handle) {
  Event& event = from_handle<Event>(handle);
  event.context().check_alive(event.context_generation());
  event.context().device().check_fault();
  return event;
}

}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return api([&] {
    Context& context = current_context();
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    require(phEvent != nullptr && (Flags & ~kKnown) == 0);
    require((Flags & CU_EVENT_INTERPROCESS) == 0 || (Flags & CU_EVENT_DISABLE_TIMING) != 0);
    const std::lock_guard lock(context.objects_mutex);
    *phEvent = to_handle<CUevent>(new Event(context, Flags));
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return api([&] {
    Event& event = event_of(hEvent);
    {
      const std::lock_guard lock(event.context().objects_mutex);
      require(event.kill(Event::kTag), CUDA_ERROR_INVALID_HANDLE);
    }
    event.release();
  });
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return api([&] {
    Event& event = event_of(hEvent);
    Stream& stream = stream_of(hStream);
    require((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) == 0);
    require(&event.context().device() == &stream.context().device(), CUDA_ERROR_INVALID_HANDLE);
    record_event(event, stream, flags);
  });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return cuEventRecordWithFlags(hEvent, hStream, 0); }

CUresult cuEventQuery(CUevent hEvent) {
  return api([&]() -> CUresult {
    const Event& event = event_of(hEvent);
    const Event::Record record = event.record();
    check_event_not_captured(record);
    check_capture_allows_unsafe_call();
    if (!record.op) return CUDA_SUCCESS;
    if (!record.op->done()) return CUDA_ERROR_NOT_READY;
    record.op->wait_on_host();
    return event.context().device().fault();
  });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return api([&]() -> CUresult {
    const Event& event = event_of(hEvent);
    const Event::Record record = event.record();
    check_event_not_captured(record);
    check_capture_allows_unsafe_call();
    if (!record.op) return CUDA_SUCCESS;
    const Ref<Context> context = Ref<Context>::share(&event.context());  // the event may be destroyed meanwhile
    record.op->wait_on_host();
    context->flush_prints();
    return context->device().fault();
  });
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return api([&]() -> CUresult {
    const Event &start = event_of(hStart), &end = event_of(hEnd);
    const Ref<Op> from = start.record().op, to = end.record().op;
    require(pMilliseconds != nullptr && start.timing() && end.timing() && from && to, CUDA_ERROR_INVALID_HANDLE);
    require(&start.context().device() == &end.context().device(), CUDA_ERROR_INVALID_HANDLE);
    if (!from->done() || !to->done()) return CUDA_ERROR_NOT_READY;
    *pMilliseconds = static_cast<float>(static_cast<double>(to->end() - from->end()) * 1e-9);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return api([&] {
    require(pHandle != nullptr);
    require(event_of(event).interprocess(), CUDA_ERROR_INVALID_HANDLE);
    fail_unsupported("cuIpcGetEventHandle");
  });
}
