// SPDX-License-Identifier: Apache-2.0
// Lines on stderr, as far as TESSERA_LOG asks for them. Thread-safe.
#pragma once

#include <string>

#include "tessera/protocol/settings.h"

namespace tessera::worker {

/// Before any thread starts. `name` stands before each line.
void start_log(LogLevel level, const std::string& name);
void log(LogLevel level, const std::string& text);

}  // namespace tessera::worker
