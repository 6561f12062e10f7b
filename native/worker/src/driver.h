// SPDX-License-Identifier: Apache-2.0
// The driver library, opened at run time. A function that it lacks is a typed
// stub that answers CUDA_ERROR_NOT_SUPPORTED, never a null pointer.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdexcept>
#include <string>

namespace tessera::worker {

/// A call that failed, with a text for the user. The control path throws it; a session ends with it.
class DriverError : public std::runtime_error {
 public:
  DriverError(CUresult code, const std::string& text) : std::runtime_error(text), code_(code) {}
  CUresult code() const { return code_; }

 private:
  CUresult code_;
};

struct Driver {
#define TESSERA_DRIVER(name, required) decltype(&::name) name = nullptr;
#include "driver_functions.def"
#undef TESSERA_DRIVER

  /// Opens `library`, or libcuda.so.1 when it is empty. Throws DriverError when it cannot be opened or lacks a
  /// required function.
  static Driver open(const std::string& library);

  std::string error_name(CUresult code) const;
  /// Throws DriverError "what: CUDA_ERROR_..." unless `code` is success.
  void check(CUresult code, const char* what) const {
    if (code != CUDA_SUCCESS) fail(code, what);
  }
  [[noreturn]] void fail(CUresult code, const std::string& what) const;
  /// For destructors: a failure can only be told.
  void note(CUresult code, const char* what) const;

  /// Whether cuLaunchKernelEx and cuFuncGetParamInfo are there, and no stubs.
  bool has_launch_ex = false;
  bool has_parameter_info = false;
};

}  // namespace tessera::worker
