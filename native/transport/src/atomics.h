// SPDX-License-Identifier: Apache-2.0
// Shared memory is plain C structs; these give its words atomic access.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::transport {

template <class T>
T load(const T& word, std::memory_order order = std::memory_order_acquire) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}

template <class T>
void store(T& word, T value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref<T>(word).store(value, order);
}

/// FUTEX_WAIT on a word that other processes map too; returns on wake, on another value, and after `nanoseconds`.
void futex_wait(uint32_t* word, uint32_t expected, int64_t nanoseconds);
void futex_wake(uint32_t* word);

}  // namespace tessera::transport
