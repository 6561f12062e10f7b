// SPDX-License-Identifier: Apache-2.0
// Nodes: adding, reading and changing each type. Everything typed is brought
// into CUgraphNodeParams first, so that one place checks it.
#include <algorithm>

#include "api.h"
#include "device.h"
#include "graph.h"
#include "graph_params.h"
#include "launch.h"
#include "report.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
             size_t count, CUgraphNodeParams& parameters) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    Graph& graph = graph_of(handle);
    require(out != nullptr);
    std::vector<GraphEdge> edges = edges_of(graph, dependencies, data, count);
    *out = to_handle<CUgraphNode>(&graph.add(content_of(parameters), std::move(edges)));
  });
}

CUresult set(CUgraphNode handle, CUgraphNodeParams parameters) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    GraphNode& node = node_of(handle);
    require(node.content.type == parameters.type);
    node.content = content_of(parameters);
  });
}

template <class T>
const T& task_of(CUgraphNode handle) {
  const T* task = dynamic_cast<const T*>(node_of(handle).content.task.get());
  require(task != nullptr);
  return *task;
}

template <class Body>
CUresult get(Body&& body) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    body();
  });
}

template <class Params>
void read_kernel(CUgraphNode handle, Params& out) {
  const KernelTask& task = task_of<KernelTask>(handle);
  out = {};
  out.gridDimX = task.shape.grid.x;
  out.gridDimY = task.shape.grid.y;
  out.gridDimZ = task.shape.grid.z;
  out.blockDimX = task.shape.block.x;
  out.blockDimY = task.shape.block.y;
  out.blockDimZ = task.shape.block.z;
  out.sharedMemBytes = task.shape.dynamic_shared;
  out.kernelParams = const_cast<void**>(task.argument_pointers.data());
  out.func = to_handle<CUfunction>(&task.function);
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t count, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(out, graph, dependencies, dependencyData, count, *nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(out, graph, dependencies, nullptr, count, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set(hNode, *nodeParams);
}

// ---- kernels ----

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*nodeParams);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*nodeParams);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return get([&] {
    require(nodeParams != nullptr);
    read_kernel(hNode, *nodeParams);
    nodeParams->ctx = to_handle<CUcontext>(&task_of<KernelTask>(hNode).module->context());
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return get([&] {
    require(nodeParams != nullptr);
    read_kernel(hNode, *nodeParams);
  });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hNode, params_of(*nodeParams));
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hNode, params_of(*nodeParams));
}

namespace {

// A task never changes: an attribute makes a new one.
void set_attributes(GraphNode& node, const std::vector<CUlaunchAttribute>& attributes) {
  const auto* old = dynamic_cast<const KernelTask*>(node.content.task.get());
  require(old != nullptr);
  LaunchShape shape = old->shape;
  for (const CUlaunchAttribute& attribute : attributes) apply_attribute(attribute, shape);
  auto task = make_kernel_task(to_handle<CUfunction>(&old->function), old->module->context(), shape,
                               const_cast<void**>(old->argument_pointers.data()), nullptr);
  task->attributes = attributes;
  node.content.task = task;
}

}  // namespace

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue* value) {
  return get([&] {
    require(value != nullptr);
    GraphNode& node = node_of(hNode);
    std::vector<CUlaunchAttribute> attributes = task_of<KernelTask>(hNode).attributes;
    std::erase_if(attributes, [attr](const CUlaunchAttribute& known) { return known.id == attr; });
    CUlaunchAttribute added = {};
    added.id = attr;
    added.value = *value;
    attributes.push_back(added);
    set_attributes(node, attributes);
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue* value_out) {
  return get([&] {
    require(value_out != nullptr && attr > CU_LAUNCH_ATTRIBUTE_IGNORE && attr < CU_LAUNCH_ATTRIBUTE_MAX);
    const KernelTask& task = task_of<KernelTask>(hNode);
    *value_out = {};
    if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      value_out->clusterDim = {task.shape.cluster.x, task.shape.cluster.y, task.shape.cluster.z};
    }
    if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value_out->cooperative = task.shape.cooperative;
    for (const CUlaunchAttribute& known : task.attributes) {
      if (known.id == attr) *value_out = known.value;
    }
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return get([&] { set_attributes(node_of(dst), task_of<KernelTask>(src).attributes); });
}

// ---- copies, fills, host functions ----

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*copyParams, ctx);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return get([&] {
    require(nodeParams != nullptr);
    *nodeParams = task_of<CopyTask>(hNode).description;
  });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return api([&] {
    require(nodeParams != nullptr);
    const GraphLock lock(graph_mutex());
    const CUcontext context = task_of<CopyTask>(hNode).described_context;
    const CUresult result = set(hNode, params_of(*nodeParams, context));
    require(result == CUDA_SUCCESS, result);
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*memsetParams, ctx);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return get([&] {
    require(nodeParams != nullptr);
    const FillTask& task = task_of<FillTask>(hNode);
    *nodeParams = {task.address, task.pitch, task.value, task.element, task.width, task.height};
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hNode, params_of(*nodeParams, nullptr));
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*nodeParams);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return get([&] {
    require(nodeParams != nullptr);
    const HostTask& task = task_of<HostTask>(hNode);
    *nodeParams = {task.function, task.user_data};
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hNode, params_of(*nodeParams));
}

// ---- child graphs, empty nodes, events ----

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  CUgraph childGraph) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_GRAPH);
  parameters.graph.graph = childGraph;
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return get([&] {
    const GraphNode& node = node_of(hNode);
    require(phGraph != nullptr && node.content.child);
    *phGraph = to_handle<CUgraph>(node.content.child.get());
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_EMPTY);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

namespace {

CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent* out) {
  return get([&] {
    const GraphNode& node = node_of(handle);
    require(out != nullptr && node.content.type == type);
    *out = to_handle<CUevent>(node.content.event.get());
  });
}

}  // namespace

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   CUevent event) {
  CUgraphNodeParams parameters = event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
  return add(out, graph, dependencies, nullptr, count, parameters);
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get_event(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set(hNode, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 CUevent event) {
  CUgraphNodeParams parameters = event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
  return add(out, graph, dependencies, nullptr, count, parameters);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get_event(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set(hNode, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

// ---- stream memory operations, memory ----

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = params_of(*nodeParams);
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return get([&] {
    require(nodeParams_out != nullptr);
    const auto& operations = task_of<MemoryOperationTask>(hNode).operations;
    *nodeParams_out = {};
    nodeParams_out->count = static_cast<unsigned>(operations.size());
    nodeParams_out->paramArray = const_cast<CUstreamBatchMemOpParams*>(operations.data());
  });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hNode, params_of(*nodeParams));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  parameters.alloc.poolProps = nodeParams->poolProps;
  parameters.alloc.accessDescs = nodeParams->accessDescs;
  parameters.alloc.accessDescCount = nodeParams->accessDescCount;
  parameters.alloc.bytesize = nodeParams->bytesize;
  const CUresult result = add(out, graph, dependencies, nullptr, count, parameters);
  nodeParams->dptr = parameters.alloc.dptr;
  return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return get([&] {
    const GraphNode& node = node_of(hNode);
    require(params_out != nullptr && node.content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    *params_out = node.content.allocation;
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                               CUdeviceptr dptr) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_MEM_FREE);
  parameters.free.dptr = dptr;
  return add(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get([&] {
    const GraphNode& node = node_of(hNode);
    require(dptr_out != nullptr && node.content.type == CU_GRAPH_NODE_TYPE_MEM_FREE);
    *dptr_out = node.content.freed;
  });
}
