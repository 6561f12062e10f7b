// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "images.h"
#include "tessera/protocol/trial.h"
#include "tessera/transport/socket.h"

namespace tessera::shim {

/// A connection to a trial process on a worker's device. It ends with the first kernel that fails there.
class TrialLink {
 public:
  /// Has the worker start the process. Throws transport::TransportError, or std::runtime_error with the process's
  /// reason.
  explicit TrialLink(const ts_worker_info& worker);

  const std::string& device() const { return device_; }

  /// Loads the kernel that the next runs are of. Throws std::runtime_error that says why it cannot be.
  void load(const Image& image, const std::string& name, uint32_t parameter_size, int max_dynamic_shared,
            int shared_carveout);

  /// `memory`: as protocol/trial.h has it. Throws transport::TransportError.
  ts_trial_done run(const ts_trial_run& request, int memory);

 private:
  void send_image(const Image& image);
  transport::Packet answer(uint16_t type, std::chrono::milliseconds timeout);

  transport::Socket socket_;
  std::string device_;
  std::set<std::pair<uint64_t, uint64_t>> images_;  // that were sent
};

}  // namespace tessera::shim
