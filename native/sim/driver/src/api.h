// SPDX-License-Identifier: Apache-2.0
// What every file that defines driver functions includes: the declarations with
// their true names (cuMemAlloc_v2, not the cuMemAlloc macro), and api(), the
// frame around each function's body.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

#include <new>
#include <utility>

// Declared in cudaProfiler.h, which no package of headers carries.
extern "C" __attribute__((visibility("default"))) CUresult cuProfilerInitialize(const char*, const char*, int);
extern "C" __attribute__((visibility("default"))) CUresult cuProfilerStart();
extern "C" __attribute__((visibility("default"))) CUresult cuProfilerStop();

namespace tessera::sim {

/// How an error travels inside the driver; api() turns it into the return value.
struct Failure {
  CUresult code;
};

[[noreturn]] inline void fail(CUresult code) { throw Failure{code}; }
inline void require(bool condition, CUresult code = CUDA_ERROR_INVALID_VALUE) {
  if (!condition) fail(code);
}

/// CUDA_SUCCESS when this thread may call the driver now: initialised, not a
/// child forked from an initialised process, not inside a host function.
CUresult readiness();

/// Runs `body` as one driver function. The body returns nothing (success) or a CUresult.
template <class Body>
CUresult api(Body&& body) noexcept {
  try {
    if (const CUresult state = readiness(); state != CUDA_SUCCESS) return state;
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return CUDA_SUCCESS;
    } else {
      return body();
    }
  } catch (const Failure& failure) {
    return failure.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// While one lives, the NULL stream of this thread's calls is the per-thread
/// stream: the _ptsz and _ptds variants are the plain functions under it.
class PerThreadDefault {
 public:
  PerThreadDefault();
  ~PerThreadDefault();
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

}  // namespace tessera::sim
