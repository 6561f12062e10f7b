// SPDX-License-Identifier: Apache-2.0
#include "api.h"
#include "capture.h"
#include "copy.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

void check_mode(CUstreamCaptureMode mode) {
  require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
          mode == CU_STREAM_CAPTURE_MODE_RELAXED);
}

struct CaptureInfo {
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

// What dependencies point to stays valid until the stream's next call, as documented.
void fill_info(Capture& capture, Stream& stream, const CaptureInfo& out) {
  Capture::Place& place = capture.place_of(stream);
  place.handles.clear();
  place.edge_data.clear();
  for (const GraphEdge& edge : place.dependencies) {
    place.handles.push_back(to_handle<CUgraphNode>(edge.from));
    place.edge_data.push_back(edge.data);
  }
  if (out.id != nullptr) *out.id = capture.id;
  if (out.graph != nullptr) *out.graph = to_handle<CUgraph>(capture.graph.get());
  if (out.dependencies != nullptr) *out.dependencies = place.handles.data();
  if (out.edges != nullptr) *out.edges = place.edge_data.data();
  if (out.count != nullptr) *out.count = place.handles.size();
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, const CaptureInfo& out) {
  return api([&] {
    Stream& stream = stream_of(handle);
    require(status != nullptr);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    const GraphLock lock(graph_mutex());
    check_legacy_allowed(stream);
    if (!stream.capture) return;
    *status = stream.capture->status;
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) fill_info(*stream.capture, stream, out);
  });
}

}  // namespace

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return api([&] {
    require(mode != nullptr);
    check_mode(*mode);
    std::swap(*mode, thread_state().capture_mode);
  });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    check_mode(mode);
    begin_capture(stream, mode, {}, {});
  });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    check_mode(mode);
    const GraphLock lock(graph_mutex());
    Graph& graph = graph_of(hGraph);
    begin_capture(stream, mode, Ref<Graph>::share(&graph),
                  edges_of(graph, dependencies, dependencyData, numDependencies));
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(phGraph != nullptr);
    *phGraph = nullptr;
    const GraphLock lock(graph_mutex());
    const std::shared_ptr<Capture> capture = stream.capture;
    Ref<Graph> graph = end_capture(stream);
    // A graph that the capture made becomes the program's; one that it was given is so already.
    *phGraph = to_handle<CUgraph>(capture->made_graph ? graph.detach() : graph.get());
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return capture_info(hStream, captureStatus, {});
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out) {
  return capture_info(hStream, captureStatus_out, {id_out});
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return capture_info(hStream, captureStatus_out, {id_out, graph_out, dependencies_out, nullptr, numDependencies_out});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  return capture_info(hStream, captureStatus_out,
                      {id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out});
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    require(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES || flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    const GraphLock lock(graph_mutex());
    require(stream.capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    stream.capture->check_active();
    std::vector<GraphEdge> edges = edges_of(*stream.capture->graph, dependencies, dependencyData, numDependencies);
    std::vector<GraphEdge>& current = stream.capture->place_of(stream).dependencies;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) current.clear();
    current.insert(current.end(), edges.begin(), edges.end());
  });
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies, size_t numDependencies,
                                           unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies, flags);
}
