// SPDX-License-Identifier: Apache-2.0
// Node parameters, as programs give them, to tasks.
#include <functional>

#include "copy.h"
#include "device.h"
#include "graph.h"
#include "launch.h"
#include "pool.h"
#include "report.h"
#include "thread_state.h"
#include "vmm.h"

namespace tessera::sim {
namespace {

Context& context_or_current(CUcontext handle) {
  if (handle == nullptr) return current_context();
  Context& context = from_handle<Context>(handle, CUDA_ERROR_INVALID_CONTEXT);
  context.check_alive();
  return context;
}

NodeContent kernel_content(const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  const LaunchShape shape{{kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
                          {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
                          {1, 1, 1},
                          kernel.sharedMemBytes,
                          false};
  const CUfunction handle = kernel.func != nullptr ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
  require(handle != nullptr);
  // A function says itself where it runs; a library's kernel runs in the context that is given, or in the current one.
  const bool is_function = reinterpret_cast<Object*>(handle)->tag() == Tag::kFunction;
  Context& context = is_function ? from_handle<Function>(handle).module().context() : context_or_current(kernel.ctx);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_KERNEL;
  content.task = make_kernel_task(handle, context, shape, kernel.kernelParams, kernel.extra);
  return content;
}

NodeContent copy_content(const CUDA_MEMCPY_NODE_PARAMS& copy) {
  Context& context = context_or_current(copy.copyCtx);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  const std::shared_ptr<CopyTask> task = copy_of(copy.copyParams, context.device());
  require(task != nullptr);
  task->described_context = to_handle<CUcontext>(&context);
  content.task = task;
  return content;
}

NodeContent fill_content(const CUDA_MEMSET_NODE_PARAMS_v2& fill) {
  const Context& context = context_or_current(fill.ctx);
  require(fill.elementSize == 1 || fill.elementSize == 2 || fill.elementSize == 4);
  require(fill.width > 0 && fill.height > 0 && fill.dst % fill.elementSize == 0);
  const uint64_t row = fill.width * fill.elementSize;
  require(fill.height == 1 || fill.pitch >= row);
  device_side(fill.dst, (fill.height - 1) * fill.pitch + row, context.device(), true);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMSET;
  content.task =
      std::make_shared<FillTask>(fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height);
  return content;
}

NodeContent child_content(const CUDA_CHILD_GRAPH_NODE_PARAMS& child) {
  Graph& graph = graph_of(child.graph);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_GRAPH;
  if (child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    content.child = Ref<Graph>(&graph);
  } else {
    content.child = graph.clone();
  }
  content.child->embedded = true;
  return content;
}

NodeContent event_content(CUgraphNodeType type, CUevent event) {
  NodeContent content;
  content.type = type;
  content.event = Ref<Event>::share(&event_of(event));
  return content;
}

NodeContent operations_content(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& batch) {
  require(batch.count > 0 && batch.paramArray != nullptr && batch.flags == 0);
  context_or_current(batch.ctx);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  content.task = std::make_shared<MemoryOperationTask>(
      std::vector<CUstreamBatchMemOpParams>(batch.paramArray, batch.paramArray + batch.count));
  return content;
}

}  // namespace

NodeContent allocation_content(Pool& pool, size_t size) {
  const CUdeviceptr pointer = pool.allocate(size);
  const MemoryPtr memory = address_map().find_start(pointer);
  memory->graph_owned.store(true);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  // Freed with the last graph, executable graph or launch that holds the node.
  content.memory = MemoryPtr(memory.get(), [memory](Memory*) { release_memory(memory); });
  content.allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  content.allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool.device().index()};
  content.allocation.bytesize = size;
  content.allocation.dptr = pointer;
  return content;
}

NodeContent free_content(CUdeviceptr pointer) {
  const MemoryPtr memory = address_map().find_start(pointer);
  require(memory != nullptr && memory->graph_owned);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  content.freed = pointer;
  return content;
}

NodeContent content_of(CUgraphNodeParams& parameters) {
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return kernel_content(parameters.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_content(parameters.memcpy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return fill_content(parameters.memset);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_content(parameters.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return {};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_content(parameters.type, parameters.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_content(parameters.type, parameters.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_content(parameters.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return operations_content(parameters.memOp);
    case CU_GRAPH_NODE_TYPE_HOST: {
      require(parameters.host.fn != nullptr);
      NodeContent content;
      content.type = parameters.type;
      content.task = std::make_shared<HostTask>(parameters.host.fn, parameters.host.userData);
      return content;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      require(parameters.alloc.bytesize > 0);
      NodeContent content = allocation_content(device_of(parameters.alloc.poolProps.location.id).default_pool(),
                                               parameters.alloc.bytesize);
      parameters.alloc.dptr = content.allocation.dptr;
      return content;
    }
    default:
      fail_unsupported("graph nodes for external semaphores and conditions");
  }
}

}  // namespace tessera::sim
