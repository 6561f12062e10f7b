// SPDX-License-Identifier: Apache-2.0
// Every way to the driver but plain linking, each case in a fresh process with
// the shim preloaded and the stub driver on the library path. Under an
// interposer, or without the shim, only the results of calls are looked at.
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "driver_declarations.h"
#include "probe.h"
#include "testing/check.h"

using namespace probe;

namespace {

struct Line {
  bool interposed;
  const char* base;
  const char* symbol;
  int version;
  bool per_thread;
};

constexpr bool kCUSTOM = true, kORDERED = true, kPASS = false, kCALLED = false;
constexpr Line kLines[] = {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) \
  {k##kind, #base, #symbol, version, per_thread != 0},
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

using Init = CUresult (*)(unsigned int);
using Address = CUresult (*)(const char*, void**, int, cuuint64_t);
using Address2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
// Any driver function called with nothing: the calling conventions let surplus arguments pass.
using AllZero = CUresult (*)(long, long, long, long, long, long, long, long, long, long, long, long);

CUresult call_with_zeros(void* function) {
  return reinterpret_cast<AllZero>(function)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/// Exit status of `body` in a child process, which uses nothing of the test vocabulary.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char* plugin_path() { return std::getenv("TEST_PLUGIN"); }

}  // namespace

TEST_CASE(handle_lookup) {
  void* driver = driver_handle();
  REQUIRE(driver != nullptr);
  for (const Line& line : kLines) {
    void* found = dlsym(driver, line.symbol);
    if (!CHECK(line.interposed ? from_shim(found) : from_driver(found))) std::fprintf(stderr, "%s\n", line.symbol);
  }
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 1);
}

TEST_CASE(versioned_lookup) {
  // The loader finds no version of a name that has none; this stub's have one.
  void* driver = dlopen(std::getenv("TEST_VERSIONED"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(driver != nullptr);
  CHECK(from_shim(dlvsym(driver, "cuInit", "ANY_1.0")));
  CHECK(from_driver(dlvsym(driver, "cuCtxGetDevice", "ANY_1.0")));
  CHECK(dlvsym(driver, "cuNothing", "ANY_1.0") == nullptr);
  CHECK(dlerror() != nullptr);
}

TEST_CASE(failed_lookup_keeps_its_error) {
  void* driver = driver_handle();
  dlerror();
  CHECK(dlsym(driver, "cuNothing") == nullptr);
  const char* error = dlerror();
  REQUIRE(error != nullptr);
  CHECK(std::strstr(error, "cuNothing") != nullptr);
}

TEST_CASE(other_library_keeps_its_names) {
  void* other = dlopen(std::getenv("TEST_INTERPOSER"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(other != nullptr);
  CHECK(owner(dlsym(other, "cuMemAlloc_v2")).find("interposer") != std::string::npos);
}

TEST_CASE(default_scope_without_driver_is_empty) {
  dlerror();
  CHECK(dlsym(RTLD_DEFAULT, "cuInit") == nullptr);
  CHECK(dlerror() != nullptr);
  CHECK(dlsym(dlopen(nullptr, RTLD_NOW), "cuInit") == nullptr);
  REQUIRE(driver_handle(RTLD_NOW | RTLD_GLOBAL) != nullptr);
  CHECK(from_shim(dlsym(RTLD_DEFAULT, "cuInit")));
  CHECK(from_shim(dlsym(dlopen(nullptr, RTLD_NOW), "cuInit")));
}

TEST_CASE(next_is_relative_to_the_caller) {
  CHECK(from_shim(dlsym(RTLD_NEXT, "cuInit")));
  CHECK(owner(dlsym(RTLD_NEXT, "malloc")).find("libc.so") != std::string::npos);
}

TEST_CASE(dlopen_is_relative_to_the_caller) {
  // $ORIGIN and RUNPATH are those of the library that calls.
  void* library = dlopen(std::getenv("TEST_INTERPOSER"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  CHECK(dlopen("libcuda.so.1.1", RTLD_NOW | RTLD_LOCAL) == nullptr);
  CHECK(function<void* (*)(const char*)>(library, "interposer_open")("libcuda.so.1.1") != nullptr);
}

TEST_CASE(proc_address_first) {
  void* driver = driver_handle();
  const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
  REQUIRE(from_shim(reinterpret_cast<void*>(address)));
  for (const Line& line : kLines) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    CHECK_EQ(address(line.base, &found, line.version, line.per_thread ? 2 : 0, &status), CUDA_SUCCESS);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    if (!CHECK(found == dlsym(driver, line.symbol))) std::fprintf(stderr, "%s\n", line.symbol);
  }
}

TEST_CASE(proc_address_of_the_first_abi) {
  void* driver = driver_handle();
  const auto address = function<Address>(driver, "cuGetProcAddress");
  for (const Line& line : kLines) {
    void* found = nullptr;
    CHECK_EQ(address(line.base, &found, line.version, line.per_thread ? 2 : 1), CUDA_SUCCESS);
    if (!CHECK(found == dlsym(driver, line.symbol))) std::fprintf(stderr, "%s\n", line.symbol);
  }
  // Asked through itself, version by version.
  void* itself = nullptr;
  CHECK_EQ(address("cuGetProcAddress", &itself, 11030, 0), CUDA_SUCCESS);
  CHECK(itself == reinterpret_cast<void*>(address));
  CHECK_EQ(address("cuGetProcAddress", &itself, 13000, 0), CUDA_SUCCESS);
  CHECK(itself == dlsym(driver, "cuGetProcAddress_v2"));
}

TEST_CASE(proc_address_errors_are_the_drivers) {
  void* driver = driver_handle();
  const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
  void* found = reinterpret_cast<void*>(0x1234);
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CHECK_EQ(address("cuMemAlloc", &found, 1000, 0, &status), CUDA_ERROR_NOT_FOUND);
  CHECK(found == nullptr);
  CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK_EQ(address("cuMemAlloc", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(address(nullptr, &found, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE(each_version_reaches_its_own_abi) {
  void* driver = driver_handle();
  const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
  for (const Line& line : kLines) {
    if (!line.interposed || std::strncmp(line.base, "cuGetProcAddress", 16) == 0) continue;
    void* found = nullptr;
    CHECK_EQ(address(line.base, &found, line.version, line.per_thread ? 2 : 0, nullptr), CUDA_SUCCESS);
    const int before = calls(driver, line.symbol);
    call_with_zeros(found);
    if (!CHECK_EQ(calls(driver, line.symbol), before + 1)) std::fprintf(stderr, "%s\n", line.symbol);
  }
}

TEST_CASE(null_arguments_give_the_drivers_answer) {
  void* driver = driver_handle();
  void* plugin = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);  // sees the driver itself
  REQUIRE(plugin != nullptr);
  const auto real = function<void* (*)(const char*)>(plugin, "plugin_lookup");
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  for (const Line& line : kLines) {
    void* found = dlsym(driver, line.symbol);
    void* native = real(line.symbol);
    CHECK(from_driver(native));
    if (!CHECK_EQ(call_with_zeros(found), call_with_zeros(native))) std::fprintf(stderr, "%s\n", line.symbol);
  }
}

TEST_CASE(one_line_without_controller) {
  CapturedStderr captured;
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const std::string text = captured.restore();
  CHECK_EQ(count(text, "\n"), 1);
  CHECK(text.find("tessera-ctl up") != std::string::npos);
}

TEST_CASE(silent_when_disabled) {
  CapturedStderr captured;
  setenv("TESSERA_DISABLE", "1", 1);
  void* driver = driver_handle();
  for (const Line& line : kLines) CHECK(from_driver(dlsym(driver, line.symbol)));
  void* found = nullptr;
  const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
  CHECK_EQ(address("cuMemAlloc", &found, 13000, 0, nullptr), CUDA_SUCCESS);
  CHECK(from_driver(found));
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(captured.restore(), std::string());
}

TEST_CASE(threads_start_at_once) {
  CapturedStderr captured;
  void* driver = driver_handle();
  std::atomic<int> ready{0}, good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < 8) {
      }
      if (i % 2 == 0) {
        void* found = nullptr;
        const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
        const bool ours = address("cuInit", &found, 13000, 0, nullptr) == CUDA_SUCCESS && from_shim(found);
        good += ours && reinterpret_cast<Init>(found)(0) == CUDA_SUCCESS ? 1 : 0;
      } else {
        good += function<Init>(driver, "cuInit")(0) == CUDA_SUCCESS ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(good.load(), 8);
  CHECK_EQ(calls(driver, "cuInit"), 8);
  CHECK_EQ(count(captured.restore(), "tessera-ctl up"), 1);
}

TEST_CASE(fork_before_first_use) {
  const int status = in_child([] {
    void* driver = driver_handle();
    return function<Init>(driver, "cuInit")(0) == CUDA_SUCCESS && calls(driver, "cuInit") == 1 ? 0 : 1;
  });
  CHECK_EQ(status, 0);
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 1);
}

TEST_CASE(fork_after_first_use) {
  CapturedStderr captured;
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const int status = in_child([&] {
    CUdeviceptr pointer = 0;
    const auto allocate = function<CUresult (*)(CUdeviceptr*, size_t)>(driver, "cuMemAlloc_v2");
    return from_shim(reinterpret_cast<void*>(allocate)) && allocate(&pointer, 8) == CUDA_SUCCESS &&
                   calls(driver, "cuMemAlloc_v2") == 1
               ? 0
               : 1;
  });
  CHECK_EQ(status, 0);
  CHECK_EQ(count(captured.restore(), "tessera-ctl up"), 1);
}

TEST_CASE(exec_starts_anew) {
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const int status = in_child([] {
    execl("/proc/self/exe", "paths_test", "handle_lookup", nullptr);
    return 127;
  });
  CHECK_EQ(status, 0);
}

TEST_CASE(vfork_and_exec) {
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const pid_t child = vfork();
  if (child == 0) {
    execl("/proc/self/exe", "paths_test", "handle_lookup", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 2);
}

TEST_CASE(closing_the_driver_keeps_it) {
  void* driver = driver_handle();
  const auto init = function<Init>(driver, "cuInit");
  CHECK_EQ(init(0), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) dlclose(driver);
  CHECK_EQ(init(0), CUDA_SUCCESS);  // what was given out stays good
  driver = driver_handle();
  REQUIRE(driver != nullptr);
  CHECK(from_shim(dlsym(driver, "cuInit")));
  CHECK_EQ(calls(driver, "cuInit"), 2);
}

TEST_CASE(older_driver) {
  // The environment's stub has no function that came after CUDA 11.3.
  CapturedStderr captured;
  void* driver = driver_handle();
  REQUIRE(driver != nullptr);
  for (const char* name : {"cuLaunchKernelEx", "cuGetProcAddress_v2", "cuLibraryLoadData", "cuMemcpyBatchAsync"}) {
    CHECK(dlsym(driver, name) == nullptr);
  }
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const auto address = function<Address>(driver, "cuGetProcAddress");
  REQUIRE(from_shim(reinterpret_cast<void*>(address)));
  void* found = nullptr;
  CHECK_EQ(address("cuMemAlloc", &found, 11030, 0), CUDA_SUCCESS);
  CHECK(found == dlsym(driver, "cuMemAlloc_v2"));
  CHECK(from_shim(found));
  CUdeviceptr pointer = 0;
  CHECK_EQ(reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(found)(&pointer, 8), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuMemAlloc_v2"), 1);
  // The names of the shim's own exports answer for what the driver lacks.
  const auto newer = function<AllZero>(RTLD_DEFAULT, "cuLaunchKernelEx");
  if (newer != nullptr) CHECK_EQ(call_with_zeros(reinterpret_cast<void*>(newer)), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(count(captured.restore(), "\n"), 1);  // no controller, and nothing else
}

TEST_CASE(plugin_linked_with_the_driver) {
  void* plugin = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(plugin != nullptr);
  CHECK(from_shim(function<void* (*)()>(plugin, "plugin_linked")()));
  CHECK_EQ(function<CUresult (*)()>(plugin, "plugin_init")(), CUDA_SUCCESS);
}

TEST_CASE(deep_binding_passes_by) {
  void* plugin = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  REQUIRE(plugin != nullptr);
  CHECK(from_driver(function<void* (*)()>(plugin, "plugin_linked")()));
  CHECK_EQ(function<CUresult (*)()>(plugin, "plugin_init")(), CUDA_SUCCESS);
  // The program itself still goes through the shim, to the same driver.
  void* driver = driver_handle();
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 2);
}

TEST_CASE(other_namespace_passes_by) {
  void* plugin = dlmopen(LM_ID_NEWLM, plugin_path(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  REQUIRE(plugin != nullptr);
  CHECK(!from_shim(function<void* (*)()>(plugin, "plugin_linked")()));
  CHECK_EQ(function<CUresult (*)()>(plugin, "plugin_init")(), CUDA_SUCCESS);
  // Looked up from here through its handle: that namespace's driver, not ours.
  CHECK(!from_shim(dlsym(plugin, "cuInit")));
  void* driver = driver_handle();
  CHECK(from_shim(dlsym(driver, "cuInit")));
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
}

TEST_CASE(the_driver_reaches_itself) {
  // The environment names an inner library, whose cuInit the stub's cuInit finds with dlsym.
  void* driver = driver_handle();
  REQUIRE(std::getenv("STUB_INNER") != nullptr);
  void* inner = dlopen(std::getenv("STUB_INNER"), RTLD_NOW | RTLD_LOCAL);
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 1);
  CHECK_EQ(calls(inner, "cuInit"), 1);
}

TEST_CASE(newer_driver_is_passed_through) {
  // The environment has the stub say CUDA 99.
  CapturedStderr captured;
  void* driver = driver_handle();
  const auto address = function<Address2>(driver, "cuGetProcAddress_v2");
  void* found = nullptr;
  for (int i = 0; i < 3; ++i) CHECK_EQ(address("cuFutureLaunch", &found, 99000, 0, nullptr), CUDA_SUCCESS);
  CHECK_EQ(call_with_zeros(found), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuFutureLaunch"), 1);
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  const std::string text = captured.restore();
  CHECK_EQ(count(text, "newer than this build"), 1);
  CHECK_EQ(count(text, "cuFutureLaunch"), 1);
}

TEST_CASE(unknown_export_is_noticed) {
  CapturedStderr captured;
  void* driver = driver_handle();
  CHECK(dlsym(driver, "cuNothing") == nullptr);
  CHECK(from_driver(dlsym(driver, "cuFutureCopy")));
  const std::string text = captured.restore();
  CHECK_EQ(count(text, "\n"), 1);
  CHECK_EQ(count(text, "cuFutureCopy"), 1);
}

TEST_CASE(setting_names_the_driver) {
  // No libcuda.so.1 on the library path: TESSERA_DRIVER alone leads to it.
  void* driver = driver_handle();
  REQUIRE(driver != nullptr);
  CHECK(from_shim(dlsym(driver, "cuInit")));
  CHECK_EQ(function<Init>(driver, "cuInit")(0), CUDA_SUCCESS);
  CHECK_EQ(calls(driver, "cuInit"), 1);
}

TEST_CASE(setting_names_nothing) {
  CapturedStderr captured;
  CHECK(driver_handle() == nullptr);
  CHECK(dlerror() != nullptr);
}

TEST_CASE(interposer_behind) {
  // LD_PRELOAD holds the shim and then another interposer: shim -> it -> driver.
  void* driver = driver_handle();
  const auto interposer_calls = function<int (*)()>(RTLD_DEFAULT, "interposer_calls");
  REQUIRE(interposer_calls != nullptr);
  CUdeviceptr pointer = 0;
  const auto allocate = function<CUresult (*)(CUdeviceptr*, size_t)>(driver, "cuMemAlloc_v2");
  CHECK(from_shim(reinterpret_cast<void*>(allocate)));
  CHECK_EQ(allocate(&pointer, 8), CUDA_SUCCESS);
  CHECK_EQ(interposer_calls(), 1);
  CHECK_EQ(calls(driver, "cuMemAlloc_v2"), 1);
}

TEST_CASE(interposer_before) {
  // LD_PRELOAD holds another interposer and then the shim: it -> shim -> driver.
  void* driver = driver_handle();
  const auto interposer_calls = function<int (*)()>(RTLD_DEFAULT, "interposer_calls");
  REQUIRE(interposer_calls != nullptr);
  const auto allocate = function<CUresult (*)(CUdeviceptr*, size_t)>(RTLD_DEFAULT, "cuMemAlloc_v2");
  CHECK(owner(reinterpret_cast<void*>(allocate)).find("interposer") != std::string::npos);
  CUdeviceptr pointer = 0;
  CHECK_EQ(allocate(&pointer, 8), CUDA_SUCCESS);
  CHECK_EQ(interposer_calls(), 1);
  CHECK_EQ(calls(driver, "cuMemAlloc_v2"), 1);
  CHECK(from_shim(function<void* (*)()>(RTLD_DEFAULT, "interposer_next")()));
}

TEST_MAIN()
