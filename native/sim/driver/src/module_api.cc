// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "api.h"
#include "device.h"
#include "jit_options.h"
#include "module.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

CUmodule load_module(const Image& image, JitOptions* options) {
  Context& context = current_context();
  check_capture_allows_unsafe_call();
  std::string log;
  Ref<Module> module;
  try {
    module = Module::load(context, image, log);
  } catch (const Failure&) {
    if (options != nullptr) options->write("", log);
    throw;
  }
  if (options != nullptr) options->write(log, "");
  context.add_module(*module);
  return to_handle<CUmodule>(module.get());
}

Module& module_of(CUmodule handle) {
  Module& module = from_handle<Module>(handle);
  module.context().check_alive(module.context_generation());
  module.context().device().check_fault();
  return module;
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return api([&] {
    current_context();
    require(module != nullptr && fname != nullptr);
    *module = load_module(read_image_file(fname), nullptr);
  });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return api([&] {
    current_context();
    require(module != nullptr && image != nullptr);
    *module = load_module(read_image_memory(image), nullptr);
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
                            void** optionValues) {
  return api([&] {
    current_context();
    require(module != nullptr && image != nullptr);
    JitOptions jit(numOptions, options, optionValues);
    *module = load_module(read_image_memory(image), &jit);
  });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) { return cuModuleLoadData(module, fatCubin); }

CUresult cuModuleUnload(CUmodule hmod) {
  return api([&] {
    Module& module = module_of(hmod);
    require(module.library == nullptr, CUDA_ERROR_NOT_PERMITTED);
    module.unload();
    module.context().remove_module(module);
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return api([&] {
    require(mode != nullptr);
    *mode = CU_MODULE_LAZY_LOADING;
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return api([&] {
    require(hfunc != nullptr && name != nullptr);
    Function* function = module_of(hmod).find_function(name);
    require(function != nullptr, CUDA_ERROR_NOT_FOUND);
    *hfunc = to_handle<CUfunction>(function);
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return api([&] {
    require(count != nullptr);
    *count = static_cast<unsigned>(module_of(mod).functions().size());
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  return api([&] {
    const auto& all = module_of(mod).functions();
    require(functions != nullptr && numFunctions > 0);
    for (size_t i = 0; i < numFunctions && i < all.size(); ++i) functions[i] = to_handle<CUfunction>(all[i]);
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return api([&] {
    require(name != nullptr && (dptr != nullptr || bytes != nullptr));
    const ModuleGlobal* global = module_of(hmod).find_global(name);
    require(global != nullptr, CUDA_ERROR_NOT_FOUND);
    if (dptr != nullptr) *dptr = global->address;
    if (bytes != nullptr) *bytes = global->size;
  });
}

// ---- libraries ----

namespace {

CUlibrary load_library(Image image, unsigned option_count, CUlibraryOption* options, void** values) {
  require(option_count == 0 || options != nullptr);
  for (unsigned i = 0; i < option_count; ++i) {
    // Both promise something about lifetimes; the image is copied in any case.
    require(options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE ||
            options[i] == CU_LIBRARY_BINARY_IS_PRESERVED);
  }
  (void)values;
  return to_handle<CUlibrary>(new Library(std::move(image)));
}

LibraryKernel& kernel_of(CUkernel handle) { return from_handle<LibraryKernel>(handle); }

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  return api([&] {
    require(library != nullptr && code != nullptr);
    JitOptions jit(numJitOptions, jitOptions, jitOptionsValues);
    *library = load_library(read_image_memory(code), numLibraryOptions, libraryOptions, libraryOptionValues);
    jit.write("", "");
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                               void** libraryOptionValues, unsigned int numLibraryOptions) {
  return api([&] {
    require(library != nullptr && fileName != nullptr);
    JitOptions jit(numJitOptions, jitOptions, jitOptionsValues);
    *library = load_library(read_image_file(fileName), numLibraryOptions, libraryOptions, libraryOptionValues);
    jit.write("", "");
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return api([&] {
    Library& loaded = from_handle<Library>(library);
    loaded.unload();
    loaded.release();
  });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return api([&] {
    require(pKernel != nullptr && name != nullptr);
    LibraryKernel* kernel = from_handle<Library>(library).find_kernel(name);
    require(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
    *pKernel = to_handle<CUkernel>(kernel);
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return api([&] {
    require(count != nullptr);
    *count = static_cast<unsigned>(from_handle<Library>(lib).kernels().size());
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return api([&] {
    const auto all = from_handle<Library>(lib).kernels();
    require(kernels != nullptr && numKernels > 0);
    for (size_t i = 0; i < numKernels && i < all.size(); ++i) kernels[i] = to_handle<CUkernel>(all[i]);
  });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  return api([&] {
    require(pMod != nullptr);
    *pMod = to_handle<CUmodule>(&from_handle<Library>(library).module_in(current_context()));
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return api([&] {
    require(name != nullptr && (dptr != nullptr || bytes != nullptr));
    const Module& module = from_handle<Library>(library).module_in(current_context());
    const ModuleGlobal* global = module.find_global(name);
    require(global != nullptr, CUDA_ERROR_NOT_FOUND);
    if (dptr != nullptr) *dptr = global->address;
    if (bytes != nullptr) *bytes = global->size;
  });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return api([&] {
    require(name != nullptr && (dptr != nullptr || bytes != nullptr));
    const Module& module = from_handle<Library>(library).module_in(current_context());
    const ModuleGlobal* global = module.find_global(name);
    require(global != nullptr && module.is_managed(name), CUDA_ERROR_NOT_FOUND);
    if (dptr != nullptr) *dptr = global->address;
    if (bytes != nullptr) *bytes = global->size;
  });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return api([&] {
    require(pFunc != nullptr);
    LibraryKernel& wanted = kernel_of(kernel);
    *pFunc = to_handle<CUfunction>(&wanted.function_in(current_context()));
  });
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return api([&] {
    require(pLib != nullptr);
    *pLib = to_handle<CUlibrary>(&kernel_of(kernel).library());
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return api([&] {
    require(name != nullptr);
    *name = kernel_of(hfunc).name().c_str();
  });
}
