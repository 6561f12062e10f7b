// SPDX-License-Identifier: Apache-2.0
// The devices that can be simulated (catalogue.json) and the machine that this
// process asked for (TESSERA_SIM_DEVICES).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::sim {

/// Rates are per second: bytes, or operations (a multiply-add is two).
struct DeviceModel {
  std::string key;   // in the catalogue: "A100"
  std::string name;  // what cuDeviceGetName says
  uint32_t major = 0, minor = 0;
  uint64_t memory_bytes = 0;
  double memory_bandwidth = 0;
  uint32_t multiprocessors = 0;
  uint64_t l2_bytes = 0;
  uint32_t clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  double f64 = 0, f32 = 0, f16 = 0;
  double tensor_f64 = 0, tensor_tf32 = 0, tensor_f16 = 0, tensor_bf16 = 0, tensor_i8 = 0;
  double peer_bandwidth = 0, peer_latency_us = 0;
  double host_bandwidth = 0, host_latency_us = 0;
  double launch_overhead_us = 0;
  double price_per_hour = 0;

  uint32_t compute_capability() const { return major * 10 + minor; }
};

/// What follows from the compute capability alone.
struct Architecture {
  uint32_t threads_per_multiprocessor, blocks_per_multiprocessor;
  uint32_t shared_per_multiprocessor, shared_per_block_optin;  // bytes
  uint32_t reserved_shared_per_block;                          // bytes, since 8.0
  uint32_t async_engines;
};
Architecture architecture_of(uint32_t compute_capability);

/// One entry of the machine, with its place in it.
struct MachineDevice {
  DeviceModel model;
  int physical_ordinal = 0;  // its place in TESSERA_SIM_DEVICES, before CUDA_VISIBLE_DEVICES
  uint8_t uuid[16] = {};
};

/// Reads the catalogue and the environment. Throws std::runtime_error with a message for the user.
/// TESSERA_SIM_DEVICES: comma-separated KEY[@MAJOR.MINOR][:memory=BYTES[K|M|G]]; default "A100,L40S".
std::vector<MachineDevice> describe_machine();

/// The devices that CUDA_VISIBLE_DEVICES leaves, in its order, read as the real driver does.
std::vector<MachineDevice> visible_devices(const std::vector<MachineDevice>& all, const char* variable);

}  // namespace tessera::sim
