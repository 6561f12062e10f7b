// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera::worker {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  int device = 0;                           ///< ordinal, as the driver counts
  uint32_t index = 0;                       ///< 1..15: this worker's number in its controller
  std::string socket;                       ///< where to listen
  int64_t memory_mib = 0;                   ///< of mirrored data; 0: nine tenths of what is free
  std::chrono::milliseconds linger{30000};  ///< without a controller and without programs
  int trial = -1;                           ///< not -1: serve trials for the program behind this descriptor
  bool help = false;
};

/// Reads the command line. `default_memory_mib` comes from the settings. Throws UsageError.
Options parse_options(int argc, const char* const* argv, int64_t default_memory_mib);
extern const char* const kUsage;

}  // namespace tessera::worker
