// SPDX-License-Identifier: Apache-2.0
// A driver library that passes every call on to another one (TESSERA_FAULTY_TO)
// and lets chosen ones fail: TESSERA_FAULTS="cuMemCreate=2@5" answers error 2
// from the fifth call on, "cuMemCreate=2@5x1" only that once.
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Fault {
  int code = 0;
  long first = 0, times = 0;
};

Fault fault_of(const char* name) {
  Fault fault;
  const char* list = std::getenv("TESSERA_FAULTS");
  const char* at = list != nullptr ? std::strstr(list, name) : nullptr;
  if (at == nullptr || at[std::strlen(name)] != '=') return fault;
  fault.times = 1 << 30;
  std::sscanf(at + std::strlen(name), "=%d@%ldx%ld", &fault.code, &fault.first, &fault.times);
  return fault;
}

void* next(const char* name) {
  static void* library = dlopen(std::getenv("TESSERA_FAULTY_TO"), RTLD_NOW | RTLD_LOCAL);
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) std::abort();
  return found;
}

/// One function: its own fault and its own count of calls.
template <class F>
struct Forwarder;
template <class... Arguments>
struct Forwarder<CUresult (*)(Arguments...)> {
  using Function = CUresult (*)(Arguments...);
  Function real;
  Fault fault;
  std::atomic<long> calls{0};
  explicit Forwarder(const char* name) : real(reinterpret_cast<Function>(next(name))), fault(fault_of(name)) {}
  CUresult call(Arguments... arguments) {
    const long number = ++calls;
    if (fault.code != 0 && number >= fault.first && number < fault.first + fault.times) {
      return static_cast<CUresult>(fault.code);
    }
    return real(arguments...);
  }
};

}  // namespace

// Each exported function has the signature that cuda.h declares; a generic lambda takes it from the declaration.
template <class F, class Tag>
struct Exported;
template <class Tag, class... Arguments>
struct Exported<CUresult (*)(Arguments...), Tag> {
  static CUresult call(Arguments... arguments) {
    static Forwarder<CUresult (*)(Arguments...)> forwarder(Tag::kName);
    return forwarder.call(arguments...);
  }
};

// The exported name resolves to Exported<...>::call when it is looked up: C++ cannot write a function whose parameters
// come from a type.
#define TESSERA_DRIVER(function, required)                         \
  namespace {                                                      \
  struct Tag_##function {                                          \
    static constexpr const char* kName = #function;                \
  };                                                               \
  }                                                                \
  extern "C" decltype(&::function) resolve_##function() {          \
    return &Exported<decltype(&::function), Tag_##function>::call; \
  }                                                                \
  extern "C" __attribute__((ifunc("resolve_" #function), visibility("default"))) decltype(::function) function;
#include "driver_functions.def"
