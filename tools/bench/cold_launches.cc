// SPDX-License-Identifier: Apache-2.0
// An unmodified driver-API program that empties the first caches before each of its launches, as a large program does
// between two of its own:
//
//   cold_launches [ROUNDS]
//
// A round launches each of 24 kernels once, behind a host function that holds the stream, so that no launch wakes
// anybody up. For tools/bench/bench_cold_launches.py, which counts what each launch has to fetch.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kKernels = 24;
constexpr size_t kBytes = 96 << 10;  // three times the caches of 32 KiB that are counted
constexpr size_t kLine = 64;

void* library = nullptr;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, result);
  std::exit(1);
}

template <class... Arguments>
void call(const char* name, CUresult (*)(Arguments...), Arguments... arguments) {
  auto* function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(library, name));
  check(function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...), name);
}
#define CALL(name, ...) call(#name, &::name, __VA_ARGS__)

/// Memory and code that are walked through to drive everything else out.
class Walk {
 public:
  Walk() : data_(kBytes, 1) {
    void* place = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return;
    code_ = static_cast<unsigned char*>(place);
    std::memset(code_, kReturn, kBytes);
  }

  void operator()() {
    for (size_t at = 0; at < kBytes; at += kLine) sum_ = sum_ + data_[at];
    if (code_ == nullptr) return;
    for (size_t at = 0; at < kBytes; at += kLine) reinterpret_cast<void (*)()>(code_ + at)();
  }

 private:
  static constexpr int kReturn = 0xc3;  // of x86-64
  std::vector<unsigned char> data_;
  unsigned char* code_ = nullptr;
  volatile int sum_ = 0;
};

std::string name_of(int kernel) {
  std::string name(1, 'k');
  return name.append(std::to_string(kernel));
}

std::string source() {
  std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n";
  for (int i = 0; i < kKernels; ++i) {
    text.append(".visible .entry ").append(name_of(i)).append(R"((.param .u64 x) {
  .reg .b64 %rd; .reg .b32 %r;
  ld.param.u64 %rd, [x]; cvta.to.global.u64 %rd, %rd; mov.u32 %r, 1; st.global.u32 [%rd], %r; ret; }
)");
  }
  return text;
}

std::atomic<bool> held{false};

void CUDA_CB hold(void*) {
  while (held) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

}  // namespace

int main(int argc, char** argv) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  CALL(cuInit, 0u);
  CALL(cuDeviceGet, &device, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  const std::string text = source();
  CALL(cuModuleLoadData, &module, static_cast<const void*>(text.c_str()));
  CALL(cuMemAlloc_v2, &memory, size_t{4096});
  CALL(cuStreamCreate, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  std::vector<CUfunction> kernels(kKernels);
  for (int i = 0; i < kKernels; ++i) {
    const std::string name = name_of(i);
    CALL(cuModuleGetFunction, &kernels[static_cast<size_t>(i)], module, name.c_str());
  }
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(library, "cuLaunchKernel"));
  Walk walk;
  void* parameters[] = {&memory};
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  for (int round = 0; round < rounds; ++round) {
    held = true;
    CALL(cuLaunchHostFunc, stream, static_cast<CUhostFn>(&hold), static_cast<void*>(nullptr));
    for (CUfunction kernel : kernels) {
      walk();
      check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
    }
    held = false;
    CALL(cuStreamSynchronize, stream);
  }
  std::printf("%d\n", kKernels);
  return 0;
}
