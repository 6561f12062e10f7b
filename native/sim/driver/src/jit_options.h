// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api.h"

namespace tessera::sim {

/// The log buffers among CUjit_option arrays. Other options need no action here: they tune
/// code generation, and there is none.
class JitOptions {
 public:
  JitOptions(unsigned count, CUjit_option* names, void** values);
  /// Writes the logs into the program's buffers and their sizes into the option values.
  void write(const std::string& information, const std::string& errors);

 private:
  struct Buffer {
    char* text = nullptr;
    size_t size = 0;
    void** size_value = nullptr;
    void put(const std::string& log) const;
  };
  Buffer information_, errors_;
  void** wall_time_ = nullptr;
};

}  // namespace tessera::sim
