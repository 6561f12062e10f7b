// SPDX-License-Identifier: Apache-2.0
// Libraries and kernels: the handles of CUDA 12 that belong to no context.
#include <algorithm>

#include "driver.h"
#include "jit_options.h"
#include "registry.h"
#include "runtime.h"

using namespace tessera::shim;

namespace {

/// Device code of such a library calls functions and reads data of this process.
bool uses_host_tables(const CUlibraryOption* options, void* const* values, unsigned int count) {
  if (options == nullptr || values == nullptr) return false;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE || values[i] == nullptr) continue;
    const auto* table = static_cast<const CUlibraryHostUniversalFunctionAndDataTable*>(values[i]);
    if (table->functionWindowSize != 0 || table->dataWindowSize != 0) return true;
  }
  return false;
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options,
                                                        void** jit_values, unsigned int jit_count,
                                                        CUlibraryOption* options, void** values, unsigned int count) {
  const CUresult result =
      driver().cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count);
  if (result == CUDA_SUCCESS && library != nullptr && runtime().active()) {
    const bool pinned = changes_code(jit_options, jit_count) || uses_host_tables(options, values, count);
    registry().add_library(*library, read_image(code), pinned);
  }
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* path,
                                                            CUjit_option* jit_options, void** jit_values,
                                                            unsigned int jit_count, CUlibraryOption* options,
                                                            void** values, unsigned int count) {
  const auto load = [&] {
    return driver().cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options, values, count);
  };
  if (!runtime().active()) return load();
  std::shared_ptr<const Image> image = read_image_file(path);
  const CUresult result = load();
  if (image != nullptr && !image->file_unchanged()) image = nullptr;
  if (result == CUDA_SUCCESS && library != nullptr) {
    const bool pinned = changes_code(jit_options, jit_count) || uses_host_tables(options, values, count);
    registry().add_library(*library, std::move(image), pinned);
  }
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  if (runtime().active()) registry().remove_library(library);
  return driver().cuLibraryUnload(library);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const CUresult result = driver().cuLibraryGetKernel(kernel, library, name);
  if (result == CUDA_SUCCESS && kernel != nullptr && runtime().active()) registry().add_kernel(*kernel, library, name);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count,
                                                                CUlibrary library) {
  const CUresult result = driver().cuLibraryEnumerateKernels(kernels, count, library);
  if (result != CUDA_SUCCESS || kernels == nullptr || !runtime().active()) return result;
  unsigned int present = 0;
  if (driver().cuLibraryGetKernelCount(&present, library) != CUDA_SUCCESS) return result;
  for (unsigned int i = 0; i < std::min(count, present); ++i) registry().add_kernel(kernels[i], library, nullptr);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  const CUresult result = driver().cuLibraryGetModule(module, library);
  if (result == CUDA_SUCCESS && module != nullptr && runtime().active()) {
    registry().add_library_module(*module, library);
  }
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const CUresult result = driver().cuKernelGetFunction(function, kernel);
  if (result == CUDA_SUCCESS && function != nullptr && runtime().active()) {
    registry().add_kernel_function(*function, kernel);
  }
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* address, size_t* size, CUlibrary library,
                                                         const char* name) {
  const CUresult result = driver().cuLibraryGetGlobal(address, size, library, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_library(library);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary library,
                                                          const char* name) {
  const CUresult result = driver().cuLibraryGetManaged(address, size, library, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_library(library);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** pointer, CUlibrary library,
                                                                  const char* symbol) {
  const CUresult result = driver().cuLibraryGetUnifiedFunction(pointer, library, symbol);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_library(library);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                                           CUdevice device) {
  const CUresult result = driver().cuKernelSetAttribute(attribute, value, kernel, device);
  if (result == CUDA_SUCCESS && runtime().active()) registry().set_attribute(kernel, attribute, value, device);
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  const CUresult result = driver().cuKernelSetCacheConfig(kernel, config, device);
  if (result == CUDA_SUCCESS && config != CU_FUNC_CACHE_PREFER_NONE && runtime().active()) {
    registry().set_other_attribute(kernel);
  }
  return result;
}
