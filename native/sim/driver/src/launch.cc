// SPDX-License-Identifier: Apache-2.0
// Kernel launches: checked as the real driver checks them, then submitted with a copy of the parameters.
#include "launch.h"

#include <cstring>

#include "api.h"
#include "device.h"
#include "report.h"
#include "roofline.h"
#include "submit.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

// Parameters come one by one, or packed through `extra`.
std::vector<uint8_t> packed_parameters(const KernelInfo& info, void** extra) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[i + 1];
    else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = static_cast<const size_t*>(extra[i + 1]);
    else
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  require((buffer != nullptr && size != nullptr) || info.parameter_block_size == 0);
  std::vector<uint8_t> bytes(info.parameter_block_size);
  if (buffer == nullptr || size == nullptr) return bytes;
  require(*size <= bytes.size(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  std::memcpy(bytes.data(), buffer, *size);
  return bytes;
}

void check_dimensions(const LaunchShape& shape) {
  const Dim3 &grid = shape.grid, &block = shape.block;
  require(grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0);
  require(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535);
  require(block.x <= 1024 && block.y <= 1024 && block.z <= 64);
}

void check_cluster(const Function& function, const LaunchShape& shape) {
  const Dim3& cluster = shape.cluster;
  const uint32_t blocks = cluster.x * cluster.y * cluster.z;
  if (blocks == 1) return;
  const Device& device = function.module().context().device();
  if (device.model().compute_capability() < 90) fail_unsupported("thread block clusters below compute capability 9.0");
  const uint32_t most = function.settings.non_portable_cluster.load() != 0 ? 16 : 8;
  require(blocks > 0 && blocks <= most, CUDA_ERROR_INVALID_CLUSTER_SIZE);
  require(shape.grid.x % cluster.x == 0 && shape.grid.y % cluster.y == 0 && shape.grid.z % cluster.z == 0,
          CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

// .reqntid and .reqnctapercluster fix what the launch has to say.
void check_required(const KernelInfo& info, LaunchShape& shape) {
  const uint32_t block[3] = {shape.block.x, shape.block.y, shape.block.z};
  uint32_t* const cluster[3] = {&shape.cluster.x, &shape.cluster.y, &shape.cluster.z};
  for (int i = 0; i < 3; ++i) {
    require(info.required_threads[0] == 0 || block[i] == std::max(info.required_threads[i], 1u));
    if (info.required_cluster[0] != 0) *cluster[i] = std::max(info.required_cluster[i], 1u);
  }
}

void check_resources(const Function& function, const LaunchShape& shape) {
  const KernelInfo& info = function.info();
  const uint32_t threads = shape.block.x * shape.block.y * shape.block.z;
  require(threads <= 1024 && threads <= info.max_threads_per_block);
  const int set = function.settings.max_dynamic_shared.load();
  const uint64_t most = set >= 0 ? static_cast<uint64_t>(set) + info.static_shared_bytes : 48 << 10;
  require(info.static_shared_bytes + uint64_t{shape.dynamic_shared} <= most);
}

void check_cooperative(const Function& function, const LaunchShape& shape) {
  if (!shape.cooperative) return;
  const Device& device = function.module().context().device();
  const uint32_t each = resident_blocks(device, function.info(), shape.block.x * shape.block.y * shape.block.z,
                                        shape.dynamic_shared, function.settings.carveout.load());
  const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  require(blocks <= uint64_t{each} * device.model().multiprocessors, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

}  // namespace

std::vector<uint8_t> launch_parameters(const KernelInfo& info, void** parameters, void** extra) {
  require(parameters == nullptr || extra == nullptr);
  if (extra != nullptr) return packed_parameters(info, extra);
  const size_t count = info.parameter_offsets.size();
  require(count == 0 || parameters != nullptr);
  std::vector<uint8_t> bytes(info.parameter_block_size);
  for (size_t i = 0; i < count; ++i) {
    require(parameters[i] != nullptr);
    std::memcpy(bytes.data() + info.parameter_offsets[i], parameters[i], info.parameter_sizes[i]);
  }
  return bytes;
}

std::shared_ptr<KernelTask> make_kernel_task(CUfunction handle, Context& context, LaunchShape shape, void** parameters,
                                             void** extra) {
  Function& function = launchable(handle, &context);
  require(&function.module().context() == &context, CUDA_ERROR_INVALID_HANDLE);
  check_dimensions(shape);
  check_required(function.info(), shape);
  check_resources(function, shape);
  check_cluster(function, shape);
  check_cooperative(function, shape);
  return std::make_shared<KernelTask>(function, handle, shape, launch_parameters(function.info(), parameters, extra));
}

void apply_attribute(const CUlaunchAttribute& attribute, LaunchShape& shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = attribute.value.cooperative != 0;
      return;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& size = attribute.value.clusterDim;
      if (size.x == 0 && size.y == 0 && size.z == 0) return;
      shape.cluster = {size.x, size.y, size.z};
      return;
    }
    // Kernels of a stream run one after another and to their end here: what these allow to overlap
    // may also not overlap, and what they prefer is a matter of speed alone.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      fail_unsupported("device-updatable kernel nodes");
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

namespace {

// Events that a launch attribute asks for: recorded when the kernel has ended, which both kinds allow.
void record_attribute_events(const std::vector<CUlaunchAttribute>& attributes, Stream& stream) {
  for (const CUlaunchAttribute& attribute : attributes) {
    CUevent event = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = attribute.value.launchCompletionEvent.event;
    if (event != nullptr) record_event(event_of(event), stream, 0);
  }
}

void launch(CUfunction handle, const LaunchShape& shape, CUstream stream_handle, void** parameters, void** extra,
            std::vector<CUlaunchAttribute> attributes) {
  require(handle != nullptr, CUDA_ERROR_INVALID_HANDLE);
  Stream& stream = stream_of(stream_handle);
  const std::shared_ptr<KernelTask> task = make_kernel_task(handle, stream.context(), shape, parameters, extra);
  task->attributes = attributes;
  submit(stream, task);
  record_attribute_events(attributes, stream);
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  return api([&] {
    const LaunchShape shape{
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, {1, 1, 1}, sharedMemBytes, false};
    launch(f, shape, hStream, kernelParams, extra, {});
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  return api([&] {
    require(config != nullptr && (config->numAttrs == 0 || config->attrs != nullptr));
    LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                      {config->blockDimX, config->blockDimY, config->blockDimZ},
                      {1, 1, 1},
                      config->sharedMemBytes,
                      false};
    std::vector<CUlaunchAttribute> attributes;
    if (config->numAttrs > 0) attributes.assign(config->attrs, config->attrs + config->numAttrs);
    for (const CUlaunchAttribute& attribute : attributes) apply_attribute(attribute, shape);
    launch(f, shape, config->hStream, kernelParams, extra, std::move(attributes));
  });
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  return api([&] {
    const LaunchShape shape{
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, {1, 1, 1}, sharedMemBytes, true};
    launch(f, shape, hStream, kernelParams, nullptr, {});
  });
}
