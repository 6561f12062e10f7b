// SPDX-License-Identifier: Apache-2.0
#include "blas_library.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "driver.h"

namespace tessera::worker {
namespace {

/// It becomes code of this process: nobody else's file, and nothing but what it says it is.
std::string objection(const std::string& path, uint32_t kind) {
  const char* slash = std::strrchr(path.c_str(), '/');
  const std::string wanted = kind == TS_BLAS_LIBRARY ? "libcublas.so." : "libcublasLt.so.";
  if (path.empty() || path[0] != '/' || std::strncmp(slash + 1, wanted.c_str(), wanted.size()) != 0) {
    return path + " is no " + wanted;
  }
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return path + " cannot be read by the worker";
  if (file.st_uid != 0 && file.st_uid != ::geteuid()) return path + " belongs to another user";
  return "";
}

}  // namespace

const char* blas_function_name(uint32_t number) {
  static constexpr const char* kNames[] = {
#define TESSERA_BLAS(shape, name, type) #name,
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
      "cublasLtMatmul"};
  return number < TS_BLAS_FUNCTIONS ? kNames[number] : "an unknown call";
}

const BlasLibrary& BlasLibrary::open(const std::string& path, uint32_t kind) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<BlasLibrary>> opened;
  if (const std::string text = objection(path, kind); !text.empty()) throw DriverError(CUDA_ERROR_INVALID_VALUE, text);
  const std::lock_guard lock(mutex);
  auto& library = opened[path];
  if (library == nullptr) library.reset(new BlasLibrary(path, kind));
  return *library;
}

template <class Function>
void BlasLibrary::find(void* handle, const char* name, Function& into) {
  into = reinterpret_cast<Function>(dlsym(handle, name));
  if (into == nullptr) throw DriverError(CUDA_ERROR_NOT_FOUND, path_ + " has no " + name);
}

BlasLibrary::BlasLibrary(const std::string& path, uint32_t kind) : path_(path), kind_(kind) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw DriverError(CUDA_ERROR_NOT_FOUND, dlerror());
  if (kind == TS_BLAS_LT_LIBRARY) {
    find(handle, "cublasLtCreate", create);
    find(handle, "cublasLtDestroy", destroy);
    find(handle, "cublasLtMatmulDescCreate", create_operation);
    find(handle, "cublasLtMatmulDescDestroy", destroy_operation);
    find(handle, "cublasLtMatmulDescSetAttribute", set_operation);
    find(handle, "cublasLtMatrixLayoutCreate", create_layout);
    find(handle, "cublasLtMatrixLayoutDestroy", destroy_layout);
    find(handle, "cublasLtMatrixLayoutSetAttribute", set_layout);
    find(handle, "cublasLtMatmul", functions_[TS_BLAS_cublasLtMatmul][0]);
    return;
  }
  find(handle, "cublasCreate_v2", create);
  find(handle, "cublasDestroy_v2", destroy);
  find(handle, "cublasSetStream_v2", set_stream);
  find(handle, "cublasSetWorkspace_v2", set_workspace);
  find(handle, "cublasSetMathMode", set_math_mode);
  find(handle, "cublasSetAtomicsMode", set_atomics_mode);
  find(handle, "cublasSetSmCountTarget", set_sm_count);
#define TESSERA_BLAS(shape, name, type)                 \
  functions_[TS_BLAS_##name][0] = dlsym(handle, #name); \
  functions_[TS_BLAS_##name][1] = dlsym(handle, #name "_64");
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
}

}  // namespace tessera::worker
