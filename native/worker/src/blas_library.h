// SPDX-License-Identifier: Apache-2.0
// cuBLAS or cuBLASLt, opened from the file that a program has it from.
#pragma once

#include <string>

#include "tessera/protocol/blas_abi.h"
#include "tessera/protocol/blas_call.h"

namespace tessera::worker {

/// One library file. Opened once, and never closed: it keeps state of its own in the context.
class BlasLibrary {
 public:
  /// Throws DriverError that says why the file is not taken.
  static const BlasLibrary& open(const std::string& path, uint32_t kind);

  uint32_t kind() const { return kind_; }
  /// Null where this version lacks it.
  void* function(uint32_t number, bool wide) const { return functions_[number][wide ? 1 : 0]; }

  blas::Create create = nullptr;
  blas::Destroy destroy = nullptr;
  blas::SetStream set_stream = nullptr;
  blas::SetWorkspace set_workspace = nullptr;
  blas::SetInt set_math_mode = nullptr, set_atomics_mode = nullptr, set_sm_count = nullptr;
  blas::LtCreateOperation create_operation = nullptr;
  blas::LtCreateLayout create_layout = nullptr;
  blas::Destroy destroy_operation = nullptr, destroy_layout = nullptr;
  blas::LtSetAttribute set_operation = nullptr, set_layout = nullptr;

 private:
  BlasLibrary(const std::string& path, uint32_t kind);
  template <class Function>
  void find(void* handle, const char* name, Function& into);

  std::string path_;
  uint32_t kind_;
  void* functions_[TS_BLAS_FUNCTIONS][2] = {};
};

const char* blas_function_name(uint32_t number);

}  // namespace tessera::worker
