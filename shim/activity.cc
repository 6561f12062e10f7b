// SPDX-License-Identifier: Apache-2.0
#include "activity.h"

#include <sched.h>

#include <chrono>
#include <new>

namespace tessera::shim {

constinit Activity detail::all_activity;

uint64_t Activity::total() const {
  uint64_t sum = 0;
  for (size_t word = 0; word < kSlots / 32; ++word) {
    for (uint32_t bits = used_[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      sum += slots_[word * 32 + static_cast<size_t>(__builtin_ctz(bits))].count.load(std::memory_order_relaxed);
    }
  }
  return sum;
}

Activity::Slot& Activity::slot_found_for(CUstream stream) {
  size_t index = home(stream);
  for (size_t probes = 0; probes < kSlots; ++probes, index = (index + 1) % kSlots) {
    Slot& slot = slots_[index];
    CUstream held = slot.stream.load(std::memory_order_acquire);
    if (held == stream) return slot;
    if (held == nullptr && slot.stream.compare_exchange_strong(held, stream, std::memory_order_acq_rel)) {
      used_[index / 32].fetch_or(1u << (index % 32), std::memory_order_acq_rel);
      return slot;
    }
    if (held == stream) return slot;
  }
  overflowed_.store(true, std::memory_order_release);
  return slots_[0];
}

namespace {

template <class P>
struct Presences {
  std::atomic<P*> first{nullptr};

  P* acquire() {
    for (P* it = first.load(std::memory_order_acquire); it != nullptr; it = it->next) {
      bool expected = false;
      if (it->owned.compare_exchange_strong(expected, true, std::memory_order_acq_rel)) return it;
    }
    P* fresh = new P;
    fresh->owned.store(true, std::memory_order_relaxed);
    fresh->next = first.load(std::memory_order_relaxed);
    while (!first.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {
    }
    return fresh;
  }
};

template <class P>
Presences<P>& presences() {
  static constinit Presences<P> all;
  return all;
}

template <class P>
struct Owner {
  P* presence = presences<P>().acquire();
  ~Owner() { presence->owned.store(false, std::memory_order_release); }
};

}  // namespace

thread_local constinit HomePass::Presence* HomePass::known_ = nullptr;

HomePass::Presence& HomePass::made_mine() {
  thread_local Owner<Presence> owner;
  return *owner.presence;
}

bool HomePass::drain() {
  constexpr auto kPatience = std::chrono::milliseconds(50);
  const auto began = std::chrono::steady_clock::now();
  const Presence* self = &mine();
  for (Presence* it = presences<Presence>().first.load(std::memory_order_acquire); it != nullptr; it = it->next) {
    while (it != self && it->inside.load(std::memory_order_seq_cst) != 0) {
      if (std::chrono::steady_clock::now() - began > kPatience) return false;
      sched_yield();
    }
  }
  return true;
}

}  // namespace tessera::shim
