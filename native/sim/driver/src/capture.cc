// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "copy.h"
#include "device.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

std::atomic<unsigned long long> next_capture{1};
std::atomic<int> active_captures{0};  // 0, most of the time: then no lock is taken anywhere

std::vector<Capture*>& captures() {
  static auto* const all = new std::vector<Capture*>;
  return *all;
}

bool any_capture() { return active_captures.load(std::memory_order_acquire) != 0; }

CUgraphNodeType type_of(const Task& task) {
  if (dynamic_cast<const KernelTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_KERNEL;
  if (dynamic_cast<const CopyTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_MEMCPY;
  if (dynamic_cast<const FillTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_MEMSET;
  if (dynamic_cast<const HostTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_HOST;
  if (dynamic_cast<const MemoryOperationTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  if (dynamic_cast<const MarkerTask*>(&task) != nullptr) return CU_GRAPH_NODE_TYPE_EMPTY;
  fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// A flat copy has no descriptor of its own; queries of its node need one.
TaskPtr described(TaskPtr task, Context& context) {
  const auto* copy = dynamic_cast<const CopyTask*>(task.get());
  if (copy == nullptr || copy->described_context != nullptr) return task;
  auto own = std::make_shared<CopyTask>(*copy);
  own->described_context = to_handle<CUcontext>(&context);
  if (own->description.WidthInBytes == 0) {
    CUDA_MEMCPY3D& text = own->description;
    text.WidthInBytes = copy->width;
    text.Height = copy->height;
    text.Depth = copy->depth;
    text.srcMemoryType = copy->source.device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    text.dstMemoryType = copy->destination.device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    text.srcHost = reinterpret_cast<const void*>(copy->source.address);
    text.srcDevice = copy->source.address;
    text.dstHost = reinterpret_cast<void*>(copy->destination.address);
    text.dstDevice = copy->destination.address;
    text.srcPitch = copy->source.pitch;
    text.dstPitch = copy->destination.pitch;
  }
  return own;
}

// A call that could disturb a capture: whose captures forbid it, as the modes define.
bool forbids(const Capture& capture, const ThreadState& thread) {
  if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED || thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return false;
  }
  if (capture.thread == std::this_thread::get_id()) return true;
  return capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

Capture::Capture(Stream& begun_in, CUstreamCaptureMode capture_mode, Ref<Graph> into)
    : origin(begun_in),
      mode(capture_mode),
      thread(std::this_thread::get_id()),
      id(next_capture.fetch_add(1)),
      graph(into ? into : Ref<Graph>(new Graph)),
      made_graph(!into) {
  captures().push_back(this);
  active_captures.fetch_add(1);
}

Capture::~Capture() { end(); }

void Capture::join(Stream& stream, std::vector<GraphEdge> dependencies) {
  Place& place = places[&stream];
  place.stream = Ref<Stream>::share(&stream);
  place.dependencies = std::move(dependencies);
}

void Capture::add_node(Stream& stream, NodeContent content) {
  Place& place = place_of(stream);
  GraphNode& node = graph->add(std::move(content), place.dependencies);
  place.dependencies = {{&node, {}}};
}

void Capture::end() {
  const auto listed = std::find(captures().begin(), captures().end(), this);
  if (listed == captures().end()) return;
  captures().erase(listed);
  active_captures.fetch_sub(1);
  std::map<Stream*, Place> left;
  left.swap(places);
  for (auto& entry : left) entry.second.stream->capture.reset();
}

bool Capture::joined() const {
  std::set<const GraphNode*> reached;
  std::vector<const GraphNode*> open;
  for (const GraphEdge& edge : places.at(&origin).dependencies) open.push_back(edge.from);
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    for (const GraphEdge& edge : node->dependencies) open.push_back(edge.from);
  }
  for (const auto& entry : places) {
    for (const GraphEdge& edge : entry.second.dependencies) {
      if (reached.count(edge.from) == 0) return false;
    }
  }
  return true;
}

void begin_capture(Stream& stream, CUstreamCaptureMode mode, Ref<Graph> graph, std::vector<GraphEdge> dependencies) {
  const GraphLock lock(graph_mutex());
  require(stream.kind() != Stream::Kind::kLegacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  require(!stream.capture, CUDA_ERROR_ILLEGAL_STATE);
  stream.capture = std::make_shared<Capture>(stream, mode, std::move(graph));
  stream.capture->join(stream, std::move(dependencies));
}

Ref<Graph> end_capture(Stream& stream) {
  const GraphLock lock(graph_mutex());
  const std::shared_ptr<Capture> capture = stream.capture;
  require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  CUresult problem = CUDA_SUCCESS;
  if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    problem = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (&capture->origin != &stream)
    problem = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    problem = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  else if (!capture->joined())
    problem = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (problem == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED || problem == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    capture->invalidate();  // the stream where it began, or its thread, still has to end it
    fail(problem);
  }
  capture->end();
  require(problem == CUDA_SUCCESS, problem);
  return capture->graph;
}

// ---- the door (submit.h) ----

Ref<Op> submit(Stream& stream, TaskPtr task, bool on_caller) {
  if (any_capture()) {
    const GraphLock lock(graph_mutex());
    if (const std::shared_ptr<Capture> capture = stream.capture) {
      capture->check_active();
      NodeContent content;
      content.type = type_of(*task);
      content.task = described(std::move(task), stream.context());
      capture->add_node(stream, std::move(content));
      return {};
    }
    check_legacy_allowed(stream);
  }
  return stream.submit(std::move(task), {}, on_caller);
}

void record_event(Event& event, Stream& stream, unsigned flags) {
  if (any_capture()) {
    const GraphLock lock(graph_mutex());
    if (const std::shared_ptr<Capture> capture = stream.capture) {
      capture->check_active();
      if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
        NodeContent content;
        content.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
        content.event = Ref<Event>::share(&event);
        capture->add_node(stream, std::move(content));
        return;
      }
      Event::Record record;
      record.captured = true;
      record.capture = capture;
      for (const GraphEdge& edge : capture->place_of(stream).dependencies) record.nodes.push_back(edge.from);
      event.set_record(std::move(record));
      return;
    }
    check_legacy_allowed(stream);
  }
  event.set_record({stream.submit(MarkerTask::get()), {}, {}, false});
}

namespace {

// Inside captures a wait is an edge, and may bring another stream into the capture.
void wait_captured(Stream& stream, const Event::Record& record) {
  const std::shared_ptr<Capture> capture = record.capture.lock();
  require(capture != nullptr && !capture->places.empty());
  capture->check_active();
  if (!stream.capture) {
    check_legacy_allowed(stream);
    require(stream.kind() != Stream::Kind::kLegacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream.capture = capture;
    capture->join(stream, {});
  }
  if (stream.capture != capture) {
    stream.capture->invalidate();
    capture->invalidate();
    fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  std::vector<GraphEdge>& dependencies = capture->place_of(stream).dependencies;
  for (GraphNode* node : record.nodes) {
    const bool there = std::any_of(dependencies.begin(), dependencies.end(),
                                   [node](const GraphEdge& edge) { return edge.from == node; });
    if (!there) dependencies.push_back({node, {}});
  }
}

}  // namespace

void wait_event(Stream& stream, const Event& event, unsigned flags) {
  const Event::Record record = event.record();
  if (any_capture() || record.captured) {
    const GraphLock lock(graph_mutex());
    if (record.captured) return wait_captured(stream, record);
    if (const std::shared_ptr<Capture> capture = stream.capture) {
      capture->check_active();
      if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        NodeContent content;
        content.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
        content.event = Ref<Event>::share(const_cast<Event*>(&event));
        return capture->add_node(stream, std::move(content));
      }
      if (!record.op) return;
      capture->invalidate();
      fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    check_legacy_allowed(stream);
  }
  if (record.op) stream.submit(MarkerTask::get(), {record.op});
}

void check_capture_allows_unsafe_call() {
  if (!any_capture()) return;
  const GraphLock lock(graph_mutex());
  bool forbidden = false;
  for (Capture* capture : captures()) {
    if (!forbids(*capture, thread_state())) continue;
    capture->invalidate();
    forbidden = true;
  }
  require(!forbidden, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_not_capturing(Stream& stream) {
  if (!any_capture()) return;
  const GraphLock lock(graph_mutex());
  if (!stream.capture) return;
  stream.capture->invalidate();
  fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_context_not_capturing(const Context& context) {
  if (!any_capture()) return;
  const GraphLock lock(graph_mutex());
  bool capturing = false;
  for (Capture* capture : captures()) {
    if (&capture->origin.context() != &context) continue;
    capture->invalidate();
    capturing = true;
  }
  require(!capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_legacy_allowed(Stream& stream) {
  if (stream.kind() != Stream::Kind::kLegacy || !any_capture()) return;
  const GraphLock lock(graph_mutex());
  bool implicit = false;
  for (Capture* capture : captures()) {
    for (const auto& entry : capture->places) {
      const Stream& other = *entry.first;
      if (!other.blocking() || &other.context() != &stream.context()) continue;
      capture->invalidate();
      implicit = true;
    }
  }
  require(!implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void check_event_not_captured(const Event::Record& record) {
  if (!record.captured) return;
  const GraphLock lock(graph_mutex());
  if (const std::shared_ptr<Capture> capture = record.capture.lock()) capture->invalidate();
  fail(CUDA_ERROR_CAPTURED_EVENT);
}

void abandon_capture(Stream& stream) {
  if (!any_capture()) return;
  const GraphLock lock(graph_mutex());
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  if (&capture->origin == &stream) {
    capture->end();
  } else {
    capture->invalidate();
  }
}

bool stream_is_capturing(Stream& stream) {
  if (!any_capture()) return false;
  const GraphLock lock(graph_mutex());
  return stream.capture != nullptr;
}

CUdeviceptr capture_allocation(Stream& stream, Pool& pool, size_t size) {
  const GraphLock lock(graph_mutex());
  stream.capture->check_active();
  NodeContent content = allocation_content(pool, size);
  const CUdeviceptr pointer = content.allocation.dptr;
  stream.capture->add_node(stream, std::move(content));
  return pointer;
}

void capture_free(Stream& stream, CUdeviceptr pointer) {
  const GraphLock lock(graph_mutex());
  stream.capture->check_active();
  stream.capture->add_node(stream, free_content(pointer));
}

void capture_graph_launch(Stream& stream, const GraphExec& exec) {
  const GraphLock lock(graph_mutex());
  stream.capture->check_active();
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_GRAPH;
  content.plan = exec.plan;
  stream.capture->add_node(stream, std::move(content));
}

}  // namespace tessera::sim
