// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiation, changes, launches.
#include "api.h"
#include "capture.h"
#include "copy.h"
#include "device.h"
#include "graph.h"
#include "graph_params.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

GraphExec& exec_of(CUgraphExec handle) { return from_handle<GraphExec>(handle, CUDA_ERROR_INVALID_VALUE); }

constexpr unsigned long long kKnownFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                           CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                           CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUgraphExec instantiate(CUgraph handle, unsigned long long flags) {
  const GraphLock lock(graph_mutex());
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) fail_unsupported("graphs launched from the device");
  require((flags & ~kKnownFlags) == 0);
  return to_handle<CUgraphExec>(new GraphExec(make_plan(graph_of(handle)), flags));
}

CUresult change(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams parameters) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    GraphExec& exec = exec_of(handle);
    // The node's graph may be gone; the executable graph still knows its handle.
    const GraphNode& named = from_handle<GraphNode>(node, CUDA_ERROR_INVALID_VALUE);
    require(exec.find(named).content.type == parameters.type);
    NodeContent content = content_of(parameters);
    exec.change(named, [&content](PlanNode& planned) {
      if (content.child) planned.child = make_plan(*content.child);
      planned.content = std::move(content);
    });
  });
}

// The new graph must have the same shape; nodes pair up in order.
CUgraphExecUpdateResult update_plan(GraphExec& exec, const Graph& graph, GraphNode** error_node) {
  const std::shared_ptr<Plan> fresh = make_plan(graph);
  if (fresh->nodes.size() != exec.plan->nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < fresh->nodes.size(); ++i) {
    PlanNode& node = fresh->nodes[i];
    const PlanNode& old = exec.plan->nodes[i];
    *error_node = node.node.get();
    if (node.content.type != old.content.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (node.dependencies != old.dependencies) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    node.node = old.node;  // the program goes on naming nodes as it did
    node.enabled = old.enabled;
  }
  *error_node = nullptr;
  exec.plan = fresh;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  return api([&] {
    require(phGraphExec != nullptr);
    *phGraphExec = instantiate(hGraph, flags);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize > 0) *logBuffer = '\0';
  return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return api([&] {
    require(phGraphExec != nullptr && instantiateParams != nullptr);
    instantiateParams->hErrNode_out = nullptr;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    *phGraphExec = instantiate(hGraph, instantiateParams->flags);
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  });
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return api([&] {
    require(flags != nullptr);
    *flags = exec_of(hGraphExec).flags;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    GraphExec& exec = exec_of(hGraphExec);
    exec.kill(GraphExec::kTag);
    exec.release();
  });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return api([&] {
    exec_of(hGraph);
    submit(stream_of(hStream), MarkerTask::get());
  });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return api([&] {
    Stream& stream = stream_of(hStream);
    GraphExec& exec = exec_of(hGraph);
    if (stream_is_capturing(stream)) return capture_graph_launch(stream, exec);
    check_legacy_allowed(stream);
    const GraphLock lock(graph_mutex());
    std::vector<Ref<Op>> before;
    if (exec.last_launch && !exec.last_launch->done()) before.push_back(exec.last_launch);
    exec.last_launch = stream.submit(std::make_shared<GraphTask>(exec.plan), std::move(before));
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  return api([&]() -> CUresult {
    const GraphLock lock(graph_mutex());
    GraphExec& exec = exec_of(hGraphExec);
    const Graph& graph = graph_of(hGraph);
    require(resultInfo != nullptr);
    *resultInfo = {};
    GraphNode* error_node = nullptr;
    resultInfo->result = update_plan(exec, graph, &error_node);
    if (error_node != nullptr) resultInfo->errorNode = to_handle<CUgraphNode>(error_node);
    return resultInfo->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  });
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    const GraphNode& node = from_handle<GraphNode>(hNode, CUDA_ERROR_INVALID_VALUE);
    const CUgraphNodeType type = node.content.type;
    require(type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
            type == CU_GRAPH_NODE_TYPE_MEMSET);
    exec_of(hGraphExec).change(node, [isEnabled](PlanNode& planned) { planned.enabled = isEnabled != 0; });
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    require(isEnabled != nullptr);
    *isEnabled = exec_of(hGraphExec).find(from_handle<GraphNode>(hNode, CUDA_ERROR_INVALID_VALUE)).enabled;
  });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, *nodeParams);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*nodeParams));
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*nodeParams));
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copyParams,
                                        CUcontext ctx) {
  return copyParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*copyParams, ctx));
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                        CUcontext ctx) {
  return memsetParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*memsetParams, ctx));
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*nodeParams));
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph childGraph) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_GRAPH);
  parameters.graph.graph = childGraph;
  return change(exec, node, parameters);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return change(exec, node, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return change(exec, node, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : change(exec, node, params_of(*nodeParams));
}
