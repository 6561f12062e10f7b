// SPDX-License-Identifier: Apache-2.0
// How long work takes on a simulated device.
#pragma once

#include <cstdint>

#include "clock.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

class Device;

/// launch overhead + the longest of: each kind of arithmetic at its rate, memory at its
/// bandwidth, instruction issue; rates shrink where the grid does not fill the device.
VirtualTime kernel_duration(const Device& device, const Work& work, const Dim3& grid,
                            uint32_t blocks_per_multiprocessor);

enum class Route : uint8_t { kHostToHost, kHostToDevice, kDeviceToHost, kWithinDevice, kBetweenDevices };
VirtualTime copy_duration(const Device& source, const Device& destination, Route route, uint64_t bytes);
VirtualTime fill_duration(const Device& device, uint64_t bytes);

/// Blocks of this shape that one multiprocessor holds at a time; 0 when none fits.
uint32_t resident_blocks(const Device& device, const KernelInfo& info, uint32_t threads, uint64_t dynamic_shared,
                         int carveout_percent);

}  // namespace tessera::sim
