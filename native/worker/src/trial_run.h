// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loader.h"
#include "memory_handle.h"
#include "slot.h"
#include "tessera/protocol/trial.h"
#include "tessera/transport/ring.h"
#include "tessera/transport/unique_fd.h"

namespace tessera::worker {

struct TrialOutcome {
  uint32_t kind = TS_TRIAL_CANNOT;
  CUresult code = CUDA_SUCCESS;
  std::string text;
};

/// Runs launches one by one, each with memory of its own at the program's addresses: the granules that its ranges
/// touch, and nothing else.
class TrialRunner {
 public:
  explicit TrialRunner(const Device& device);
  ~TrialRunner();
  TrialRunner(const TrialRunner&) = delete;
  TrialRunner& operator=(const TrialRunner&) = delete;

  /// `memory`: as protocol/trial.h has it. `gone` is asked while the kernel runs. After a fault, or a kernel that did
  /// not end, no driver call is of any use. Throws TransportError for a request that does not hold together.
  TrialOutcome run(const ts_trial_run& request, transport::UniqueFd memory, const LoadRequest& function,
                   const std::function<bool()>& gone);

 private:
  struct Piece {
    uint64_t address, bytes;
  };
  void take_slot(const Slot& slot);
  void map(const std::vector<uint64_t>& granules, uint8_t poison);
  void unmap();
  void fill(std::span<const ts_ring_range> ranges, const std::vector<uint64_t>& granules, const uint8_t* before) const;
  TrialOutcome wait(std::chrono::milliseconds timeout, const std::function<bool()>& gone) const;
  void finish(const char* what) const;

  const Device& device_;
  const Driver& driver_;
  CUstream stream_ = nullptr;
  Slot slot_;
  Reservation addresses_;
  std::vector<Piece> mapped_;
};

}  // namespace tessera::worker
