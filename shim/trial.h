// SPDX-License-Identifier: Apache-2.0
// Trials (TESSERA_VERIFY): a launch runs at home as always, and beside it in a
// process where nothing is mapped but what it claims, the rest of those pages
// poisoned. A fault there, a change outside of the write set, or another result
// than home's shows the claims wrong. It is a check on top of the analysis, and
// shows nothing where it finds nothing.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "claims.h"
#include "tessera/protocol/control.h"
#include "trial_memory.h"

namespace tessera::shim {

/// Whether launches are to be tried: then nothing moves, and the world is never calm.
bool trials_wanted();

/// Makes the launch at home, and tries it where it may be tried. Precondition: trials are wanted, the world's lock is
/// held, the stream is not captured.
CUresult launch_and_try(const LaunchRequest& request, KernelState& state, CUresult (*real)(void* context),
                        void* context);

/// One launch that may be tried. With the world's lock held from before the launch until after `judge`.
class Trial {
 public:
  using Launch = CUresult (*)(void* context);

  /// Decides whether this launch is tried, and takes the memory that it claims; the device is idle then.
  Trial(const LaunchRequest& request, KernelState& state);

  /// After the launch at home was enqueued, which `again(context)` would repeat: runs the trial, and reports.
  void judge(Launch again, void* context);

 private:
  struct Verdict {
    uint32_t verdict;  // TS_VERDICT_*
    std::string reason;
  };
  /// Why the launch is not tried; empty when it is to be.
  std::string objection();
  std::string obstacle_of_kernel() const;
  bool claim();
  bool is_due() const;
  std::optional<std::string> prepare();
  bool find_worker();
  bool idle(std::string* why);

  Verdict verdict(Launch again, void* context);
  std::optional<Verdict> run_with(uint8_t poison, Launch again, void* context);
  Verdict weigh(const Difference& difference, Launch again, void* context);
  void report(const Verdict& verdict, bool of_class);

  const LaunchRequest& request_;
  KernelState& state_;
  bool by_words_ = false;
  std::vector<uint8_t> parameters_;
  Claims claims_;
  uint64_t launch_class_ = 0;
  ts_worker_info worker_{};
  std::unique_ptr<TrialMemory> memory_;
};

}  // namespace tessera::shim
