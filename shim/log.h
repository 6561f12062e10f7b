// SPDX-License-Identifier: Apache-2.0
// Lines on stderr, never stdout: one write(2) each, no allocation, errno kept.
#pragma once

#include "tessera/protocol/settings.h"

namespace tessera::shim {

/// Until this is called the level is that of an unset TESSERA_LOG: warn.
void set_log_level(LogLevel level);
bool logs(LogLevel level);

/// Writes "tessera: " and the formatted text, cut at 1,000 bytes, as one line.
[[gnu::format(printf, 2, 3)]] void log_line(LogLevel level, const char* format, ...);

}  // namespace tessera::shim
