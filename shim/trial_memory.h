// SPDX-License-Identifier: Apache-2.0
// The memory of one trial: the granules that a launch's claims touch, as they
// were before it, as the trial left them, and as home did.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "claims.h"
#include "tessera/memory/interval_map.h"
#include "tessera/protocol/trial.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::shim {

/// Where a trial and home do not agree.
struct Difference {
  enum class Kind : uint8_t {
    kResult,      // bytes that were to be written
    kOutside,     // the trial changed bytes that it was not to write
    kHomeOutside  // home did
  };
  Kind kind = Kind::kResult;
  uint64_t address = 0;
};

/// All with the world's lock held and the context's device idle. Functions that return CUresult stop at the first
/// error.
class TrialMemory {
 public:
  static constexpr uint64_t kMostBytes = 4ull << 30;  // of granules: twice that is taken of the host's memory

  /// Bytes of the granules that the claims touch.
  static uint64_t bytes_of(const Claims& claims);
  /// Precondition: no more than kMostBytes. Throws transport::TransportError.
  explicit TrialMemory(const Claims& claims);

  /// Puts the launch where the trial process looks for it. False: it is too long.
  bool write_launch(const LaunchRequest& request, std::span<const uint8_t> parameters);
  int fd() const { return memory_.fd().get(); }
  uint64_t size() const { return memory_.size(); }

  CUresult take_before();
  /// What the trial left against what lies at home now.
  CUresult compare(uint8_t poison, std::optional<Difference>& found) const;

  /// Runs `again` from what was there before and tells whether the same comes out; then all is as it was before the
  /// call. Everything else that the context owns is kept aside meanwhile. Nothing: that is too much, or it went wrong.
  template <class Again>
  std::optional<bool> repeats(Again&& again);

 private:
  struct Saved {
    Range range;
    std::vector<uint8_t> bytes;
  };
  const uint8_t* before(size_t i) const { return memory_.as<uint8_t>() + TS_TRIAL_DATA + i * TS_GRANULE; }
  uint8_t* after(size_t i) const { return memory_.as<uint8_t>() + TS_TRIAL_DATA + (granules_.size() + i) * TS_GRANULE; }
  std::optional<Difference> compare_granule(size_t i, uint8_t poison, const uint8_t* home) const;
  bool save_others(std::vector<Saved>& saved) const;
  CUresult keep_after();
  CUresult put_before() const;
  CUresult is_as_after(bool& same) const;
  CUresult put_after(const std::vector<Saved>& saved) const;

  const Claims& claims_;
  std::vector<uint64_t> granules_;
  memory::IntervalMap<uint8_t> roles_;
  transport::SharedMemory memory_;
};

template <class Again>
std::optional<bool> TrialMemory::repeats(Again&& again) {
  std::vector<Saved> saved;
  if (!save_others(saved) || keep_after() != CUDA_SUCCESS) return std::nullopt;
  bool same = false;
  const bool ran = put_before() == CUDA_SUCCESS && again() && is_as_after(same) == CUDA_SUCCESS;
  const bool restored = put_after(saved) == CUDA_SUCCESS;
  return ran && restored ? std::optional(same) : std::nullopt;
}

/// An address as an offset into its allocation, for texts.
std::string place_of(uint64_t address);

}  // namespace tessera::shim
