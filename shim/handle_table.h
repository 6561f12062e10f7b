// SPDX-License-Identifier: Apache-2.0
// From handles to entries: open addressing, lookups without a lock. Changes are
// the caller's to serialise. A table that was outgrown is left to late readers.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tessera::shim {

template <class Entry>
class HandleTable {
 public:
  constexpr HandleTable() = default;

  Entry* find(const void* handle) const {
    const Slots* slots = slots_.load(std::memory_order_acquire);
    if (slots == nullptr) return nullptr;
    for (size_t index = home(handle, slots->bits);; index = (index + 1) & slots->mask) {
      const void* key = slots->at[index].key.load(std::memory_order_acquire);
      if (key == handle) return slots->at[index].entry.load(std::memory_order_acquire);
      if (key == nullptr) return nullptr;
    }
  }

  /// Precondition: `handle` is not null. Replaces what was there.
  void set(const void* handle, Entry* entry) {
    if (used_ * 2 >= capacity()) grow();
    used_ += put(*slots_.load(std::memory_order_relaxed), handle, entry) ? 1 : 0;
  }

  void remove(const void* handle) {
    if (find(handle) != nullptr) set(handle, nullptr);
  }

 private:
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Entry*> entry{nullptr};
  };
  struct Slots {
    unsigned bits;
    size_t mask;
    Slot* at;
    const Slots* outgrown;  // the one before
  };
  static constexpr unsigned kFirstBits = 10;

  static size_t home(const void* handle, unsigned bits) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(handle) * kGolden) >> (64 - bits));
  }

  size_t capacity() const {
    const Slots* slots = slots_.load(std::memory_order_relaxed);
    return slots == nullptr ? 0 : slots->mask + 1;
  }

  /// Whether a slot was taken that had been free.
  static bool put(const Slots& slots, const void* handle, Entry* entry) {
    for (size_t index = home(handle, slots.bits);; index = (index + 1) & slots.mask) {
      Slot& slot = slots.at[index];
      const void* key = slot.key.load(std::memory_order_relaxed);
      if (key != nullptr && key != handle) continue;
      slot.entry.store(entry, std::memory_order_release);
      if (key == nullptr) slot.key.store(handle, std::memory_order_release);
      return key == nullptr;
    }
  }

  /// A table with room for four times the live entries; those removed are left behind.
  void grow() {
    const Slots* old = slots_.load(std::memory_order_relaxed);
    size_t live = 0;
    for (size_t i = 0; i < capacity(); ++i) live += old->at[i].entry.load(std::memory_order_relaxed) != nullptr ? 1 : 0;
    unsigned bits = kFirstBits;
    while ((size_t{1} << bits) < live * 4) ++bits;
    auto* slots = new Slots{bits, (size_t{1} << bits) - 1, new Slot[size_t{1} << bits], old};
    for (size_t i = 0; i < capacity(); ++i) {
      Entry* entry = old->at[i].entry.load(std::memory_order_relaxed);
      if (entry != nullptr) put(*slots, old->at[i].key.load(std::memory_order_relaxed), entry);
    }
    used_ = live;
    slots_.store(slots, std::memory_order_release);
  }

  std::atomic<const Slots*> slots_{nullptr};
  size_t used_ = 0;  // slots with a key, live or not
};

}  // namespace tessera::shim
