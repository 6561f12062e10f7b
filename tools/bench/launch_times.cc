// SPDX-License-Identifier: Apache-2.0
// An unmodified driver-API program that times its own launches:
//
//   launch_times [BATCHES [LAUNCHES]]
//
// One line of JSON: the time that the calling thread spends in a launch of each
// of two kernels; the time of home -> other -> home: a launch of `at_home`, one
// of `elsewhere` on its result, one of `at_home` again, to the end of all; and
// the time of one round in a stream full of them: `at_home` and `elsewhere` in
// turn, each on the other's result, as two streams would hand a flag to and fro.
// Where the two kernels run is up to whoever preloads what.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

std::string kernel(const char* name) {
  return std::string(".visible .entry ") + name + R"((.param .u64 x, .param .u32 n) {
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1; @%p bra $done;
  cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r1, [%rd3]; add.u32 %r1, %r1, 1; st.global.u32 [%rd3], %r1;
$done: ret; }
)";
}

void* library = nullptr;

template <class Function, class... Arguments>
void call(const char* name, Function*, Arguments... arguments) {
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  const CUresult result = function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", name, result);
  std::exit(1);
}
#define CALL(name, ...) call(#name, static_cast<decltype(&::name)>(nullptr), __VA_ARGS__)

struct Figures {
  double minimum, median;
};

Figures figures(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2]};
}

double nanoseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::nano>(Clock::now() - from).count();
}

class Bench {
 public:
  Bench(int batches, int launches) : batches_(batches), launches_(launches) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CALL(cuInit, 0u);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    const std::string ptx = ".version 7.0\n.target sm_70\n.address_size 64\n" + kernel("at_home") + kernel("elsewhere");
    CALL(cuModuleLoadData, &module_, static_cast<const void*>(ptx.c_str()));
    CALL(cuModuleGetFunction, &at_home_, module_, "at_home");
    CALL(cuModuleGetFunction, &elsewhere_, module_, "elsewhere");
    CALL(cuMemAlloc_v2, &memory_, size_t{kWords} * 4);
    CALL(cuMemsetD8_v2, memory_, static_cast<unsigned char>(0), size_t{kWords} * 4);
    CALL(cuStreamCreate, &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    launch_ = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(library, "cuLaunchKernel"));
    synchronize_ = reinterpret_cast<decltype(&cuStreamSynchronize)>(dlsym(library, "cuStreamSynchronize"));
  }

  Figures launch_time(bool away) {
    std::vector<double> times;
    for (int batch = -1; batch < batches_; ++batch) {
      const auto began = Clock::now();
      for (int i = 0; i < launches_; ++i) launch(away ? elsewhere_ : at_home_);
      const double each = nanoseconds(began) / launches_;
      wait();
      if (batch >= 0) times.push_back(each);  // the first one warms up
    }
    return figures(std::move(times));
  }

  Figures round_trip() {
    std::vector<double> times;
    for (int i = -10; i < batches_ * 10; ++i) {
      wait();
      const auto began = Clock::now();
      launch(at_home_);
      launch(elsewhere_);
      launch(at_home_);
      wait();
      if (i >= 0) times.push_back(nanoseconds(began) / 1000);
    }
    return figures(std::move(times));
  }

  Figures rounds() {
    std::vector<double> times;
    for (int batch = -1; batch < batches_; ++batch) {
      wait();
      const auto began = Clock::now();
      for (int i = 0; i < launches_; ++i) {
        launch(at_home_);
        launch(elsewhere_);
      }
      wait();
      if (batch >= 0) times.push_back(nanoseconds(began) / 1000 / launches_);
    }
    return figures(std::move(times));
  }

  /// Every launch adds one to every word.
  bool right() {
    std::vector<unsigned> words(kWords);
    CALL(cuMemcpyDtoH_v2, static_cast<void*>(words.data()), memory_, words.size() * 4);
    return std::all_of(words.begin(), words.end(), [&](unsigned word) { return word == launched_; });
  }

 private:
  static constexpr unsigned kWords = 1024;

  void launch(CUfunction function) {
    unsigned words = kWords;
    void* parameters[] = {&memory_, &words};
    check(launch_(function, kWords / 128, 1, 1, 128, 1, 1, 0, stream_, parameters, nullptr));
    ++launched_;
  }
  void wait() { check(synchronize_(stream_)); }
  static void check(CUresult result) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "error %d\n", result);
    std::exit(1);
  }

  int batches_, launches_;
  unsigned launched_ = 0;
  CUmodule module_ = nullptr;
  CUfunction at_home_ = nullptr, elsewhere_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  decltype(&cuLaunchKernel) launch_ = nullptr;
  decltype(&cuStreamSynchronize) synchronize_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  Bench bench(argc > 1 ? std::atoi(argv[1]) : 20, argc > 2 ? std::atoi(argv[2]) : 200);
  const Figures home = bench.launch_time(false), away = bench.launch_time(true), trip = bench.round_trip(),
                round = bench.rounds();
  std::printf(
      "{\"at_home_ns\": {\"min\": %.1f, \"median\": %.1f}, \"elsewhere_ns\": {\"min\": %.1f, \"median\": %.1f}, "
      "\"round_trip_us\": {\"min\": %.2f, \"median\": %.2f}, \"round_us\": {\"min\": %.2f, \"median\": %.2f}, "
      "\"right\": %s}\n",
      home.minimum, home.median, away.minimum, away.median, trip.minimum, trip.median, round.minimum, round.median,
      bench.right() ? "true" : "false");
  return bench.right() ? 0 : 1;
}
