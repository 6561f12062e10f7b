// SPDX-License-Identifier: Apache-2.0
#include "registry.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace tessera::sim {
namespace {

struct Level {
  const char* name;
  bool (*runs_here)();
  OpTables (*tables)();
};

bool always() { return true; }
[[maybe_unused]] bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("bmi2") != 0;
}
[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

// From the best down.
constexpr Level kLevels[] = {
#if defined(TESSERA_SIM_HAS_AVX512)
    {"avx512", &has_avx512, &avx512::all_tables},
#endif
#if defined(TESSERA_SIM_HAS_AVX2)
    {"avx2", &has_avx2, &avx2::all_tables},
#endif
    {"baseline", &always, &baseline::all_tables},
};

const Level& choose() {
  const char* wanted = std::getenv("TESSERA_SIM_ISA");
  bool reached = wanted == nullptr;
  for (const Level& level : kLevels) {
    reached = reached || std::strcmp(level.name, wanted) == 0;
    if (reached && level.runs_here()) return level;
  }
  return kLevels[std::size(kLevels) - 1];
}

const Level& chosen() {
  static const Level& level = choose();
  return level;
}

std::unordered_map<u64, Handler> build() {
  std::unordered_map<u64, Handler> out;
  const auto add = [&out](OpEntries entries) {
    for (size_t i = 0; i < entries.count; ++i) out.emplace(entries.data[i].key, entries.data[i].run);
  };
  const OpTables tables = chosen().tables();
  for (size_t i = 0; i < tables.count; ++i) add(tables.data[i]);
  add(intrinsic_entries());
  return out;
}

}  // namespace

Handler find_handler(u64 key) {
  static const std::unordered_map<u64, Handler> kHandlers = build();
  const auto found = kHandlers.find(key);
  return found == kHandlers.end() ? nullptr : found->second;
}

const char* instruction_set_name() { return chosen().name; }

}  // namespace tessera::sim
