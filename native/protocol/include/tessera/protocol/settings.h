// SPDX-License-Identifier: Apache-2.0
// The settings of settings.def, read once from the environment.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

enum class LogLevel : uint8_t { kError, kWarn, kInfo, kDebug };

struct Settings {
#define TESSERA_SETTING(identifier, environment, kind, default_value, help) std::string identifier;
#include "tessera/protocol/settings.def"
#undef TESSERA_SETTING

  bool flag(const std::string& value) const { return value == "1" || value == "true" || value == "yes"; }
  /// `fallback` when the text is not a whole number.
  int64_t integer(const std::string& value, int64_t fallback) const;
  LogLevel log_level() const;
  /// `runtime_dir` with its default applied.
  std::string runtime_folder() const;

  static Settings from_environment();
};

}  // namespace tessera
