// SPDX-License-Identifier: Apache-2.0
#include "stub_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STUB extern "C" __attribute__((visibility("default"))) CUresult

namespace stub {
namespace {

struct Count {
  std::atomic<const char*> symbol{nullptr};
  std::atomic<int> calls{0};
};
constexpr size_t kCounts = 1024;
Count counts[kCounts];

Count* count_of(const char* symbol, bool make) {
  for (Count& count : counts) {
    const char* found = count.symbol.load();
    if (found == nullptr && make && count.symbol.compare_exchange_strong(found, symbol)) return &count;
    if (found == nullptr) return nullptr;
    if (std::strcmp(found, symbol) == 0) return &count;
  }
  return nullptr;
}

std::atomic<bool> initialised{false};

Code* made(char kind, const char* name, void* owner) {
  static constinit std::atomic<Code*> last{nullptr};
  Code* code = new Code{kind, {}, static_cast<Code*>(owner), nullptr};
  code->before = last.exchange(code);
  std::snprintf(code->name, sizeof(code->name), "%s", name);
  return code;
}

bool is(const void* handle, char kind) { return handle != nullptr && static_cast<const Code*>(handle)->kind == kind; }

size_t parameters_of(const Code* code) {
  const char* number = std::strrchr(code->name, '_');
  return number != nullptr ? std::strtoul(number + 1, nullptr, 10) : 0;
}

CUresult parameter(const Code* code, size_t index, size_t* offset, size_t* size) {
  if (index >= parameters_of(code)) return CUDA_ERROR_INVALID_VALUE;
  *offset = index * 8;
  if (size != nullptr) *size = 8;
  return CUDA_SUCCESS;
}

/// The newest ABI that is not newer than `version`.
void* find(const char* base, int version, bool per_thread) {
  const Function* best = nullptr;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const Function& function = kFunctions[i];
    if (std::strcmp(function.base, base) != 0 || function.version > version) continue;
    if (function.per_thread && !per_thread) continue;
    const bool better = best == nullptr || function.per_thread != best->per_thread
                            ? best == nullptr || function.per_thread
                            : function.version > best->version;
    if (better) best = &function;
  }
  return best != nullptr ? best->address : nullptr;
}

CUresult future() { return record("cuFutureLaunch"); }

CUresult address(const char* base, void** function, int version, cuuint64_t flags) {
  if (base == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool future_driver = std::getenv("STUB_VERSION") != nullptr;
  if (future_driver && std::strcmp(base, "cuFutureLaunch") == 0) {
    *function = reinterpret_cast<void*>(&future);
  } else {
    *function = find(base, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

std::atomic<int>& counter(const char* symbol) {
  Count* count = count_of(symbol, true);
  if (count == nullptr) std::abort();  // more functions than kCounts
  return count->calls;
}

CUresult record(const char* symbol) {
  ++counter(symbol);
  return CUDA_SUCCESS;
}

}  // namespace stub

using namespace stub;

STUB cuFutureCopy() { return record("cuFutureCopy"); }

extern "C" __attribute__((visibility("default"))) int stub_calls(const char* symbol) {
  Count* count = count_of(symbol, false);
  return count != nullptr ? count->calls.load() : 0;
}

STUB cuInit(unsigned int flags) {
  record("cuInit");
#ifndef STUB_IS_INNER
  using Init = CUresult (*)(unsigned int);
  if (const char* inner = std::getenv("STUB_INNER")) {
    void* library = dlopen(inner, RTLD_NOW | RTLD_LOCAL);
    const auto init = library != nullptr ? reinterpret_cast<Init>(dlsym(library, "cuInit")) : nullptr;
    if (init == nullptr) return CUDA_ERROR_NOT_FOUND;
    const CUresult result = init(flags);
    if (result != CUDA_SUCCESS) return result;
  }
#else
  (void)flags;
#endif
  initialised = true;
  return CUDA_SUCCESS;
}

STUB cuDriverGetVersion(int* version) {
  record("cuDriverGetVersion");
  const char* text = std::getenv("STUB_VERSION");
  if (version != nullptr) *version = text != nullptr ? static_cast<int>(std::strtol(text, nullptr, 10)) : CUDA_VERSION;
  return version != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

STUB cuDeviceGetCount(int* count) {
  record("cuDeviceGetCount");
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = 1;
  return CUDA_SUCCESS;
}

STUB cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  record("cuGetProcAddress");
  return address(symbol, function, version, flags);
}

STUB cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult* status) {
  record("cuGetProcAddress_v2");
  const CUresult result = address(symbol, function, version, flags);
  if (status != nullptr) {
    *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

STUB cuCtxGetCurrent(CUcontext* context) {
  record("cuCtxGetCurrent");
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(uintptr_t{0xc0});
  return CUDA_SUCCESS;
}

STUB cuCtxGetDevice(CUdevice* device) {
  record("cuCtxGetDevice");
  if (device != nullptr) *device = 0;
  return CUDA_SUCCESS;
}

STUB cuModuleLoadData(CUmodule* module, const void*) {
  record("cuModuleLoadData");
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(made('m', "", nullptr));
  return CUDA_SUCCESS;
}

STUB cuModuleLoadDataEx(CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
  record("cuModuleLoadDataEx");
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(made('m', "", nullptr));
  return CUDA_SUCCESS;
}

STUB cuModuleLoad(CUmodule* module, const char*) {
  record("cuModuleLoad");
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(made('m', "", nullptr));
  return CUDA_SUCCESS;
}

STUB cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  record("cuModuleGetFunction");
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = reinterpret_cast<CUfunction>(made('f', name, module));
  return CUDA_SUCCESS;
}

STUB cuModuleGetFunctionCount(unsigned int* count, CUmodule) {
  record("cuModuleGetFunctionCount");
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 2;
  return CUDA_SUCCESS;
}

STUB cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  record("cuModuleEnumerateFunctions");
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && i < 2; ++i) {
    functions[i] = reinterpret_cast<CUfunction>(made('f', i == 0 ? "first_1" : "second_2", module));
  }
  return CUDA_SUCCESS;
}

STUB cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**,
                       unsigned int) {
  record("cuLibraryLoadData");
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(made('l', "", nullptr));
  return CUDA_SUCCESS;
}

STUB cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  record("cuLibraryGetKernel");
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *kernel = reinterpret_cast<CUkernel>(made('k', name, library));
  return CUDA_SUCCESS;
}

STUB cuLibraryGetKernelCount(unsigned int* count, CUlibrary) {
  record("cuLibraryGetKernelCount");
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

STUB cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  record("cuLibraryEnumerateKernels");
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) kernels[0] = reinterpret_cast<CUkernel>(made('k', "only_3", library));
  return CUDA_SUCCESS;
}

STUB cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  record("cuLibraryGetModule");
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(made('m', "", library));
  return CUDA_SUCCESS;
}

STUB cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  record("cuKernelGetFunction");
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = reinterpret_cast<CUfunction>(made('f', reinterpret_cast<Code*>(kernel)->name, nullptr));
  return CUDA_SUCCESS;
}

STUB cuFuncGetModule(CUmodule* module, CUfunction function) {
  record("cuFuncGetModule");
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(function, 'f')) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(reinterpret_cast<Code*>(function)->owner);
  return CUDA_SUCCESS;
}

STUB cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  record("cuKernelGetLibrary");
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(kernel, 'k')) return CUDA_ERROR_INVALID_HANDLE;
  *library = reinterpret_cast<CUlibrary>(reinterpret_cast<Code*>(kernel)->owner);
  return CUDA_SUCCESS;
}

STUB cuFuncGetName(const char** name, CUfunction function) {
  record("cuFuncGetName");
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(function, 'f')) return CUDA_ERROR_INVALID_HANDLE;
  *name = reinterpret_cast<Code*>(function)->name;
  return CUDA_SUCCESS;
}

STUB cuKernelGetName(const char** name, CUkernel kernel) {
  record("cuKernelGetName");
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(kernel, 'k')) return CUDA_ERROR_INVALID_HANDLE;
  *name = reinterpret_cast<Code*>(kernel)->name;
  return CUDA_SUCCESS;
}

STUB cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  record("cuFuncGetParamInfo");
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(function, 'f')) return CUDA_ERROR_INVALID_HANDLE;
  return parameter(reinterpret_cast<Code*>(function), index, offset, size);
}

STUB cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  record("cuKernelGetParamInfo");
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(kernel, 'k')) return CUDA_ERROR_INVALID_HANDLE;
  return parameter(reinterpret_cast<Code*>(kernel), index, offset, size);
}
