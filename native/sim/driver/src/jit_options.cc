// SPDX-License-Identifier: Apache-2.0
#include "jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tessera::sim {

JitOptions::JitOptions(unsigned count, CUjit_option* names, void** values) {
  require(count == 0 || (names != nullptr && values != nullptr));
  for (unsigned i = 0; i < count; ++i) {
    void** const value = &values[i];
    switch (names[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        information_.text = static_cast<char*>(*value);
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        errors_.text = static_cast<char*>(*value);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        information_.size = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*value));
        information_.size_value = value;
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        errors_.size = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*value));
        errors_.size_value = value;
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = value;
        break;
      default:
        require(names[i] >= 0 && names[i] < CU_JIT_NUM_OPTIONS);
    }
  }
}

void JitOptions::Buffer::put(const std::string& log) const {
  size_t used = 0;
  if (text != nullptr && size > 0) {
    used = std::min(log.size(), size - 1);
    std::memcpy(text, log.data(), used);
    text[used] = '\0';
  }
  if (size_value != nullptr) *size_value = reinterpret_cast<void*>(static_cast<uintptr_t>(used));
}

void JitOptions::write(const std::string& information, const std::string& errors) {
  information_.put(information);
  errors_.put(errors);
  if (wall_time_ != nullptr) *wall_time_ = nullptr;  // a float 0: nothing was compiled
}

}  // namespace tessera::sim
