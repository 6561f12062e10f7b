// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coherence.h"
#include "kernel_state.h"
#include "tessera/access/summary.h"

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

/// The buffer in which a launch's `extra` has the parameters; none where it does not say. Precondition: not null.
inline std::optional<std::span<const uint8_t>> buffer_of(void** extra) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = at[1];
    else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = static_cast<const size_t*>(at[1]);
    else
      return std::nullopt;
  }
  if (buffer == nullptr || size == nullptr) return std::nullopt;
  return std::span(static_cast<const uint8_t*>(buffer), *size);
}

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

  /// Nothing is known.
  void reset();
  /// What one access reaches, and what it promises for each byte of it (TS_ACCESS_EXACT, TS_ACCESS_MUST_WRITE).
  void add(uint8_t mode, uint8_t promises, std::span<const Range> live);
  /// After the last access.
  void finish();
};

constexpr uint64_t kNoMemory = 1u << 28;  // no memory of a GPU lies below

/// Whether the driver knows memory there.
bool is_memory(uint64_t pointer);

/// The claims of one kernel's launches. Launches repeat: what one claimed is kept by its shape and its parameters for
/// as long as the memory stays what it is. With the world's lock held.
class ClaimsMemo {
 public:
  /// `summary`: validated, and the same for the life of the memo.
  explicit ClaimsMemo(const void* summary);

  /// Good until the next call.
  const Claims& of(const LaunchRequest& request, std::span<const uint8_t> parameters);

 private:
  static constexpr size_t kEntries = 32;
  struct Entry {
    std::vector<uint64_t> key;  // empty: none
    uint64_t memory = 0;        // DeviceMemory::generation
    Claims claims;
  };

  void make_key(const ts_launch_shape& shape, bool takes_rows);
  size_t slot_of_key() const;
  /// False: what the driver says now has a part in it.
  bool evaluate(const ts_launch_shape& shape, bool takes_rows, Claims& claims);

  const void* summary_;
  std::vector<uint64_t> key_;
  std::vector<Range> live_;
  std::array<Entry, kEntries> entries_;
  ts_memo evaluations_;
};

/// Precondition: the world's lock is held. Good until the next launch of the kernel.
const Claims& claims_of(const LaunchRequest& request, KernelState& state, std::span<const uint8_t> parameters);

}  // namespace tessera::shim
