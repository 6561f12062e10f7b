// SPDX-License-Identifier: Apache-2.0
// Streams, events, contexts, host functions, graphs: what orders work.
#include "driver.h"
#include "order.h"
#include "own_events.h"
#include "registry.h"
#include "session.h"

using namespace tessera::shim;

namespace {

CUresult join_stream(CUstream stream, bool per_thread, Coherence& coherence) {
  const CUstream handle = normalized(stream, per_thread);
  if (is_capturing(handle)) return CUDA_SUCCESS;
  return coherence.join(world().streams.get(handle));
}

/// Retires what is known of a stream; its work goes on. Workers finish its lanes by themselves.
void forget_stream(CUstream stream) {
  const std::lock_guard lock(world().mutex);
  activity().retire(stream);
  StreamState* state = world().streams.find(stream);
  if (state == nullptr) return;
  Coherence coherence(world());
  // An error here is found again by whoever waits for the work.
  if (!is_capturing(stream)) (void)coherence.join(*state);
  if (state->unjoined != 0) --world().unjoined_streams;
  for (uint32_t index = 0; index < TS_MAX_DEVICES; ++index) {
    if (state->lanes[index] < 0) continue;
    if (WorkerLink* worker = world().worker(index)) worker->retire_lane(state->lanes[index]);
  }
  if (state->barrier != nullptr) own_events().discard(state->barrier);
  world().streams.erase(stream);
}

template <class Call>
CUresult begin_capture(CUstream stream, bool per_thread, Call&& call) {
  const CUresult result = enqueue(stream, per_thread, nothing, [&] {
    const CUresult began = call();
    if (began == CUDA_SUCCESS) world().captures.fetch_add(1, std::memory_order_acq_rel);
    return began;
  });
  return result;
}

template <class Call>
CUresult end_capture(CUstream stream, bool per_thread, Call&& call) {
  const CUstream handle = normalized(stream, per_thread);
  CUstreamCaptureStatus before = CU_STREAM_CAPTURE_STATUS_NONE, after = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool known = driver().cuStreamIsCapturing(handle, &before) == CUDA_SUCCESS;
  const CUresult result = call();
  const bool ended = driver().cuStreamIsCapturing(handle, &after) == CUDA_SUCCESS &&
                     after == CU_STREAM_CAPTURE_STATUS_NONE && before != CU_STREAM_CAPTURE_STATUS_NONE;
  // A count that stays too high costs a question per call, one that falls too low would be wrong.
  if (known && ended) world().captures.fetch_sub(1, std::memory_order_acq_rel);
  return after_call(result);
}

}  // namespace

#define TESSERA_STREAM_SYNCHRONIZE(symbol, per_thread)                                                   \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream) {                                        \
    return synchronize([&](Coherence& coherence) { return join_stream(stream, per_thread, coherence); }, \
                       [&] { return driver().symbol(stream); });                                         \
  }
TESSERA_STREAM_SYNCHRONIZE(cuStreamSynchronize, false)
TESSERA_STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz, true)
TESSERA_STREAM_SYNCHRONIZE(cuStreamQuery, false)
TESSERA_STREAM_SYNCHRONIZE(cuStreamQuery_ptsz, true)

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxSynchronize() {
  return synchronize([](Coherence& coherence) { return coherence.join_all(); },
                     [] { return driver().cuCtxSynchronize(); });
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) {
  return synchronize([](Coherence& coherence) { return coherence.join_all(); },
                     [&] { return driver().cuCtxSynchronize_v2(context); });
}

// The join went before the record: the event itself holds all that has to be waited for.
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  return synchronize([](Coherence&) { return CUDA_SUCCESS; }, [&] { return driver().cuEventSynchronize(event); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuEventQuery(CUevent event) {
  return synchronize([](Coherence&) { return CUDA_SUCCESS; }, [&] { return driver().cuEventQuery(event); });
}

#define TESSERA_STREAM_WAIT_EVENT(symbol, per_thread)                                                   \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUevent event, unsigned int flags) {    \
    return enqueue(stream, per_thread, nothing, [&] { return driver().symbol(stream, event, flags); }); \
  }
TESSERA_STREAM_WAIT_EVENT(cuStreamWaitEvent, false)
TESSERA_STREAM_WAIT_EVENT(cuStreamWaitEvent_ptsz, true)

#define TESSERA_EVENT_RECORD(symbol, per_thread)                                                 \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUevent event, CUstream stream) {                 \
    return enqueue(stream, per_thread, nothing, [&] { return driver().symbol(event, stream); }); \
  }
TESSERA_EVENT_RECORD(cuEventRecord, false)
TESSERA_EVENT_RECORD(cuEventRecord_ptsz, true)

#define TESSERA_EVENT_RECORD_FLAGS(symbol, per_thread)                                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUevent event, CUstream stream, unsigned int flags) {    \
    return enqueue(stream, per_thread, nothing, [&] { return driver().symbol(event, stream, flags); }); \
  }
TESSERA_EVENT_RECORD_FLAGS(cuEventRecordWithFlags, false)
TESSERA_EVENT_RECORD_FLAGS(cuEventRecordWithFlags_ptsz, true)

// A host function sees host memory alone, and that of earlier operations of its stream.
#define TESSERA_HOST_FUNCTION(symbol, per_thread)                                                                 \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUhostFn function, void* data) {                  \
    return enqueue_waiting(stream, per_thread, nothing, [&] { return driver().symbol(stream, function, data); }); \
  }
TESSERA_HOST_FUNCTION(cuLaunchHostFunc, false)
TESSERA_HOST_FUNCTION(cuLaunchHostFunc_ptsz, true)

#define TESSERA_STREAM_CALLBACK(symbol, per_thread)                                                    \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUstreamCallback callback, void* data, \
                                               unsigned int flags) {                                   \
    return enqueue_waiting(stream, per_thread, nothing,                                                \
                           [&] { return driver().symbol(stream, callback, data, flags); });            \
  }
TESSERA_STREAM_CALLBACK(cuStreamAddCallback, false)
TESSERA_STREAM_CALLBACK(cuStreamAddCallback_ptsz, true)

#define TESSERA_STREAM_DESTROY(symbol)                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream) {       \
    if (stream != nullptr && runtime().active()) forget_stream(stream); \
    return after_call(driver().symbol(stream));                         \
  }
TESSERA_STREAM_DESTROY(cuStreamDestroy)
TESSERA_STREAM_DESTROY(cuStreamDestroy_v2)

#define TESSERA_BEGIN_CAPTURE(symbol, per_thread)                                            \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUstreamCaptureMode mode) {  \
    return begin_capture(stream, per_thread, [&] { return driver().symbol(stream, mode); }); \
  }
TESSERA_BEGIN_CAPTURE(cuStreamBeginCapture_v2, false)
TESSERA_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true)

#define TESSERA_BEGIN_CAPTURE_OLD(symbol, per_thread)                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream) {                      \
    return begin_capture(stream, per_thread, [&] { return driver().symbol(stream); }); \
  }
TESSERA_BEGIN_CAPTURE_OLD(cuStreamBeginCapture, false)
TESSERA_BEGIN_CAPTURE_OLD(cuStreamBeginCapture_ptsz, true)

#define TESSERA_BEGIN_CAPTURE_TO_GRAPH(symbol, per_thread)                                                             \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,        \
                                               const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) { \
    return begin_capture(stream, per_thread,                                                                           \
                         [&] { return driver().symbol(stream, graph, dependencies, edges, count, mode); });            \
  }
TESSERA_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, false)
TESSERA_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, true)

#define TESSERA_END_CAPTURE(symbol, per_thread)                                             \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUstream stream, CUgraph* graph) {           \
    return end_capture(stream, per_thread, [&] { return driver().symbol(stream, graph); }); \
  }
TESSERA_END_CAPTURE(cuStreamEndCapture, false)
TESSERA_END_CAPTURE(cuStreamEndCapture_ptsz, true)

#define TESSERA_GRAPH_LAUNCH(symbol, per_thread)                                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUgraphExec graph, CUstream stream) {              \
    count_graph_launch();                                                                         \
    return enqueue(stream, per_thread, anything, [&] { return driver().symbol(graph, stream); }); \
  }
TESSERA_GRAPH_LAUNCH(cuGraphLaunch, false)
TESSERA_GRAPH_LAUNCH(cuGraphLaunch_ptsz, true)

// Every stream of the context takes part.
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxRecordEvent(CUcontext context, CUevent event) {
  return synchronize([](Coherence& coherence) { return coherence.join_all(); },
                     [&] { return driver().cuCtxRecordEvent(context, event); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxWaitEvent(CUcontext context, CUevent event) {
  activity().bump(CU_STREAM_LEGACY);
  return after_call(driver().cuCtxWaitEvent(context, event));
}

namespace {

template <class Call>
CUresult destroy_context(CUcontext context, Call&& call) {
  if (!runtime().active() || context == nullptr) return call();
  const Belongings belongings = context_leaves(context);
  forget_context(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) context_left(context, belongings);
  return result;
}

/// The primary context of a device goes when `call` leaves it inactive.
template <class Call>
CUresult let_go_of_primary(CUdevice device, Call&& call) {
  unsigned flags = 0;
  int was_active = 0, is_active = 0;
  CUcontext context = nullptr;
  if (!runtime().active() || driver().cuDevicePrimaryCtxGetState(device, &flags, &was_active) != CUDA_SUCCESS ||
      was_active == 0 || driver().cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
    return call();
  }
  // Only asked for its handle: the reference goes back at once, and the program's own keeps it alive.
  driver().cuDevicePrimaryCtxRelease_v2(device);
  const Belongings belongings = context_leaves(context);
  const CUresult result = call();
  if (driver().cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS && is_active == 0) {
    forget_context(context);
    context_left(context, belongings);
  }
  return result;
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
  return destroy_context(context, [&] { return driver().cuCtxDestroy(context); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  return destroy_context(context, [&] { return driver().cuCtxDestroy_v2(context); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return let_go_of_primary(device, [&] { return driver().cuDevicePrimaryCtxRelease(device); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return let_go_of_primary(device, [&] { return driver().cuDevicePrimaryCtxRelease_v2(device); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  return let_go_of_primary(device, [&] { return driver().cuDevicePrimaryCtxReset(device); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return let_go_of_primary(device, [&] { return driver().cuDevicePrimaryCtxReset_v2(device); });
}

// A green context is a part of a device: its streams are ordinary streams of the directory.
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event) {
  return synchronize([](Coherence& coherence) { return coherence.join_all(); },
                     [&] { return driver().cuGreenCtxRecordEvent(context, event); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event) {
  activity().bump(CU_STREAM_LEGACY);
  return after_call(driver().cuGreenCtxWaitEvent(context, event));
}
