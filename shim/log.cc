// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace tessera::shim {
namespace {

constinit std::atomic<LogLevel> threshold{LogLevel::kWarn};
constexpr char kPrefix[] = "tessera: ";
constexpr size_t kLineBytes = 1024;

}  // namespace

void set_log_level(LogLevel level) { threshold.store(level, std::memory_order_relaxed); }

bool logs(LogLevel level) { return level <= threshold.load(std::memory_order_relaxed); }

void log_line(LogLevel level, const char* format, ...) {
  if (!logs(level)) return;
  const int saved_errno = errno;
  char line[kLineBytes];
  size_t length = sizeof(kPrefix) - 1;
  std::memcpy(line, kPrefix, length);
  std::va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
  va_end(arguments);
  if (wanted > 0) length = std::strlen(line);
  line[length++] = '\n';
  // A log that nobody can read is no reason to disturb the program.
  while (::write(STDERR_FILENO, line, length) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

}  // namespace tessera::shim
