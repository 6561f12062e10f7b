// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ptx/ir.h"

namespace tessera::ptx {

struct Diagnostic {
  SourceLocation location;
  std::string message;
};

struct ParseResult {
  Module module;                    // what could be read, even where errors were met
  std::vector<Diagnostic> errors;   // empty: the whole text was understood
  std::vector<std::string> broken;  // functions in whose body an error was met: unknown to all users
  bool ok() const { return errors.empty(); }
};

/// Parses one PTX module. Never throws on bad input; resynchronises at ';' and
/// '}' so that one bad statement costs its function, not the module.
ParseResult parse(std::string_view text);

}  // namespace tessera::ptx
