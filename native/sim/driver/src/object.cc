// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <cstdlib>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace tessera::sim {
namespace {

struct Graveyard {
  std::mutex mutex;
  std::unordered_map<size_t, std::deque<void*>> free;  // by object size
};

Graveyard& graveyard() {
  static auto* const one = new Graveyard;  // outlives every thread
  return *one;
}

}  // namespace

void* Object::operator new(size_t size) {
  {
    Graveyard& store = graveyard();
    const std::lock_guard lock(store.mutex);
    auto& list = store.free[size];
    // Some distance between death and reuse keeps stale handles recognisable.
    constexpr size_t kQuarantine = 16;
    if (list.size() > kQuarantine) {
      void* const memory = list.front();
      list.pop_front();
      return memory;
    }
  }
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Object::operator delete(void* memory, size_t size) {
  Graveyard& store = graveyard();
  const std::lock_guard lock(store.mutex);
  store.free[size].push_back(memory);
}

}  // namespace tessera::sim
