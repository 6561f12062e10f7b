// SPDX-License-Identifier: Apache-2.0
#include "driver.h"
#include "launch.h"

using namespace tessera::shim;

#define TESSERA_LAUNCH(symbol, per_thread, is_cooperative)                                                          \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUfunction function, unsigned int grid_x, unsigned int grid_y,       \
                                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,     \
                                               unsigned int block_z, unsigned int shared, CUstream stream,          \
                                               void** parameters TESSERA_EXTRA_DECLARED) {                          \
    LaunchRequest request;                                                                                          \
    request.function = function;                                                                                    \
    request.grid[0] = grid_x, request.grid[1] = grid_y, request.grid[2] = grid_z;                                   \
    request.block[0] = block_x, request.block[1] = block_y, request.block[2] = block_z;                             \
    request.dynamic_shared = shared;                                                                                \
    request.stream = normalized(stream, per_thread);                                                                \
    request.kernel_parameters = parameters;                                                                         \
    request.extra = TESSERA_EXTRA_VALUE;                                                                            \
    request.cooperative = is_cooperative;                                                                           \
    /* Two captures: more would cost the launch as much as the rest of the shim does. */                            \
    return launch(request, [&request, stream] {                                                                     \
      return driver().symbol(request.function, request.grid[0], request.grid[1], request.grid[2], request.block[0], \
                             request.block[1], request.block[2], request.dynamic_shared, stream,                    \
                             request.kernel_parameters TESSERA_EXTRA_PASSED);                                       \
    });                                                                                                             \
  }

#define TESSERA_EXTRA_DECLARED , void** extra
#define TESSERA_EXTRA_VALUE extra
#define TESSERA_EXTRA_PASSED , request.extra
TESSERA_LAUNCH(cuLaunchKernel, false, false)
TESSERA_LAUNCH(cuLaunchKernel_ptsz, true, false)
#undef TESSERA_EXTRA_DECLARED
#undef TESSERA_EXTRA_VALUE
#undef TESSERA_EXTRA_PASSED

#define TESSERA_EXTRA_DECLARED
#define TESSERA_EXTRA_VALUE nullptr
#define TESSERA_EXTRA_PASSED
TESSERA_LAUNCH(cuLaunchCooperativeKernel, false, true)
TESSERA_LAUNCH(cuLaunchCooperativeKernel_ptsz, true, true)

#define TESSERA_LAUNCH_EX(symbol, per_thread)                                                                         \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(const CUlaunchConfig* config, CUfunction function, void** parameters,  \
                                               void** extra) {                                                        \
    if (config == nullptr || (config->attrs == nullptr && config->numAttrs != 0)) {                                   \
      return after_call(driver().symbol(config, function, parameters, extra));                                        \
    }                                                                                                                 \
    LaunchRequest request;                                                                                            \
    request.function = function;                                                                                      \
    request.grid[0] = config->gridDimX, request.grid[1] = config->gridDimY, request.grid[2] = config->gridDimZ;       \
    request.block[0] = config->blockDimX, request.block[1] = config->blockDimY, request.block[2] = config->blockDimZ; \
    request.dynamic_shared = config->sharedMemBytes;                                                                  \
    request.stream = normalized(config->hStream, per_thread);                                                         \
    request.kernel_parameters = parameters;                                                                           \
    request.extra = extra;                                                                                            \
    if (config->attrs != nullptr) request.attributes = {config->attrs, config->numAttrs};                             \
    return launch(request, [config, &request] {                                                                       \
      return driver().symbol(config, request.function, request.kernel_parameters, request.extra);                     \
    });                                                                                                               \
  }
TESSERA_LAUNCH_EX(cuLaunchKernelEx, false)
TESSERA_LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

// Of several devices, or with parameters set one by one: at home, and nothing is known of what they touch.
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches,
                                                                           unsigned int count, unsigned int flags) {
  return enqueue(nullptr, false, anything,
                 [&] { return driver().cuLaunchCooperativeKernelMultiDevice(launches, count, flags); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLaunch(CUfunction function) {
  return enqueue(nullptr, false, anything, [&] { return driver().cuLaunch(function); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLaunchGrid(CUfunction function, int width, int height) {
  return enqueue(nullptr, false, anything, [&] { return driver().cuLaunchGrid(function, width, height); });
}
TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return enqueue(stream, false, anything, [&] { return driver().cuLaunchGridAsync(function, width, height, stream); });
}
