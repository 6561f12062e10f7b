// SPDX-License-Identifier: Apache-2.0
// The oracle: with TESSERA_SIM_RECORD=PREFIX each launch adds one JSON line to
// PREFIX.PID.jsonl with the bytes that it truly read and wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/sim/interpreter.h"

namespace tessera::sim {

struct RecordedLaunch {
  const std::string& kernel;
  int device = 0;
  uint64_t sequence = 0;
  const Launch& launch;
  const std::vector<uint8_t>& parameters;
  const LaunchOutcome& outcome;
  int64_t picoseconds = 0;
};

/// Null or empty: off. Throws std::runtime_error where the file cannot be made.
void configure_recorder(const char* prefix);
bool recording();
void record_launch(const RecordedLaunch& launch);

}  // namespace tessera::sim
