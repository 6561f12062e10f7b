// SPDX-License-Identifier: Apache-2.0
// A driver that does nothing and remembers it. Its exports beside the driver's:
//
//   int stub_calls(const char* symbol)   how often it was called
//
// Environment: STUB_VERSION what cuDriverGetVersion says; STUB_INNER a library
// whose cuInit it finds with dlopen and dlsym and calls, as the driver of WSL
// does.
#pragma once

#include <atomic>
#include <cstddef>

#include "driver_declarations.h"

extern "C" __attribute__((visibility("default"))) int stub_calls(const char* symbol);

namespace stub {

struct Function {
  const char* base;
  const char* symbol;
  int version;
  bool per_thread;
  void* address;
};
extern const Function kFunctions[];
extern const size_t kFunctionCount;

/// The count of a function's calls.
std::atomic<int>& counter(const char* symbol);
/// Counts a call. CUDA_SUCCESS, always.
CUresult record(const char* symbol);

/// Behind the handles. A kernel's name says how many parameters it has: "f_100".
struct Code {
  char kind;  // m: module, l: library, f: function, k: kernel
  char name[64];
  Code* owner;
  Code* before;  // all that were made, in a list: they are never freed
};

}  // namespace stub
