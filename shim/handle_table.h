// SPDX-License-Identifier: Apache-2.0
// From handles to entries: open addressing, lookups without a lock. Changes are
// the caller's to serialise. A table that was outgrown is left to late readers.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace tessera::shim {

template <class Entry>
class HandleTable {
 public:
  constexpr HandleTable() = default;

  Entry* find(const void* handle) const {
    const Slots slots(slots_.load(std::memory_order_acquire));
    if (slots.at() == nullptr) return nullptr;
    for (size_t index = slots.home(handle);; index = (index + 1) & slots.mask()) {
      const void* key = slots.at()[index].key.load(std::memory_order_acquire);
      if (key == handle) return slots.at()[index].entry.load(std::memory_order_acquire);
      if (key == nullptr) return nullptr;
    }
  }

  /// Precondition: `handle` is not null. Replaces what was there.
  void set(const void* handle, Entry* entry) {
    if (used_ * 2 >= capacity()) grow();
    used_ += put(Slots(slots_.load(std::memory_order_relaxed)), handle, entry) ? 1 : 0;
  }

  void remove(const void* handle) {
    if (find(handle) != nullptr) set(handle, nullptr);
  }

 private:
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Entry*> entry{nullptr};
  };

  /// The slots and how many they are, in one word: a lookup touches no cache line more than the slot's. The size is
  /// the power of two that stands in the low bits, which the alignment of the slots leaves free.
  class Slots {
   public:
    explicit Slots(char* word) : word_(word) {}
    Slots(Slot* at, unsigned bits) : word_(reinterpret_cast<char*>(at) + bits) {}
    char* word() const { return word_; }
    Slot* at() const { return reinterpret_cast<Slot*>(word_ - bits()); }
    unsigned bits() const { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(word_) % kAlignment); }
    size_t mask() const { return (size_t{1} << bits()) - 1; }
    size_t home(const void* handle) const {
      constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
      return static_cast<size_t>((reinterpret_cast<uintptr_t>(handle) * kGolden) >> (64 - bits()));
    }

   private:
    char* word_;
  };
  static constexpr unsigned kFirstBits = 10;
  static constexpr size_t kAlignment = 64;  // more than the bits of any size

  size_t capacity() const {
    const Slots slots(slots_.load(std::memory_order_relaxed));
    return slots.at() == nullptr ? 0 : slots.mask() + 1;
  }

  /// Whether a slot was taken that had been free.
  static bool put(const Slots& slots, const void* handle, Entry* entry) {
    for (size_t index = slots.home(handle);; index = (index + 1) & slots.mask()) {
      Slot& slot = slots.at()[index];
      const void* key = slot.key.load(std::memory_order_relaxed);
      if (key != nullptr && key != handle) continue;
      slot.entry.store(entry, std::memory_order_release);
      if (key == nullptr) slot.key.store(handle, std::memory_order_release);
      return key == nullptr;
    }
  }

  /// A table with room for four times the live entries; those removed are left behind.
  void grow() {
    const Slot* old = Slots(slots_.load(std::memory_order_relaxed)).at();
    size_t live = 0;
    for (size_t i = 0; i < capacity(); ++i) live += old[i].entry.load(std::memory_order_relaxed) != nullptr ? 1 : 0;
    unsigned bits = kFirstBits;
    while ((size_t{1} << bits) < live * 4) ++bits;
    const Slots slots(new (std::align_val_t{kAlignment}) Slot[size_t{1} << bits], bits);
    for (size_t i = 0; i < capacity(); ++i) {
      Entry* entry = old[i].entry.load(std::memory_order_relaxed);
      if (entry != nullptr) put(slots, old[i].key.load(std::memory_order_relaxed), entry);
    }
    used_ = live;
    slots_.store(slots.word(), std::memory_order_release);
    if (old != nullptr) outgrown_ = new Outgrown{old, outgrown_};
  }

  struct Outgrown {
    const Slot* slots;
    const Outgrown* before;
  };

  std::atomic<char*> slots_{nullptr};
  size_t used_ = 0;                     // slots with a key, live or not
  const Outgrown* outgrown_ = nullptr;  // kept for late readers
};

}  // namespace tessera::shim
