// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "heap.h"

namespace tessera::sim {

/// What a launch offers to the functions of the runtime that kernels call.
class LaunchServices {
 public:
  std::string printf_output;
  Heap* heap = nullptr;
};

}  // namespace tessera::sim
