// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include <unistd.h>

namespace tessera::worker {
namespace {
LogLevel g_level = LogLevel::kWarn;
std::string g_name = "tessera-worker";
}  // namespace

void start_log(LogLevel level, const std::string& name) {
  g_level = level;
  g_name = name;
}

void log(LogLevel level, const std::string& text) {
  if (level > g_level) return;
  const std::string line = g_name + ": " + text + "\n";
  // One write for one line, so that threads do not mix theirs. There is nobody to tell when stderr is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tessera::worker
