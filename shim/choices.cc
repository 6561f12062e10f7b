// SPDX-License-Identifier: Apache-2.0
#include "choices.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tessera::shim {
namespace {

constexpr int kAttempts = 64;

/// Has `read` look at a table that stays the same meanwhile; the sequence, or none.
template <class Read>
std::optional<uint64_t> consistently(ts_placement_table& table, Read&& read) {
  for (int i = 0; i < kAttempts; ++i) {
    const uint64_t before = sequence_of(table);
    if (before % 2 == 0) {
      read();
      std::atomic_thread_fence(std::memory_order_acquire);
      if (std::atomic_ref(table.sequence).load(std::memory_order_relaxed) == before) return before;
    }
    sched_yield();
  }
  return std::nullopt;
}

/// Calls `visit` for each choice of the kernel in order, until it returns false. What it sees may be torn.
template <class Visit>
void for_each_choice(const ts_placement_table& table, uint32_t kernel_id, Visit&& visit) {
  const uint32_t count = std::min<uint32_t>(table.n_choices, TS_MAX_CHOICES);
  const ts_choice* end = table.choices + count;
  const ts_choice* at = std::lower_bound(table.choices, end, kernel_id, [](const ts_choice& choice, uint32_t wanted) {
    return choice.kernel_id < wanted;
  });
  for (; at != end; ++at) {
    ts_choice choice;
    std::memcpy(&choice, at, sizeof choice);
    choice.n_terms = std::min<uint16_t>(choice.n_terms, TS_MAX_TERMS);
    if (choice.kernel_id != kernel_id || !visit(choice)) return;
  }
}

bool fits(const ts_choice& choice, const Quantities& launch) {
  return std::all_of(choice.terms, choice.terms + choice.n_terms, [&](const ts_term& term) {
    const std::optional<uint64_t> value = launch.value(term.quantity);
    return value && *value >= term.least && *value <= term.most;
  });
}

}  // namespace

uint64_t sequence_of(ts_placement_table& table) {
  return std::atomic_ref(table.sequence).load(std::memory_order_acquire);
}

std::optional<Choice> choose(ts_placement_table& table, uint32_t kernel_id, const Quantities& launch) {
  Choice chosen;
  if (kernel_id >= TS_MAX_KERNELS) return chosen;
  const auto sequence = consistently(table, [&] {
    const uint8_t entry = std::atomic_ref(table.device[kernel_id]).load(std::memory_order_relaxed);
    chosen.device = entry & ~uint32_t{TS_PLACED_BY_CLASS};
    if ((entry & TS_PLACED_BY_CLASS) == 0) return;
    for_each_choice(table, kernel_id, [&](const ts_choice& choice) {
      if (!fits(choice, launch)) return true;
      chosen.device = choice.device;
      return false;
    });
  });
  if (!sequence) return std::nullopt;
  chosen.sequence = *sequence;
  return chosen;
}

std::optional<Named> arguments_named(ts_placement_table& table, uint32_t kernel_id) {
  Named named;
  const auto sequence = consistently(table, [&] {
    named.arguments = 0;
    for_each_choice(table, kernel_id, [&](const ts_choice& choice) {
      for (uint32_t i = 0; i < choice.n_terms; ++i) {
        const uint32_t quantity = choice.terms[i].quantity;
        if (quantity >= TS_ARGUMENT && quantity < TS_QUANTITIES) named.arguments |= uint64_t{1} << quantity;
      }
      return true;
    });
  });
  if (!sequence) return std::nullopt;
  named.sequence = *sequence;
  return named;
}

}  // namespace tessera::shim
