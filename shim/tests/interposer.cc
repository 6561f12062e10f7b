// SPDX-License-Identifier: Apache-2.0
// Somebody else's interposer: counts allocations and hands them on.
#include <dlfcn.h>

#include <atomic>

#include "driver_declarations.h"

#define INTERPOSER extern "C" __attribute__((visibility("default")))

namespace {
std::atomic<int> allocations{0};
}

INTERPOSER int interposer_calls() { return allocations; }

INTERPOSER void* interposer_next() {
  if (void* next = dlsym(RTLD_NEXT, "cuMemAlloc_v2")) return next;
  return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
}

/// Opens by bare name what only this library's own RUNPATH leads to.
INTERPOSER void* interposer_open(const char* name) {
  void* volatile library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // no tail call: the loader looks at who calls
  return library;
}

INTERPOSER CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t size) {
  ++allocations;
  return reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(interposer_next())(pointer, size);
}
