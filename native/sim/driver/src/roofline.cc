// SPDX-License-Identifier: Apache-2.0
#include "roofline.h"

#include <algorithm>
#include <cmath>

#include "arena.h"
#include "device.h"

namespace tessera::sim {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kIssuePerCycle = 4;  // warp schedulers of a multiprocessor
// A few multiprocessors already saturate the memory: about a quarter of the device.
constexpr double kMemorySaturation = 0.25;

// The share of the device's rate that a grid gets: its last wave is seldom full.
double compute_share(const DeviceModel& model, const Dim3& grid, uint32_t resident) {
  const double blocks = static_cast<double>(grid.x) * grid.y * grid.z;
  // A multiprocessor works on `resident` blocks at once, so rounds are of that many.
  const double rounds = blocks / (static_cast<double>(model.multiprocessors) * std::max<uint32_t>(resident, 1));
  if (rounds >= 1) return rounds / std::ceil(rounds);
  return std::min(1.0, blocks / model.multiprocessors);
}

}  // namespace

VirtualTime kernel_duration(const Device& device, const Work& work, const Dim3& grid, uint32_t resident) {
  const DeviceModel& model = device.model();
  const double share = std::max(compute_share(model, grid, resident), 1e-6);
  const auto at = [share](uint64_t operations, double rate) {
    return static_cast<double>(operations) / (rate * share);
  };
  // Vector and matrix units work side by side; within each, kinds of operation share the unit.
  const double vector = at(work.fp32_flops, model.f32) + at(work.fp64_flops, model.f64) +
                        at(work.fp16_flops, model.f16) + at(work.integer_ops, model.f32 / 2);
  const double matrix = at(work.tensor_flops_f16, model.tensor_f16) + at(work.tensor_flops_bf16, model.tensor_bf16) +
                        at(work.tensor_flops_tf32, model.tensor_tf32) + at(work.tensor_flops_f64, model.tensor_f64) +
                        at(work.tensor_ops_i8, model.tensor_i8);
  const double issue_rate = model.multiprocessors * kIssuePerCycle * model.clock_khz * 1e3;
  const double issue = at(work.warp_instructions, issue_rate);
  const double blocks = static_cast<double>(grid.x) * grid.y * grid.z;
  const double memory_share = std::min(1.0, blocks / (kMemorySaturation * model.multiprocessors));
  const double memory = static_cast<double>(work.dram_bytes) / (model.memory_bandwidth * memory_share);
  return picoseconds(model.launch_overhead_us * kMicrosecond + std::max({vector, matrix, issue, memory}));
}

VirtualTime copy_duration(const Device& source, const Device& destination, Route route, uint64_t bytes) {
  const DeviceModel &from = source.model(), &to = destination.model();
  const auto amount = static_cast<double>(bytes);
  switch (route) {
    case Route::kHostToHost:
      return picoseconds(kMicrosecond + amount / 10e9);
    case Route::kHostToDevice:
      return picoseconds(to.host_latency_us * kMicrosecond + amount / to.host_bandwidth);
    case Route::kDeviceToHost:
      return picoseconds(from.host_latency_us * kMicrosecond + amount / from.host_bandwidth);
    case Route::kWithinDevice:
      return picoseconds(from.launch_overhead_us * kMicrosecond + 2 * amount / from.memory_bandwidth);
    case Route::kBetweenDevices:
      break;
  }
  const double bandwidth = std::min(from.peer_bandwidth, to.peer_bandwidth);
  return picoseconds(std::max(from.peer_latency_us, to.peer_latency_us) * kMicrosecond + amount / bandwidth);
}

VirtualTime fill_duration(const Device& device, uint64_t bytes) {
  const DeviceModel& model = device.model();
  return picoseconds(model.launch_overhead_us * kMicrosecond + static_cast<double>(bytes) / model.memory_bandwidth);
}

uint32_t resident_blocks(const Device& device, const KernelInfo& info, uint32_t threads, uint64_t dynamic_shared,
                         int carveout_percent) {
  constexpr uint32_t kRegisters = 65536, kWarp = 32, kRegisterUnit = 256, kWarpUnit = 4;
  const Architecture& architecture = device.architecture();
  if (threads == 0 || threads > info.max_threads_per_block) return 0;
  const uint32_t warps = (threads + kWarp - 1) / kWarp;
  uint32_t blocks =
      std::min(architecture.blocks_per_multiprocessor, architecture.threads_per_multiprocessor / (warps * kWarp));
  const auto registers =
      static_cast<uint32_t>(round_up(uint64_t{std::max<uint32_t>(info.registers, 1)} * kWarp, kRegisterUnit));
  blocks = std::min(blocks, kRegisters / registers / kWarpUnit * kWarpUnit / warps);
  const uint64_t shared =
      round_up(info.static_shared_bytes + dynamic_shared, 128) + architecture.reserved_shared_per_block;
  uint64_t capacity = architecture.shared_per_multiprocessor;
  if (carveout_percent >= 0) capacity = std::max(capacity * static_cast<uint64_t>(carveout_percent) / 100, shared);
  if (info.static_shared_bytes + dynamic_shared > architecture.shared_per_block_optin) return 0;
  if (shared > 0) blocks = static_cast<uint32_t>(std::min<uint64_t>(blocks, capacity / shared));
  return blocks;
}

}  // namespace tessera::sim
