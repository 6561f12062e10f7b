// SPDX-License-Identifier: Apache-2.0
#include "tessera/protocol/settings.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace tessera {
namespace {

std::string environment_or(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

int64_t Settings::integer(const std::string& value, int64_t fallback) const {
  if (value.empty()) return fallback;
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(value.c_str(), &end, 10);
  return errno == 0 && *end == '\0' ? parsed : fallback;
}

LogLevel Settings::log_level() const {
  if (log == "error") return LogLevel::kError;
  if (log == "info") return LogLevel::kInfo;
  if (log == "debug") return LogLevel::kDebug;
  return LogLevel::kWarn;
}

std::string Settings::runtime_folder() const {
  if (!runtime_dir.empty()) return runtime_dir;
  const std::string user_runtime = environment_or("XDG_RUNTIME_DIR", "");
  if (!user_runtime.empty()) return user_runtime + "/tessera";
  return "/tmp/tessera-" + std::to_string(getuid());
}

Settings Settings::from_environment() {
  Settings settings;
#define TESSERA_SETTING(identifier, environment, kind, default_value, help) \
  settings.identifier = environment_or(environment, default_value);
#include "tessera/protocol/settings.def"
#undef TESSERA_SETTING
  return settings;
}

}  // namespace tessera
