// SPDX-License-Identifier: Apache-2.0
// Stream capture: the streams that take part, and where each of them stands in the graph.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "graph.h"

namespace tessera::sim {

/// All members are guarded by graph_mutex().
class Capture {
 public:
  Capture(Stream& begun_in, CUstreamCaptureMode capture_mode, Ref<Graph> into);
  ~Capture();

  /// The stream's operations become nodes from now on, after `dependencies`.
  void join(Stream& stream, std::vector<GraphEdge> dependencies);
  void add_node(Stream& stream, NodeContent content);
  /// From now on everything in the capture fails, until it is ended.
  void invalidate() { status = CU_STREAM_CAPTURE_STATUS_INVALIDATED; }
  void check_active() const {
    require(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  /// Lets the streams go.
  void end();
  bool joined() const;  // all other streams' work is depended on by the first stream's

  struct Place {
    Ref<Stream> stream;
    std::vector<GraphEdge> dependencies;
    std::vector<CUgraphNode> handles;  // what queries point to
    std::vector<CUgraphEdgeData> edge_data;
  };
  Place& place_of(Stream& stream) { return places[&stream]; }

  Stream& origin;
  const CUstreamCaptureMode mode;
  const std::thread::id thread;
  const unsigned long long id;
  Ref<Graph> graph;
  const bool made_graph;  // false: captures into the program's graph
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  std::map<Stream*, Place> places;
};

/// Begins a capture in `stream`; fails with CUDA_ERROR_ILLEGAL_STATE where it is capturing already.
void begin_capture(Stream& stream, CUstreamCaptureMode mode, Ref<Graph> graph, std::vector<GraphEdge> dependencies);
/// Ends the capture that began in `stream`. Fails with the capture errors; the capture is over in any case.
Ref<Graph> end_capture(Stream& stream);

CUdeviceptr capture_allocation(Stream& stream, Pool& pool, size_t size);
void capture_free(Stream& stream, CUdeviceptr pointer);
void capture_graph_launch(Stream& stream, const GraphExec& exec);

}  // namespace tessera::sim
