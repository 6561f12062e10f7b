// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include <algorithm>
#include <map>

#include "device.h"
#include "pool.h"
#include "vmm.h"

namespace tessera::sim {

std::recursive_mutex& graph_mutex() {
  static auto* const one = new std::recursive_mutex;
  return *one;
}

Graph::~Graph() {
  for (const Ref<GraphNode>& node : nodes) {
    node->kill(GraphNode::kTag);
    node->graph = nullptr;
    node->dependencies.clear();
  }
}

GraphNode& Graph::add(NodeContent content, std::vector<GraphEdge> dependencies) {
  nodes.push_back(Ref<GraphNode>(new GraphNode(*this, std::move(content), std::move(dependencies))));
  return *nodes.back();
}

void Graph::remove(GraphNode& node) {
  for (const Ref<GraphNode>& other : nodes) {
    std::erase_if(other->dependencies, [&node](const GraphEdge& edge) { return edge.from == &node; });
  }
  node.kill(GraphNode::kTag);
  node.graph = nullptr;
  std::erase_if(nodes, [&node](const Ref<GraphNode>& known) { return known.get() == &node; });
}

std::vector<GraphNode*> Graph::dependents(const GraphNode& node) const {
  std::vector<GraphNode*> found;
  for (const Ref<GraphNode>& other : nodes) {
    const bool depends = std::any_of(other->dependencies.begin(), other->dependencies.end(),
                                     [&node](const GraphEdge& edge) { return edge.from == &node; });
    if (depends) found.push_back(other.get());
  }
  return found;
}

Ref<Graph> Graph::clone() const {
  Ref<Graph> copy(new Graph);
  std::map<const GraphNode*, GraphNode*> twin;
  for (const Ref<GraphNode>& node : nodes) {
    NodeContent content = node->content;
    if (content.child) content.child = content.child->clone();
    if (content.child) content.child->embedded = true;
    twin[node.get()] = &copy->add(std::move(content), {});
  }
  for (const Ref<GraphNode>& node : nodes) {
    GraphNode& made = *twin[node.get()];
    made.original = node.get();
    for (const GraphEdge& edge : node->dependencies) made.dependencies.push_back({twin[edge.from], edge.data});
  }
  copy->user_objects = user_objects;
  return copy;
}

std::vector<GraphNode*> Graph::ordered() const {
  std::map<const GraphNode*, size_t> missing;
  for (const Ref<GraphNode>& node : nodes) missing[node.get()] = node->dependencies.size();
  std::vector<GraphNode*> order;
  std::vector<bool> placed(nodes.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (placed[i] || missing[nodes[i].get()] != 0) continue;
      placed[i] = progress = true;
      order.push_back(nodes[i].get());
      for (const GraphNode* next : dependents(*nodes[i])) {
        const auto& edges = next->dependencies;
        missing[next] -= static_cast<size_t>(std::count_if(
            edges.begin(), edges.end(), [&](const GraphEdge& edge) { return edge.from == nodes[i].get(); }));
      }
    }
  }
  require(order.size() == nodes.size());
  return order;
}

std::shared_ptr<Plan> make_plan(const Graph& graph) {
  auto plan = std::make_shared<Plan>();
  std::map<const GraphNode*, size_t> place;
  for (GraphNode* node : graph.ordered()) {
    PlanNode planned;
    planned.node = Ref<GraphNode>::share(node);
    planned.content = node->content;
    for (const GraphEdge& edge : node->dependencies) planned.dependencies.push_back(place[edge.from]);
    if (node->content.child) planned.child = make_plan(*node->content.child);
    if (node->content.plan) planned.child = node->content.plan;
    place[node] = plan->nodes.size();
    plan->nodes.push_back(std::move(planned));
  }
  plan->user_objects = graph.user_objects;
  return plan;
}

void GraphExec::change(const GraphNode& node, const std::function<void(PlanNode&)>& edit) {
  auto changed = std::make_shared<Plan>(*plan);
  for (PlanNode& planned : changed->nodes) {
    if (planned.node.get() != &node) continue;
    edit(planned);
    plan = std::move(changed);
    return;
  }
  fail(CUDA_ERROR_INVALID_VALUE);
}

const PlanNode& GraphExec::find(const GraphNode& node) const {
  for (const PlanNode& planned : plan->nodes) {
    if (planned.node.get() == &node) return planned;
  }
  fail(CUDA_ERROR_INVALID_VALUE);
}

// ---- launching ----

struct GraphTask::Progress {
  size_t record = 0, wait = 0;
  bool stopped = false;
};

GraphTask::GraphTask(std::shared_ptr<const Plan> launched) : plan_(std::move(launched)) { prepare(*plan_); }

void GraphTask::prepare(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (node.child) prepare(*node.child);
    if (node.content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      Ref<Op> op(new Op(nullptr, {}, 0));
      node.content.event->set_record({op, {}, {}, false});
      records_.push_back(std::move(op));
    } else if (node.content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
      waits_.push_back(node.content.event->record().op);
    }
  }
}

// Nodes run one after another on this thread; their simulated times overlap as the edges allow.
VirtualTime GraphTask::run_plan(const Plan& plan, VirtualTime start, Execution& execution, Progress& progress) const {
  std::vector<VirtualTime> ends(plan.nodes.size(), start);
  VirtualTime last = start;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    VirtualTime begin = start;
    for (const size_t dependency : plan.nodes[i].dependencies) begin = std::max(begin, ends[dependency]);
    ends[i] = run_node(plan.nodes[i], begin, execution, progress);
    last = std::max(last, ends[i]);
  }
  return last;
}

VirtualTime GraphTask::run_node(const PlanNode& node, VirtualTime start, Execution& execution,
                                Progress& progress) const {
  progress.stopped = progress.stopped || execution.fault != CUDA_SUCCESS || execution.device.fault() != CUDA_SUCCESS ||
                     execution.context.ending();
  if (node.child) return run_plan(*node.child, start, execution, progress);
  if (node.content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    records_[progress.record++]->complete(start);
    return start;
  }
  if (node.content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
    const Ref<Op>& awaited = waits_[progress.wait++];
    if (!awaited || progress.stopped) return start;
    awaited->wait();
    return std::max(start, awaited->end());
  }
  if (progress.stopped || !node.enabled || !node.content.task) return start;
  const auto* kernel = dynamic_cast<const KernelTask*>(node.content.task.get());
  Context& context = kernel != nullptr ? kernel->module->context() : execution.context;
  Execution own{execution.stream, context, context.device(), start};
  const VirtualTime end = start + node.content.task->run(own);
  if (own.fault != CUDA_SUCCESS) execution.fault = own.fault;
  execution.ends_now = execution.ends_now || own.ends_now;
  return end;
}

VirtualTime GraphTask::run(Execution& execution) const {
  Progress progress;
  return run_plan(*plan_, execution.start, execution, progress) - execution.start;
}

// ---- handles ----

GraphNode& node_of(CUgraphNode handle) {
  GraphNode& node = from_handle<GraphNode>(handle, CUDA_ERROR_INVALID_VALUE);
  require(node.graph != nullptr);
  return node;
}

Graph& graph_of(CUgraph handle) { return from_handle<Graph>(handle, CUDA_ERROR_INVALID_VALUE); }

std::vector<GraphEdge> edges_of(const Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                                size_t count) {
  require(count == 0 || nodes != nullptr);
  std::vector<GraphEdge> edges;
  for (size_t i = 0; i < count; ++i) {
    GraphNode& from = node_of(nodes[i]);
    require(from.graph == &graph);
    edges.push_back({&from, data != nullptr ? data[i] : CUgraphEdgeData{}});
  }
  return edges;
}

}  // namespace tessera::sim
