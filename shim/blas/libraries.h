// SPDX-License-Identifier: Apache-2.0
// The cuBLAS and cuBLASLt libraries that the program itself has loaded. Nothing
// here loads one, and nothing stands for one that is linked in statically.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "loaded_objects.h"
#include "tessera/protocol/blas_abi.h"
#include "tessera/protocol/blas_call.h"

namespace tessera::shim {

/// One library file in this process, with the functions that the shim calls. Kept in the process once it is known.
struct HostLibrary {
  std::string path;  // absolute
  uint32_t kind = TS_BLAS_LIBRARY;
  uintptr_t begin = 0, end = 0;
  void* functions[TS_BLAS_FUNCTIONS][2] = {};  // by number; 32-bit sizes, 64-bit sizes
  blas::Create create = nullptr;
  blas::Destroy destroy = nullptr;
  blas::SetStream set_stream = nullptr;
  blas::SetWorkspace set_workspace = nullptr;
  blas::GetStream get_stream = nullptr;
  blas::GetInt pointer_mode = nullptr, math_mode = nullptr, atomics_mode = nullptr, sm_count = nullptr;
  blas::GetInt emulation_strategy = nullptr;  // null in versions that do not emulate
  blas::LtGetAttribute get_operation = nullptr, get_layout = nullptr;
  struct Attribute {
    int id;
    uint32_t size;
    uint64_t usual;  // its value in a fresh operation
  };
  std::vector<Attribute> attributes;  // of operations, that this version has
  bool usable = false;                // it has all that moving a call takes

  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) >= begin && reinterpret_cast<uintptr_t>(address) < end;
  }
};

/// What a call of `name` from `caller` would have reached without the shim. Walks what is loaded: for creating handles,
/// and for those that nobody saw made.
struct Target {
  void* function = nullptr;
  const HostLibrary* library = nullptr;  // null: none of the kind, but code that was linked in statically
};
Target find_target(uint32_t kind, const char* name, const void* caller);
/// A pointer into a library of this kind was given out by dlsym. False: there are several, and a call of the shim's
/// function could not tell which of them it means.
bool note_lookup(uint32_t kind, const void* found);
/// The cuBLASLt that goes with a cuBLAS, whose handles it takes.
const HostLibrary* companion_of(const HostLibrary& library);
/// Whether the address lies in a library that is known already.
bool in_host_library(const void* address);

/// One handle that the program has made.
struct HostHandle {
  std::atomic<const void*> raw{nullptr};  // the library's; null once it is destroyed
  const HostLibrary* library = nullptr;
  CUcontext context = nullptr;  // that was current
  std::atomic<uint64_t> workspace{0}, workspace_bytes{TS_BLAS_OWN_WORKSPACE};
};
/// Null when the shim did not see it made. No lock.
HostHandle* find_handle(const void* handle);
void add_handle(const void* handle, const HostLibrary& library, CUcontext context);
void remove_handle(const void* handle);

}  // namespace tessera::shim
