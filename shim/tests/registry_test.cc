// SPDX-License-Identifier: Apache-2.0
// The wrappers of module and library calls and what they make known, in active
// mode, over the stub driver (TESSERA_DRIVER names it).
#include "registry.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "driver.h"
#include "probe.h"
#include "runtime.h"
#include "seams.h"
#include "testing/check.h"

using namespace tessera::shim;

namespace {
std::atomic<int> retired{0};
}

// The other half of the shim, as far as this test goes.
namespace tessera::shim {
bool session_start() { return true; }
void function_retired(FunctionEntry&) { ++retired; }
}  // namespace tessera::shim

namespace {

constexpr char kText[] = ".version 8.0";

CUmodule load() {
  CUmodule module = nullptr;
  cuInit(0);
  REQUIRE(runtime().active());
  REQUIRE(cuModuleLoadData(&module, kText) == CUDA_SUCCESS);
  return module;
}

CUfunction get(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  REQUIRE(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
  return function;
}

CUlibrary load_library() {
  CUlibrary library = nullptr;
  cuInit(0);
  REQUIRE(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS);
  return library;
}

CUkernel get(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  REQUIRE(cuLibraryGetKernel(&kernel, library, name) == CUDA_SUCCESS);
  return kernel;
}

FunctionEntry* entry_of(CUkernel kernel) { return find_function(static_cast<const void*>(kernel)); }

}  // namespace

TEST_CASE(module_function) {
  CUfunction function = get(load(), "f_3");
  FunctionEntry* entry = find_function(function);
  REQUIRE(entry != nullptr && entry->prepare());
  CHECK_EQ(entry->name, std::string("f_3"));
  CHECK_EQ(entry->parameters.size(), 3u);
  CHECK_EQ(entry->parameters[2].offset, 16u);
  CHECK_EQ(entry->parameter_size, 24u);
  REQUIRE(entry->image() != nullptr);
  CHECK_EQ(entry->image()->bytes().size(), sizeof(kText) - 1);
  CHECK(entry->movable());
  CHECK_EQ(entry->max_dynamic_shared.load(), -1);
}

TEST_CASE(any_number_of_parameters) {
  CUmodule module = load();
  for (const auto& [name, count] :
       {std::pair("f_0", 0u), std::pair("f_65", 65u), std::pair("f_100", 100u), std::pair("f_4096", 4096u)}) {
    FunctionEntry* entry = find_function(get(module, name));
    REQUIRE(entry->prepare());
    CHECK_EQ(entry->parameters.size(), count);
    CHECK_EQ(entry->parameter_size, count * 8);
  }
}

TEST_CASE(kernel_and_its_function_are_one) {
  CUkernel kernel = get(load_library(), "k_2");
  FunctionEntry* entry = entry_of(kernel);
  REQUIRE(entry != nullptr && entry->prepare());
  CHECK_EQ(entry->parameters.size(), 2u);
  CUfunction function = nullptr;
  CHECK_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  CHECK(find_function(function) == entry);
}

TEST_CASE(library_module) {
  CUlibrary library = load_library();
  CUmodule module = nullptr;
  CHECK_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  FunctionEntry* entry = find_function(get(module, "f_1"));
  REQUIRE(entry != nullptr);
  CHECK(entry->image() != nullptr);
  CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  CHECK(entry->unloaded());
  CHECK(entry->image() == nullptr);
}

TEST_CASE(enumeration) {
  CUmodule module = load();
  CUfunction functions[3] = {};
  CHECK_EQ(cuModuleEnumerateFunctions(functions, 3, module), CUDA_SUCCESS);
  REQUIRE(find_function(functions[1]) != nullptr && find_function(functions[1])->prepare());
  CHECK_EQ(find_function(functions[1])->name, std::string("second_2"));
  CUkernel kernels[2] = {};
  CHECK_EQ(cuLibraryEnumerateKernels(kernels, 2, load_library()), CUDA_SUCCESS);
  REQUIRE(entry_of(kernels[0]) != nullptr && entry_of(kernels[0])->prepare());
  CHECK_EQ(entry_of(kernels[0])->parameters.size(), 3u);
}

TEST_CASE(unloading_retires) {
  CUmodule module = load();
  CUfunction function = get(module, "f_1");
  FunctionEntry* entry = find_function(function);
  const int before = retired;
  CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  CHECK_EQ(retired.load(), before + 1);
  CHECK(find_function(function) == nullptr);
  CHECK(entry->unloaded() && !entry->movable() && entry->image() == nullptr);
  CHECK_EQ(entry->name, std::string("f_1"));  // still readable
  // The driver gives the same handle to another module's function.
  CUmodule other = load();
  registry().add_function(function, other, "other_5");
  FunctionEntry* fresh = find_function(function);
  REQUIRE(fresh != nullptr && fresh != entry);
  CHECK(fresh->movable());
}

TEST_CASE(a_reused_handle_survives_its_first_owner) {
  CUmodule first = load(), second = load();
  CUfunction function = get(first, "f_1");
  FunctionEntry* before = find_function(function);
  registry().add_function(function, second, "f_2");
  FunctionEntry* entry = find_function(function);
  CHECK(before != entry && before->unloaded());
  CHECK_EQ(cuModuleUnload(first), CUDA_SUCCESS);
  CHECK(find_function(function) == entry);
  CHECK(!entry->unloaded());
}

TEST_CASE(taking_a_variable_pins) {
  CUmodule module = load();
  FunctionEntry* before = find_function(get(module, "f_1"));
  CUdeviceptr address = 0;
  CHECK_EQ(cuModuleGetGlobal_v2(&address, nullptr, module, "v"), CUDA_SUCCESS);
  CHECK(!before->movable());
  CHECK(!find_function(get(module, "g_1"))->movable());
  CHECK(find_function(get(load(), "f_1"))->movable());  // another module is its own
}

TEST_CASE(taking_a_variable_pins_the_library) {
  CUlibrary library = load_library();
  FunctionEntry* kernel = entry_of(get(library, "k_1"));
  CUmodule module = nullptr;
  CHECK_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  FunctionEntry* function = find_function(get(module, "f_1"));
  CHECK(kernel->movable() && function->movable());
  CUtexref reference = nullptr;
  CHECK_EQ(cuModuleGetTexRef(&reference, module, "t"), CUDA_SUCCESS);
  CHECK(!kernel->movable() && !function->movable());
  CUlibrary other = load_library();
  CUdeviceptr address = 0;
  CHECK_EQ(cuLibraryGetManaged(&address, nullptr, other, "m"), CUDA_SUCCESS);
  CHECK(!entry_of(get(other, "k_1"))->movable());
}

TEST_CASE(options_that_change_code_pin) {
  const auto movable_with = [](std::vector<CUjit_option> options) {
    CUmodule module = nullptr;
    std::vector<void*> values(options.size());
    cuInit(0);
    cuModuleLoadDataEx(&module, kText, static_cast<unsigned>(options.size()), options.data(), values.data());
    return find_function(get(module, "f_1"))->movable();
  };
  CHECK(movable_with({}));
  CHECK(movable_with({CU_JIT_INFO_LOG_BUFFER, CU_JIT_LOG_VERBOSE}));
  CHECK(!movable_with({CU_JIT_LOG_VERBOSE, CU_JIT_MAX_REGISTERS}));
  CHECK(!movable_with({CU_JIT_FMA}));
  CHECK(!movable_with({static_cast<CUjit_option>(999)}));
}

TEST_CASE(host_tables_pin) {
  cuInit(0);
  CUlibraryHostUniversalFunctionAndDataTable table{};
  CUlibraryOption option = CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
  void* value = &table;
  CUlibrary library = nullptr;
  CHECK_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, &option, &value, 1), CUDA_SUCCESS);
  CHECK(entry_of(get(library, "k_1"))->movable());
  table.dataWindowSize = 8;
  CHECK_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, &option, &value, 1), CUDA_SUCCESS);
  CHECK(!entry_of(get(library, "k_1"))->movable());
}

TEST_CASE(attributes_are_recorded) {
  CUfunction function = get(load(), "f_1");
  FunctionEntry* entry = find_function(function);
  CHECK_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536), CUDA_SUCCESS);
  CHECK_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50), CUDA_SUCCESS);
  CHECK_EQ(entry->max_dynamic_shared.load(), 65536);
  CHECK_EQ(entry->shared_carveout.load(), 50);
  CHECK_EQ(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE), CUDA_SUCCESS);
  CHECK(entry->movable());
  CHECK_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), CUDA_SUCCESS);
  CHECK(!entry->movable());
}

TEST_CASE(one_value_for_all_devices_or_none) {
  CUkernel kernel = get(load_library(), "k_1");
  const auto set = [&](int value, CUdevice device) {
    return cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value, kernel, device);
  };
  CHECK_EQ(set(1000, 0), CUDA_SUCCESS);
  CHECK_EQ(set(2000, 0), CUDA_SUCCESS);
  CHECK_EQ(set(2000, 1), CUDA_SUCCESS);
  CHECK(entry_of(kernel)->movable());
  CHECK_EQ(set(3000, 0), CUDA_SUCCESS);
  CHECK(!entry_of(kernel)->movable());
}

TEST_CASE(unannounced_handles_are_resolved) {
  CUmodule module = load();
  CUlibrary library = load_library();
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  // As if obtained where the shim does not look.
  CHECK_EQ(driver().cuModuleGetFunction(&function, module, "f_7"), CUDA_SUCCESS);
  CHECK_EQ(driver().cuLibraryGetKernel(&kernel, library, "k_8"), CUDA_SUCCESS);
  CHECK(find_function(function) == nullptr);
  FunctionEntry* first = resolve_function(function);
  FunctionEntry* second = resolve_function(reinterpret_cast<CUfunction>(kernel));
  CHECK(first->image() != nullptr && second->image() != nullptr);
  CHECK(first->prepare() && second->prepare());
  CHECK_EQ(first->parameters.size(), 7u);
  CHECK_EQ(second->parameters.size(), 8u);
  CHECK(find_function(function) == first);
}

TEST_CASE(unseen_modules_stay_home_until_unloaded) {
  CUmodule module = nullptr;
  cuInit(0);
  CHECK_EQ(driver().cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  CUfunction function = get(module, "f_1");
  CHECK(find_function(function) == nullptr);
  FunctionEntry* entry = resolve_function(function);
  REQUIRE(entry != nullptr);
  CHECK(entry->image() == nullptr && !entry->movable());
  CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  CHECK(find_function(function) == nullptr);
  const char nonsense[64] = "not a handle";
  FunctionEntry* nothing = resolve_function(reinterpret_cast<CUfunction>(const_cast<char*>(nonsense)));
  REQUIRE(nothing != nullptr);
  CHECK(!nothing->movable() && !nothing->prepare());
}

TEST_CASE(module_from_a_file) {
  char path[] = "/tmp/tessera-module-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << kText;
  cuInit(0);
  CUmodule module = nullptr;
  CHECK_EQ(cuModuleLoad(&module, path), CUDA_SUCCESS);
  FunctionEntry* entry = find_function(get(module, "f_1"));
  REQUIRE(entry != nullptr && entry->image() != nullptr);
  CHECK_EQ(entry->image()->path(), std::string(path));
  unlink(path);
}

TEST_CASE(context_takes_its_modules_along) {
  CUmodule module = load();
  CUfunction function = get(module, "f_1");
  CUcontext context = nullptr;
  CHECK_EQ(driver().cuCtxGetCurrent(&context), CUDA_SUCCESS);
  forget_context(nullptr);
  CHECK(find_function(function) != nullptr);
  forget_context(context);
  CHECK(find_function(function) == nullptr);
}

TEST_CASE(failed_calls_change_nothing) {
  cuInit(0);
  CHECK_EQ(cuModuleLoadData(nullptr, kText), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuModuleGetFunction(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuLibraryGetKernel(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK(find_function(static_cast<const void*>(nullptr)) == nullptr);
}

TEST_CASE(what_works_unseen_is_said_once) {
  cuInit(0);
  probe::CapturedStderr captured;
  runtime().saw_deep_binding("first.so");
  runtime().saw_deep_binding("second.so");
  CHECK(runtime().unknown_function_seen());
  const std::string text = captured.restore();
  CHECK_EQ(probe::count(text, "first.so"), 1);
  CHECK_EQ(probe::count(text, "\n"), 1);
}

TEST_CASE(lookups_race_with_changes) {
  CUmodule stays = load();
  CUfunction function = get(stays, "f_1");
  FunctionEntry* entry = find_function(function);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        if (find_function(function) != entry || !entry->movable() || !entry->prepare()) ++wrong;
      }
    });
  }
  for (int round = 0; round < 40; ++round) {
    CUmodule module = load();
    std::vector<CUfunction> functions;
    for (int i = 0; i < 100; ++i) functions.push_back(get(module, "g_1"));
    cuModuleUnload(module);
    for (CUfunction gone : functions) wrong += find_function(gone) != nullptr ? 1 : 0;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST_MAIN()
