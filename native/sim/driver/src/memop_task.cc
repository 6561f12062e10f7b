// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "device.h"
#include "report.h"
#include "running.h"
#include "tasks.h"

namespace tessera::sim {
namespace {

constexpr int kSpins = 50;  // some microseconds
constexpr auto kFirstSleep = std::chrono::microseconds(10);
constexpr auto kLongestSleep = std::chrono::microseconds(50);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class T>
std::atomic<T>& word_at(CUdeviceptr address) {
  static_assert(sizeof(std::atomic<T>) == sizeof(T));
  return *reinterpret_cast<std::atomic<T>*>(address);
}

template <class T>
bool satisfied(T seen, T wanted, unsigned flags) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(seen - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & wanted) != 0;
    default:
      return static_cast<T>(~(seen | wanted)) != 0;  // CU_STREAM_WAIT_VALUE_NOR
  }
}

bool is_known(CUdeviceptr address, size_t size) {
  return address_map().cover(address, size, [](const Memory&) { return true; });
}

enum class Look : uint8_t { kNotYet, kSatisfied, kGone };

template <class T>
Look look(CUdeviceptr address, T wanted, unsigned flags) {
  const RunningScope scope;  // the memory stays while this looks at it
  if (!is_known(address, sizeof(T))) return Look::kGone;
  const T seen = word_at<T>(address).load(std::memory_order_acquire);
  return satisfied(seen, wanted, flags) ? Look::kSatisfied : Look::kNotYet;
}

// The word may be written by another stream, the host or another process: only looking helps.
// Gives up when the context ends or the device has failed.
template <class T>
void wait_for_word(CUdeviceptr address, T wanted, unsigned flags, Execution& execution) {
  auto nap = kFirstSleep;
  for (int round = 0;; ++round) {
    const Look seen = look(address, wanted, flags);
    if (seen == Look::kSatisfied) return;
    if (seen == Look::kGone) {
      diagnose("a wait in a stream looks at memory that was freed, unmapped or unregistered");
      execution.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
      return;
    }
    if (execution.context.ending() || execution.device.fault() != CUDA_SUCCESS) return;
    if (round < kSpins) {
      pause_briefly();
      continue;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::microseconds>(nap + std::chrono::microseconds(2), kLongestSleep);
  }
}

template <class T>
void write_word(CUdeviceptr address, T value, Execution& execution) {
  const RunningScope scope;
  if (!is_known(address, sizeof(T))) {
    diagnose("a write in a stream meets memory that was freed, unmapped or unregistered");
    execution.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    return;
  }
  word_at<T>(address).store(value, std::memory_order_release);
}

void perform(const CUstreamBatchMemOpParams& operation, Execution& execution) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      wait_for_word<uint32_t>(operation.waitValue.address, operation.waitValue.value, operation.waitValue.flags,
                              execution);
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      wait_for_word<uint64_t>(operation.waitValue.address, operation.waitValue.value64, operation.waitValue.flags,
                              execution);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      write_word<uint32_t>(operation.writeValue.address, operation.writeValue.value, execution);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      write_word<uint64_t>(operation.writeValue.address, operation.writeValue.value64, execution);
      break;
    default:
      std::atomic_thread_fence(std::memory_order_seq_cst);  // barrier, flush
  }
}

bool is_wait(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

}  // namespace

bool MemoryOperationTask::is_short() const { return std::none_of(operations.begin(), operations.end(), is_wait); }

VirtualTime MemoryOperationTask::run(Execution& execution) const {
  constexpr VirtualTime kEach = 500 * 1000;  // half a microsecond
  VirtualTime time = 0;
  for (const CUstreamBatchMemOpParams& operation : operations) {
    perform(operation, execution);
    execution.ends_now = execution.ends_now || is_wait(operation);
    if (execution.fault != CUDA_SUCCESS || execution.context.ending()) break;
    time += kEach;
  }
  return time;
}

}  // namespace tessera::sim
