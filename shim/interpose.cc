// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress, both ABIs, and the table that takes the driver's answers to
// the shim's functions.
#include "interpose.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "driver.h"
#include "loaded_objects.h"
#include "log.h"
#include "runtime.h"

namespace tessera::shim {
namespace {

constexpr const char* kKnownBases[] = {
#define TESSERA_KNOWN_BASE(name) name,
#define TESSERA_KNOWN_SYMBOL(name)
#include "known_names.def"
#undef TESSERA_KNOWN_BASE
#undef TESSERA_KNOWN_SYMBOL
};

constexpr const char* kKnownSymbols[] = {
#define TESSERA_KNOWN_BASE(name)
#define TESSERA_KNOWN_SYMBOL(name) name,
#include "known_names.def"
#undef TESSERA_KNOWN_BASE
#undef TESSERA_KNOWN_SYMBOL
};

bool contains(std::span<const char* const> sorted, const char* name) {
  const auto less = [](const char* a, const char* b) { return std::strcmp(a, b) < 0; };
  return std::binary_search(sorted.begin(), sorted.end(), name, less);
}

/// One pointer that the driver gives for an interposed function.
struct Answer {
  const Interposed* entry;
  void* pointer;
};

/// All of them, by base name: a driver may serve two names with one function, so
/// the pointer alone does not tell which was meant.
struct Answers {
  std::vector<Answer> all;
};

constinit std::atomic<const Answers*> published{nullptr};

void* ask(const Interposed& entry) {
  void* pointer = nullptr;
  const cuuint64_t flags =
      entry.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult result = driver().cuGetProcAddress_v2(entry.base, &pointer, entry.version, flags, &found);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    result = driver().cuGetProcAddress(entry.base, &pointer, entry.version, flags);
  }
  return result == CUDA_SUCCESS ? pointer : nullptr;
}

bool by_base(const Answer& a, const Answer& b) { return std::strcmp(a.entry->base, b.entry->base) < 0; }

const Answers& answers() {
  if (const Answers* ready = published.load(std::memory_order_acquire)) return *ready;
  const DriverLibrary& library = load_driver();
  auto made = std::make_unique<Answers>();
  std::vector<LoadedObject> objects = loaded_objects();
  const auto here = std::find_if(objects.begin(), objects.end(),
                                 [&](const LoadedObject& object) { return object.begin() == library.begin; });
  for (const Interposed& entry : interposed_functions()) {
    void* exported = here != objects.end() ? here->function(entry.symbol) : nullptr;
    for (void* pointer : {exported, real_pointer(driver(), entry), ask(entry)}) {
      if (pointer != nullptr) made->all.push_back({&entry, pointer});
    }
  }
  std::stable_sort(made->all.begin(), made->all.end(), by_base);
  const Answers* expected = nullptr;
  if (!published.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *expected;
  return *made.release();
}

/// Of two functions that the driver serves with one pointer, the one that was asked for.
bool fits_better(const Interposed& candidate, const Interposed& best, int version, bool per_thread) {
  if ((candidate.per_thread == per_thread) != (best.per_thread == per_thread))
    return candidate.per_thread == per_thread;
  if ((candidate.version <= version) != (best.version <= version)) return candidate.version <= version;
  return candidate.version > best.version;
}

/// `caller` got a good answer in *function: puts ours in its place.
void replace(const char* base, void** function, int version, cuuint64_t flags, const void* caller) {
  if (base == nullptr || function == nullptr || *function == nullptr) return;
  if (runtime().disabled() || is_beneath(caller)) return;
  *function = instead_of(base, *function, version, flags);
}

}  // namespace

bool is_known_base(const char* base) { return contains(kKnownBases, base); }

bool is_known_symbol(const char* symbol) { return contains(kKnownSymbols, symbol); }

void* instead_of(const char* base, void* found, int version, uint64_t flags) {
  const std::vector<Answer>& all = answers().all;
  const Interposed wanted{base, nullptr, 0, false, nullptr, 0};
  const auto [first, last] = std::equal_range(all.begin(), all.end(), Answer{&wanted, nullptr}, by_base);
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const Interposed* best = nullptr;
  for (auto at = first; at != last; ++at) {
    if (at->pointer != found) continue;
    if (best == nullptr || fits_better(*at->entry, *best, version, per_thread)) best = at->entry;
  }
  if (best != nullptr) return best->ours != nullptr ? best->ours : found;
  // A version of an interposed function, or a whole function, of a newer driver.
  if (first != last || !is_known_base(base)) runtime().saw_unknown_function(base);
  return found;
}

}  // namespace tessera::shim

using namespace tessera::shim;

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                                       cuuint64_t flags) {
  const CUresult result = driver().cuGetProcAddress(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) replace(symbol, function, version, flags, __builtin_return_address(0));
  return result;
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                          cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  const CUresult result = driver().cuGetProcAddress_v2(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) replace(symbol, function, version, flags, __builtin_return_address(0));
  return result;
}
