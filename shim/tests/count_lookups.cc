// SPDX-License-Identifier: Apache-2.0
// find_function N times among 10,000 functions: shim_count_lookups N
#include <cstdlib>
#include <vector>

#include "registry.h"
#include "seams.h"

using namespace tessera::shim;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const long count = std::strtol(argv[1], nullptr, 10);
  // Handles as an allocator spaces them.
  static char handles[10000][208];
  const auto module = reinterpret_cast<CUmodule>(&handles);
  registry().add_module(module, nullptr, false);
  for (auto& handle : handles) registry().add_function(reinterpret_cast<CUfunction>(&handle), module, "f");
  long found = 0;
  for (long i = 0; i < count; ++i) {
    const auto handle = reinterpret_cast<CUfunction>(&handles[i * 7919 % 10000]);
    found += find_function(handle) != nullptr ? 1 : 0;
  }
  return found == count ? 0 : 1;
}
