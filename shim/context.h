// SPDX-License-Identifier: Apache-2.0
// Small questions and moves about contexts and devices.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"

namespace tessera::shim {

/// Null when there is none, or the driver does not say.
inline CUcontext current_context() {
  CUcontext context = nullptr;
  return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

/// Makes a context current while it lives.
class Entered {
 public:
  explicit Entered(CUcontext context) : result_(driver().cuCtxPushCurrent_v2(context)) {}
  ~Entered() {
    CUcontext before = nullptr;
    if (result_ == CUDA_SUCCESS) driver().cuCtxPopCurrent_v2(&before);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  /// CUDA_SUCCESS, or why the context is not current.
  CUresult result() const { return result_; }
  explicit operator bool() const { return result_ == CUDA_SUCCESS; }

 private:
  CUresult result_;
};

/// 80 for 8.0; 0 when the driver does not say.
inline uint32_t compute_capability(CUdevice device) {
  int major = 0, minor = 0;
  driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  return static_cast<uint32_t>(major * 10 + minor);
}

}  // namespace tessera::shim
