// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstring>

namespace tessera::shim {

/// Whether a module loaded with these options may differ from what the image
/// alone gives: other rounding, other limits, other symbols. Options that only
/// report, or say where to look, do not count.
inline bool changes_code(const CUjit_option* options, unsigned int count) {
  if (options == nullptr) return false;
  for (unsigned int i = 0; i < count; ++i) {
    int option = 0;  // newer drivers know values that the enumeration lacks
    std::memcpy(&option, &options[i], sizeof(option));
    switch (option) {
      case CU_JIT_WALL_TIME:
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      case CU_JIT_ERROR_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      case CU_JIT_TARGET_FROM_CUCONTEXT:
      case CU_JIT_LOG_VERBOSE:
      case CU_JIT_CACHE_MODE:
        break;
      default:
        return true;
    }
  }
  return false;
}

}  // namespace tessera::shim
