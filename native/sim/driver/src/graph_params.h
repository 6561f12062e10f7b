// SPDX-License-Identifier: Apache-2.0
// The typed node parameter structures of several API versions, as CUgraphNodeParams.
#pragma once

#include "api.h"

namespace tessera::sim {

inline CUgraphNodeParams typed_params(CUgraphNodeType type) {
  CUgraphNodeParams parameters = {};
  parameters.type = type;
  return parameters;
}

template <class Kernel>
CUgraphNodeParams kernel_params(const Kernel& given) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = parameters.kernel;
  kernel.func = given.func;
  kernel.gridDimX = given.gridDimX;
  kernel.gridDimY = given.gridDimY;
  kernel.gridDimZ = given.gridDimZ;
  kernel.blockDimX = given.blockDimX;
  kernel.blockDimY = given.blockDimY;
  kernel.blockDimZ = given.blockDimZ;
  kernel.sharedMemBytes = given.sharedMemBytes;
  kernel.kernelParams = given.kernelParams;
  kernel.extra = given.extra;
  return parameters;
}

inline CUgraphNodeParams params_of(const CUDA_KERNEL_NODE_PARAMS_v1& given) { return kernel_params(given); }

inline CUgraphNodeParams params_of(const CUDA_KERNEL_NODE_PARAMS_v2& given) {
  CUgraphNodeParams parameters = kernel_params(given);
  parameters.kernel.kern = given.kern;
  parameters.kernel.ctx = given.ctx;
  return parameters;
}

inline CUgraphNodeParams params_of(const CUDA_MEMCPY3D& copy, CUcontext context) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_MEMCPY);
  parameters.memcpy.copyParams = copy;
  parameters.memcpy.copyCtx = context;
  return parameters;
}

inline CUgraphNodeParams params_of(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext context) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_MEMSET);
  parameters.memset = {fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height, context};
  return parameters;
}

inline CUgraphNodeParams params_of(const CUDA_HOST_NODE_PARAMS& host) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_HOST);
  parameters.host.fn = host.fn;
  parameters.host.userData = host.userData;
  return parameters;
}

inline CUgraphNodeParams params_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& batch) {
  CUgraphNodeParams parameters = typed_params(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  parameters.memOp.ctx = batch.ctx;
  parameters.memOp.count = batch.count;
  parameters.memOp.paramArray = batch.paramArray;
  parameters.memOp.flags = batch.flags;
  return parameters;
}

inline CUgraphNodeParams event_params(CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams parameters = typed_params(type);
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
    parameters.eventRecord.event = event;
  else
    parameters.eventWait.event = event;
  return parameters;
}

}  // namespace tessera::sim
