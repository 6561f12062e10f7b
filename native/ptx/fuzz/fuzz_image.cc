// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "../tests/drive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::ptx::drive_image(reinterpret_cast<const char*>(data), size);
  return 0;
}
