// SPDX-License-Identifier: Apache-2.0
// Modules and functions. Every call goes to the driver as it came; what it
// answered is noted afterwards.
#include <algorithm>

#include "driver.h"
#include "jit_options.h"
#include "registry.h"
#include "runtime.h"
#include "seams.h"

using namespace tessera::shim;

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
  if (!runtime().active()) return driver().cuModuleLoad(module, path);
  // Read before and looked at again after: the driver saw these bytes and no others.
  std::shared_ptr<const Image> image = read_image_file(path);
  const CUresult result = driver().cuModuleLoad(module, path);
  if (image != nullptr && !image->file_unchanged()) image = nullptr;
  if (result == CUDA_SUCCESS && module != nullptr) registry().add_module(*module, std::move(image), false);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  const CUresult result = driver().cuModuleLoadData(module, image);
  if (result == CUDA_SUCCESS && module != nullptr && runtime().active()) {
    registry().add_module(*module, read_image(image), false);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                                                         CUjit_option* options, void** values) {
  // The driver writes results into some of the values, never into the options.
  const CUresult result = driver().cuModuleLoadDataEx(module, image, count, options, values);
  if (result == CUDA_SUCCESS && module != nullptr && runtime().active()) {
    registry().add_module(*module, read_image(image), changes_code(options, count));
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatbin) {
  const CUresult result = driver().cuModuleLoadFatBinary(module, fatbin);
  if (result == CUDA_SUCCESS && module != nullptr && runtime().active()) {
    registry().add_module(*module, read_image(fatbin), false);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  if (runtime().active()) registry().remove_module(module);
  return after_call(driver().cuModuleUnload(module));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const CUresult result = driver().cuModuleGetFunction(function, module, name);
  if (result == CUDA_SUCCESS && function != nullptr && runtime().active()) {
    registry().add_function(*function, module, name);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count,
                                                                 CUmodule module) {
  const CUresult result = driver().cuModuleEnumerateFunctions(functions, count, module);
  if (result != CUDA_SUCCESS || functions == nullptr || !runtime().active()) return after_call(result);
  unsigned int present = 0;
  if (driver().cuModuleGetFunctionCount(&present, module) != CUDA_SUCCESS) return after_call(result);
  for (unsigned int i = 0; i < std::min(count, present); ++i) registry().add_function(functions[i], module, nullptr);
  return after_call(result);
}

// From here on the program can write the module's variables by itself.

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr_v1* address, unsigned int* size, CUmodule module,
                                                        const char* name) {
  const CUresult result = driver().cuModuleGetGlobal(address, size, module, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_module(module);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule module,
                                                           const char* name) {
  const CUresult result = driver().cuModuleGetGlobal_v2(address, size, module, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_module(module);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleGetTexRef(CUtexref* reference, CUmodule module, const char* name) {
  const CUresult result = driver().cuModuleGetTexRef(reference, module, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_module(module);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuModuleGetSurfRef(CUsurfref* reference, CUmodule module, const char* name) {
  const CUresult result = driver().cuModuleGetSurfRef(reference, module, name);
  if (result == CUDA_SUCCESS && runtime().active()) registry().pin_module(module);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                                         int value) {
  const CUresult result = driver().cuFuncSetAttribute(function, attribute, value);
  if (result != CUDA_SUCCESS || !runtime().active()) return after_call(result);
  CUdevice device = 0;
  if (driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    registry().set_attribute(function, attribute, value, device);
  } else {
    registry().set_other_attribute(function);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  const CUresult result = driver().cuFuncSetCacheConfig(function, config);
  if (result == CUDA_SUCCESS && config != CU_FUNC_CACHE_PREFER_NONE && runtime().active()) {
    registry().set_other_attribute(function);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  const CUresult result = driver().cuFuncSetSharedMemConfig(function, config);
  if (result == CUDA_SUCCESS && config != CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && runtime().active()) {
    registry().set_other_attribute(function);
  }
  return after_call(result);
}
