// SPDX-License-Identifier: Apache-2.0
#include "running.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace tessera::sim {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr size_t kSlots = 256;

// A slot is odd while an operation runs in it. No lock: scopes open and close around every operation.
struct alignas(64) Slot {
  std::atomic<uint64_t> state{0};
};

std::array<Slot, kSlots>& slots() {
  static auto* const all = new std::array<Slot, kSlots>;
  return *all;
}

size_t own_slot() {
  static std::atomic<size_t> next{0};
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

}  // namespace

RunningScope::RunningScope() {
  auto& all = slots();
  for (size_t i = own_slot();; ++i) {
    std::atomic<uint64_t>& state = all[i % kSlots].state;
    uint64_t before = state.load(std::memory_order_relaxed);
    if ((before & 1) == 0 && state.compare_exchange_strong(before, before + 1, std::memory_order_seq_cst)) {
      slot_ = static_cast<unsigned>(i % kSlots);
      return;
    }
    if (i % kSlots == kSlots - 1) std::this_thread::yield();
  }
}

RunningScope::~RunningScope() { slots()[slot_].state.fetch_add(1, std::memory_order_release); }

bool wait_for_running() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Slot& slot : slots()) {
    const uint64_t then = slot.state.load(std::memory_order_seq_cst);
    if ((then & 1) == 0) continue;
    for (int round = 0; slot.state.load(std::memory_order_acquire) == then; ++round) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

}  // namespace tessera::sim
