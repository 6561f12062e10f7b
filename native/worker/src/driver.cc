// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>

#include "log.h"

namespace tessera::worker {
namespace {

template <class F>
struct Stub;
template <class... Arguments>
struct Stub<CUresult (*)(Arguments...)> {
  static CUresult call(Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

template <class F>
void resolve(void* library, const char* name, bool required, F* into) {
  *into = reinterpret_cast<F>(dlsym(library, name));
  if (*into != nullptr) return;
  if (required) {
    throw DriverError(CUDA_ERROR_NOT_FOUND,
                      std::string("the driver has no ") + name + "; Tessera's workers need one of CUDA 11.7 or newer");
  }
  *into = &Stub<F>::call;
}

}  // namespace

Driver Driver::open(const std::string& library) {
  const std::string name = library.empty() ? "libcuda.so.1" : library;
  // Never closed: the driver keeps threads and exit handlers of its own.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw DriverError(CUDA_ERROR_NOT_FOUND, std::string("cannot open the driver: ") + dlerror() +
                                                "; install one, or name it with TESSERA_DRIVER");
  }
  Driver driver;
#define TESSERA_DRIVER(function, required) resolve(handle, #function, required, &driver.function);
#include "driver_functions.def"
#undef TESSERA_DRIVER
  driver.has_launch_ex = dlsym(handle, "cuLaunchKernelEx") != nullptr;
  driver.has_parameter_info = dlsym(handle, "cuFuncGetParamInfo") != nullptr;
  return driver;
}

std::string Driver::error_name(CUresult code) const {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) return "CUDA error " + std::to_string(code);
  return name;
}

void Driver::fail(CUresult code, const std::string& what) const {
  throw DriverError(code, what + ": " + error_name(code));
}

void Driver::note(CUresult code, const char* what) const {
  if (code != CUDA_SUCCESS) log(LogLevel::kWarn, std::string(what) + ": " + error_name(code));
}

}  // namespace tessera::worker
