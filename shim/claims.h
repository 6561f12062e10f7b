// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "coherence.h"
#include "kernel_state.h"

namespace tessera::shim {

/// One launch as the program asked for it.
struct LaunchRequest {
  CUfunction function = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;
  CUstream stream = nullptr;  // normalised
  void** kernel_parameters = nullptr;
  void** extra = nullptr;
  std::span<const CUlaunchAttribute> attributes;
  bool cooperative = false;
};

/// The parameter block as the kernel sees it. False: the program's arguments do
/// not say (the driver will complain), or the function's layout is not known.
bool pack_parameters(const LaunchRequest& request, const FunctionEntry& entry, std::vector<uint8_t>& block);

/// What one launch may read and write, in live allocations of the slot.
struct Claims {
  bool known = false;          // false: it may touch anything
  bool all_in_slot = true;     // false: some bytes lie outside the slot
  bool exact = true;           // every claimed byte is really touched
  std::vector<Range> needed;   // bytes whose current value it may need, sorted
  std::vector<Range> written;  // bytes that it may write, sorted
  std::vector<Range> all;      // both

  Footprint footprint() const;
};

/// Precondition: the world's lock is held.
Claims claims_of(const LaunchRequest& request, const KernelState& state, std::span<const uint8_t> parameters);

}  // namespace tessera::shim
