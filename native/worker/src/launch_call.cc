// SPDX-License-Identifier: Apache-2.0
#include "launch_call.h"

#include <cstring>
#include <vector>

namespace tessera::worker {

void launch_kernel(const Driver& driver, CUstream stream, const transport::RingMessage& message,
                   const LoadRequest& function) {
  const ts_ring_launch& launch = message.launch;
  const std::byte* parameters = message.parameters.data();
  size_t size = message.parameters.size();
  if (size < function.driver_parameter_size) {
    // The driver takes a short buffer and leaves the rest of the block as it was: it shall be zero.
    thread_local std::vector<std::byte> padded;
    padded.assign(function.driver_parameter_size, std::byte{0});
    if (size != 0) std::memcpy(padded.data(), parameters, size);
    parameters = padded.data();
    size = padded.size();
  }
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  CUresult code = CUDA_SUCCESS;
  if (launch.n_attributes == 0) {
    code = driver.cuLaunchKernel(function.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                 launch.block[1], launch.block[2], launch.dynamic_shared, stream, nullptr, extra);
  } else {
    alignas(CUlaunchAttribute) std::byte attributes[transport::kMaxLaunchAttributes * sizeof(CUlaunchAttribute)];
    std::memcpy(attributes, message.attributes.data(), message.attributes.size());
    CUlaunchConfig config{};
    config.gridDimX = launch.grid[0];
    config.gridDimY = launch.grid[1];
    config.gridDimZ = launch.grid[2];
    config.blockDimX = launch.block[0];
    config.blockDimY = launch.block[1];
    config.blockDimZ = launch.block[2];
    config.sharedMemBytes = launch.dynamic_shared;
    config.hStream = stream;
    config.attrs = reinterpret_cast<CUlaunchAttribute*>(attributes);
    config.numAttrs = launch.n_attributes;
    code = driver.cuLaunchKernelEx(&config, function.function, nullptr, extra);
  }
  if (code != CUDA_SUCCESS) driver.fail(code, "launching " + function.name);
}

}  // namespace tessera::worker
