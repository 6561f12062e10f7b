// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "device.h"
#include "recorder.h"
#include "report.h"
#include "roofline.h"
#include "running.h"
#include "tasks.h"

namespace tessera::sim {
namespace {

std::atomic<uint64_t> next_launch{0};

/// What the kernels of one context may touch.
class ContextSpace final : public AddressSpace {
 public:
  explicit ContextSpace(const Context& context)
      : device_(context.device().index()), peers_(context.peers.load(std::memory_order_acquire)) {}

  Extent find(uint64_t address) const override {
    Extent extent;
    address_map().locate(address, [&](const Memory& memory) {
      const Access access = memory.access_by(device_, peers_);
      if (access == Access::kNone) return;
      extent = {memory.begin, memory.device_end(), access == Access::kReadWrite};
    });
    return extent;
  }

 private:
  const int device_;
  const uint32_t peers_;
};

CUresult error_of(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kNone:
      return CUDA_SUCCESS;
    case Fault::Kind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Fault::Kind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case Fault::Kind::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case Fault::Kind::kAssert:
      return CUDA_ERROR_ASSERT;
    case Fault::Kind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Fault::Kind::kLaunchTimeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case Fault::Kind::kInvalidConfig:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  return CUDA_ERROR_UNKNOWN;
}

uint32_t threads_of(const Dim3& block) { return block.x * block.y * block.z; }

}  // namespace

KernelTask::KernelTask(Function& launched, CUfunction given, const LaunchShape& launch_shape,
                       std::vector<uint8_t> bytes)
    : module(Ref<Module>::share(&launched.module())),
      function(launched),
      handle(given),
      shape(launch_shape),
      parameters(std::move(bytes)) {
  for (const uint32_t offset : function.info().parameter_offsets) {
    argument_pointers.push_back(const_cast<uint8_t*>(parameters.data()) + offset);
  }
}

VirtualTime KernelTask::run(Execution& execution) const {
  const RunningScope scope;
  Launch launch;
  launch.grid = shape.grid;
  launch.block = shape.block;
  launch.cluster = shape.cluster;
  launch.dynamic_shared_bytes = shape.dynamic_shared;
  launch.parameters = parameters.data();
  launch.grid_id = next_launch.fetch_add(1, std::memory_order_relaxed);
  launch.record_accesses = recording();
  const LaunchOutcome outcome = function.kernel().run(launch, ContextSpace(execution.context));
  execution.context.print(outcome.printf_output);
  execution.fault = error_of(outcome.fault.kind);
  if (execution.fault != CUDA_SUCCESS) diagnose("kernel " + function.info().name + ": " + outcome.fault.message);
  const uint32_t resident = resident_blocks(execution.device, function.info(), threads_of(shape.block),
                                            shape.dynamic_shared, function.settings.carveout.load());
  const VirtualTime duration = kernel_duration(execution.device, outcome.work, shape.grid, resident);
  if (launch.record_accesses) {
    record_launch(
        {function.info().name, execution.device.index(), launch.grid_id, launch, parameters, outcome, duration});
  }
  return execution.device.occupy(execution.start, duration);
}

}  // namespace tessera::sim
