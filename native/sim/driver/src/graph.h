// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes that hold the same tasks as streams run, and what instantiation
// makes of them: a plan in topological order, immutable once a launch uses it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "event.h"
#include "stream.h"
#include "tasks.h"

namespace tessera::sim {

class Graph;
class GraphNode;
class Pool;
struct Plan;

/// Structures of all graphs and captures change under this one lock: the API asks callers to
/// serialize anyway, and nothing here takes long.
std::recursive_mutex& graph_mutex();
using GraphLock = std::lock_guard<std::recursive_mutex>;

/// What a node does, apart from its place in the graph.
struct NodeContent {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  TaskPtr task;                      // kernel, memcpy, memset, host, batch memory operations
  Ref<Graph> child;                  // child graph
  std::shared_ptr<const Plan> plan;  // an executable graph launched into a capture
  Ref<Event> event;                  // event record, event wait
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  CUdeviceptr freed = 0;
  MemoryPtr memory;  // allocation node: freed with the last graph that holds the node
};

struct GraphEdge {
  GraphNode* from = nullptr;
  CUgraphEdgeData data = {};
};

class GraphNode : public Object {
 public:
  static constexpr Tag kTag = Tag::kGraphNode;
  GraphNode(Graph& owner, NodeContent what, std::vector<GraphEdge> after)
      : Object(kTag), graph(&owner), content(std::move(what)), dependencies(std::move(after)) {}

  Graph* graph;  // null once the graph is gone
  NodeContent content;
  std::vector<GraphEdge> dependencies;
  const GraphNode* original = nullptr;  // in a clone
};

/// A program's object that graphs keep alive.
class UserObject : public Object {
 public:
  static constexpr Tag kTag = Tag::kUserObject;
  UserObject(void* data, CUhostFn destroy) : Object(kTag), data_(data), destroy_(destroy) {}
  ~UserObject() override { destroy_(data_); }

 private:
  void* const data_;
  const CUhostFn destroy_;
};

class Graph : public Object {
 public:
  static constexpr Tag kTag = Tag::kGraph;
  Graph() : Object(kTag) {}
  ~Graph() override;

  GraphNode& add(NodeContent content, std::vector<GraphEdge> dependencies);
  void remove(GraphNode& node);
  std::vector<GraphNode*> dependents(const GraphNode& node) const;
  Ref<Graph> clone() const;
  /// Dependencies first; insertion order where it is free. Fails with CUDA_ERROR_INVALID_VALUE on a cycle.
  std::vector<GraphNode*> ordered() const;

  std::vector<Ref<GraphNode>> nodes;
  std::vector<Ref<UserObject>> user_objects;  // one entry for each reference
  bool embedded = false;                      // a child graph: its node owns it
};

struct PlanNode {
  Ref<GraphNode> node;  // the handle by which the program names it
  NodeContent content;
  std::vector<size_t> dependencies;  // indices into the plan
  std::shared_ptr<const Plan> child;
  bool enabled = true;
};

struct Plan {
  std::vector<PlanNode> nodes;
  std::vector<Ref<UserObject>> user_objects;
};

std::shared_ptr<Plan> make_plan(const Graph& graph);

class GraphExec : public Object {
 public:
  static constexpr Tag kTag = Tag::kGraphExec;
  GraphExec(std::shared_ptr<const Plan> made, unsigned long long creation_flags)
      : Object(kTag), plan(std::move(made)), flags(creation_flags) {}

  /// A copy of the plan to change: launches already submitted keep the old one.
  void change(const GraphNode& node, const std::function<void(PlanNode&)>& edit);
  const PlanNode& find(const GraphNode& node) const;

  std::shared_ptr<const Plan> plan;
  const unsigned long long flags;
  Ref<Op> last_launch;  // the next one, in whatever stream, comes after it; guarded by graph_mutex()
};

/// One launch of a plan.
class GraphTask final : public Task {
 public:
  explicit GraphTask(std::shared_ptr<const Plan> launched);
  VirtualTime run(Execution& execution) const override;
  bool runs_after_fault() const override { return true; }

 private:
  struct Progress;
  VirtualTime run_plan(const Plan& plan, VirtualTime start, Execution& execution, Progress& progress) const;
  VirtualTime run_node(const PlanNode& node, VirtualTime start, Execution& execution, Progress& progress) const;
  void prepare(const Plan& plan);

  const std::shared_ptr<const Plan> plan_;
  // In the order in which run() meets them: an op for each event record, the event's op at launch for each wait.
  std::vector<Ref<Op>> records_, waits_;
};

/// Builds and checks a node's content from the program's parameters.
NodeContent content_of(CUgraphNodeParams& parameters);

GraphNode& node_of(CUgraphNode handle);
Graph& graph_of(CUgraph handle);
/// The edges of a dependency list; nodes must be of `graph`. `data` may be null.
std::vector<GraphEdge> edges_of(const Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                                size_t count);
NodeContent allocation_content(Pool& pool, size_t size);
NodeContent free_content(CUdeviceptr pointer);

}  // namespace tessera::sim
