// SPDX-License-Identifier: Apache-2.0
// Attributes, parameters and occupancy of functions and library kernels.
#include <algorithm>

#include "api.h"
#include "device.h"
#include "module.h"
#include "roofline.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

constexpr int kDefaultShared = 48 << 10;

Function& function_of(CUfunction handle) {
  Function& function = from_handle<Function>(handle);
  Module& module = function.module();
  module.context().check_alive(module.context_generation());
  module.context().device().check_fault();
  return function;
}

int max_dynamic_shared(const KernelInfo& info, const FunctionSettings& settings) {
  const int set = settings.max_dynamic_shared.load();
  return set >= 0 ? set : std::max(kDefaultShared - static_cast<int>(info.static_shared_bytes), 0);
}

int read_attribute(const KernelFacts& facts, const FunctionSettings& settings, const Device& device,
                   CUfunction_attribute attribute) {
  const KernelInfo& info = facts.info;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(info.max_threads_per_block);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(info.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return static_cast<int>(facts.code.constant_bytes());
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(info.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(info.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return static_cast<int>(facts.code.ptx_architecture());
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return static_cast<int>(device.model().compute_capability());
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return max_dynamic_shared(info, settings);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return settings.carveout.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return static_cast<int>(info.required_cluster[0]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return static_cast<int>(info.required_cluster[1]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return static_cast<int>(info.required_cluster[2]);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return settings.non_portable_cluster.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return 0;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void write_attribute(const KernelInfo& info, FunctionSettings& settings, const Device& device,
                     CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const auto most = static_cast<int>(device.architecture().shared_per_block_optin);
      require(value >= 0 && value <= most - static_cast<int>(info.static_shared_bytes));
      settings.max_dynamic_shared.store(value);
      return;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      require(value >= -1 && value <= 100);
      settings.carveout.store(value);
      return;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      require(value == 0 || value == 1);
      settings.non_portable_cluster.store(value);
      return;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      require(value >= 0 && value <= 2);
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void parameter_info(const KernelInfo& info, size_t index, size_t* offset, size_t* size) {
  require(offset != nullptr && index < info.parameter_offsets.size());
  *offset = info.parameter_offsets[index];
  if (size != nullptr) *size = info.parameter_sizes[index];
}

// Occupancy functions take a CUkernel too.
Function& occupancy_function(CUfunction handle) { return launchable(handle, &current_context()); }

uint32_t resident(const Function& function, int block, size_t shared) {
  return resident_blocks(function.module().context().device(), function.info(), static_cast<uint32_t>(block), shared,
                         function.settings.carveout.load());
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return api([&] {
    Function& function = function_of(hfunc);
    require(pi != nullptr);
    *pi = read_attribute(function.facts(), function.settings, function.module().context().device(), attrib);
  });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return api([&] {
    Function& function = function_of(hfunc);
    write_attribute(function.info(), function.settings, function.module().context().device(), attrib, value);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return api([&] {
    launchable(hfunc, thread_state().current_or_null());
    require(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
  });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  return api([&] { function_of(hfunc); });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  return api([&] {
    require(hmod != nullptr);
    *hmod = to_handle<CUmodule>(&function_of(hfunc).module());
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  return api([&] {
    require(name != nullptr);
    *name = function_of(hfunc).info().name.c_str();
  });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return api([&] { parameter_info(function_of(func).info(), paramIndex, paramOffset, paramSize); });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return api([&] {
    function_of(function);
    require(state != nullptr);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return api([&] { function_of(function); });
}

namespace {

Device& kernel_device(CUdevice dev) { return device_of(dev); }

}  // namespace

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return api([&] {
    LibraryKernel& wanted = from_handle<LibraryKernel>(kernel);
    Device& device = kernel_device(dev);
    require(pi != nullptr);
    *pi = read_attribute(wanted.library().facts_on(device, wanted), wanted.settings_on(device.index()), device, attrib);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return api([&] {
    LibraryKernel& wanted = from_handle<LibraryKernel>(kernel);
    Device& device = kernel_device(dev);
    FunctionSettings& settings = wanted.settings_on(device.index());
    write_attribute(wanted.library().facts_on(device, wanted).info, settings, device, attrib, val);
    wanted.library().apply_settings(wanted, device);
  });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice dev) {
  return api([&] {
    from_handle<LibraryKernel>(kernel);
    kernel_device(dev);
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return api([&] {
    LibraryKernel& wanted = from_handle<LibraryKernel>(kernel);
    const Context* context = thread_state().current_or_null();
    Device& device = context != nullptr ? context->device() : device_of(0);
    parameter_info(wanted.library().facts_on(device, wanted).info, paramIndex, paramOffset, paramSize);
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
  return api([&] {
    const Function& function = occupancy_function(func);
    require(numBlocks != nullptr && blockSize > 0);
    require((flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) == 0);
    *numBlocks = static_cast<int>(resident(function, blockSize, dynamicSMemSize));
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit, unsigned int) {
  return api([&] {
    const Function& function = occupancy_function(func);
    require(minGridSize != nullptr && blockSize != nullptr);
    int limit = static_cast<int>(function.info().max_threads_per_block);
    if (blockSizeLimit > 0) limit = std::min(limit, blockSizeLimit);
    uint32_t best_threads = 0;
    *blockSize = *minGridSize = 0;
    for (int block = limit >= 32 ? limit / 32 * 32 : limit; block > 0; block -= block > 32 ? 32 : block) {
      const size_t shared = blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(block) : dynamicSMemSize;
      const uint32_t blocks = resident(function, block, shared);
      if (blocks * static_cast<uint32_t>(block) <= best_threads) continue;
      best_threads = blocks * static_cast<uint32_t>(block);
      *blockSize = block;
      *minGridSize = static_cast<int>(blocks * function.module().context().device().model().multiprocessors);
    }
  });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                          int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                   dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func, int numBlocks,
                                                 int blockSize) {
  return api([&] {
    const Function& function = occupancy_function(func);
    require(dynamicSmemSize != nullptr && numBlocks > 0 && blockSize > 0);
    const Architecture& architecture = function.module().context().device().architecture();
    const uint64_t each = architecture.shared_per_multiprocessor / static_cast<uint32_t>(numBlocks);
    const uint64_t taken = architecture.reserved_shared_per_block + function.info().static_shared_bytes;
    const auto most = static_cast<uint64_t>(max_dynamic_shared(function.info(), function.settings));
    *dynamicSmemSize = each > taken ? std::min(each - taken, most) : 0;
  });
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  return api([&] {
    const Function& function = occupancy_function(func);
    require(clusterSize != nullptr && config != nullptr);
    const bool clusters = function.module().context().device().model().compute_capability() >= 90;
    require(clusters, CUDA_ERROR_NOT_SUPPORTED);
    *clusterSize = function.settings.non_portable_cluster.load() != 0 ? 16 : 8;
  });
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  return api([&] {
    const Function& function = occupancy_function(func);
    require(numClusters != nullptr && config != nullptr);
    const Device& device = function.module().context().device();
    require(device.model().compute_capability() >= 90, CUDA_ERROR_NOT_SUPPORTED);
    uint32_t blocks = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      const auto& size = attribute.value.clusterDim;
      blocks = std::max(size.x * size.y * size.z, 1u);
    }
    const int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
    *numClusters =
        static_cast<int>(resident(function, threads, config->sharedMemBytes) * device.model().multiprocessors / blocks);
  });
}
