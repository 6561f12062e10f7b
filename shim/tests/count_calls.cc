// SPDX-License-Identifier: Apache-2.0
// Makes one kind of driver call N times, for tools/bench/bench_shim_calls.py to
// count instructions: shim_count_calls KIND N
#include <cstdio>
#include <cstdlib>
#include <string>

#include "driver_declarations.h"
#include "probe.h"

namespace {

template <class Function>
Function lookup(const char* base, int version) {
  using Address = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* found = nullptr;
  probe::function<Address>(probe::driver_handle(), "cuGetProcAddress_v2")(base, &found, version, 0, nullptr);
  return reinterpret_cast<Function>(found);
}

template <class Call>
void repeat(long count, Call call) {
  for (long i = 0; i < count; ++i) call();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || probe::driver_handle() == nullptr) return 2;
  const std::string kind = argv[1];
  const long count = std::strtol(argv[2], nullptr, 10);
  lookup<CUresult (*)(unsigned int)>("cuInit", 2000)(0);
  if (kind == "custom") {
    const auto call = lookup<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle", 11000);
    repeat(count, [=] { call(nullptr, nullptr); });
  } else if (kind == "ordered") {
    const auto call = lookup<decltype(&cuGraphUpload)>("cuGraphUpload", 11010);
    repeat(count, [=] { call(nullptr, nullptr); });
  } else if (kind == "unlisted") {
    const auto call = lookup<decltype(&cuCtxSetFlags)>("cuCtxSetFlags", 12010);
    repeat(count, [=] { call(0); });
  } else if (kind == "lookup") {
    repeat(count, [] { (void)lookup<void*>("cuMemAlloc", 13000); });
  } else if (kind == "dlsym") {
    repeat(count, [] { (void)dlsym(RTLD_DEFAULT, "malloc"); });
  } else {
    return 2;
  }
  return 0;
}
