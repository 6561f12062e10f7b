// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "context.h"
#include "pool.h"
#include "recorder.h"
#include "report.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

enum class State : int { kNew, kReady, kFailed, kForked };

std::mutex init_mutex;
std::atomic<State> state{State::kNew};
CUresult init_result = CUDA_SUCCESS;
std::vector<Device*>* all_devices = nullptr;

// A child of an initialised process has none of its threads: it is told so instead of hanging.
void after_fork_in_child() {
  if (state.load() == State::kReady) state.store(State::kForked);
}

CUresult build_machine() {
  try {
    sim_clock().configure(std::getenv("TESSERA_SIM_CLOCK"));
    configure_recorder(std::getenv("TESSERA_SIM_RECORD"));
    auto* const built = new std::vector<Device*>;
    for (MachineDevice& machine : visible_devices(describe_machine(), std::getenv("CUDA_VISIBLE_DEVICES"))) {
      built->push_back(new Device(static_cast<int>(built->size()), std::move(machine)));
    }
    all_devices = built;
    return built->empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  } catch (const std::runtime_error& error) {
    diagnose(error.what());
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
}

}  // namespace

CUresult initialize() {
  if (state.load(std::memory_order_acquire) == State::kReady) return CUDA_SUCCESS;
  if (state.load() == State::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(init_mutex);
  if (state.load() == State::kNew) {
    init_result = build_machine();
    if (init_result == CUDA_SUCCESS) pthread_atfork(nullptr, nullptr, after_fork_in_child);
    state.store(init_result == CUDA_SUCCESS ? State::kReady : State::kFailed, std::memory_order_release);
  }
  return init_result;
}

CUresult readiness() {
  if (state.load(std::memory_order_acquire) != State::kReady) return CUDA_ERROR_NOT_INITIALIZED;
  return thread_state().in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

const std::vector<Device*>& devices() { return *all_devices; }

Device& device_of(CUdevice ordinal) {
  require(ordinal >= 0 && ordinal < static_cast<int>(all_devices->size()), CUDA_ERROR_INVALID_DEVICE);
  return *(*all_devices)[static_cast<size_t>(ordinal)];
}

Device::Device(int index, MachineDevice machine)
    : index_(index),
      machine_(std::move(machine)),
      architecture_(architecture_of(machine_.model.compute_capability())),
      primary_(new Context(*this, true)),
      default_pool_(new Pool(*this, CU_MEM_HANDLE_TYPE_NONE, 0)),
      current_pool_(default_pool_) {}

std::string Device::bus_id() const {
  char text[16];
  std::snprintf(text, sizeof(text), "0000:%02X:00.0", (machine_.physical_ordinal + 1) & 0xff);
  return text;
}

VirtualTime Device::occupy(VirtualTime start, VirtualTime duration) {
  if (!sim_clock().exclusive()) return duration;
  const std::lock_guard lock(mutex_);
  free_at_ = std::max(free_at_, start) + duration;
  return free_at_ - start;
}

void Device::charge(uint64_t bytes) {
  uint64_t before = used_.load(std::memory_order_relaxed);
  do {
    require(bytes <= model().memory_bytes && before <= model().memory_bytes - bytes, CUDA_ERROR_OUT_OF_MEMORY);
  } while (!used_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
}

void Device::refund(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

uint64_t Device::free_bytes() const { return model().memory_bytes - used(); }

Arena& Device::arena() {
  std::call_once(arena_once_, [this] { arena_ = new Arena(machine_.physical_ordinal, model().memory_bytes); });
  return *arena_;
}

uint64_t Device::take(uint64_t size, uint64_t alignment) {
  const uint64_t rounded = round_up(size, kAllocationUnit);
  charge(rounded);
  const uint64_t address = arena().allocate(size, alignment);
  if (address == 0) {
    refund(rounded);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return address;
}

void Device::give_back(uint64_t address, uint64_t size) {
  arena().free(address, size);
  refund(round_up(size, kAllocationUnit));
}

CUresult Device::retain_primary(Context** context) {
  const std::lock_guard lock(mutex_);
  check_fault();
  if (primary_users_++ == 0) primary_->start(primary_flags.load());
  *context = primary_.get();
  return CUDA_SUCCESS;
}

void Device::release_primary() {
  const std::lock_guard lock(mutex_);
  require(primary_users_ > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--primary_users_ == 0) primary_->tear_down();
}

void Device::reset_primary() {
  const std::lock_guard lock(mutex_);
  if (primary_users_ == 0) return;
  primary_users_ = 0;
  primary_->tear_down();
}

Ref<Pool> Device::current_pool() const {
  const std::lock_guard lock(mutex_);
  return current_pool_;
}

void Device::set_current_pool(Pool& pool) {
  const std::lock_guard lock(mutex_);
  current_pool_ = Ref<Pool>::share(&pool);
}

void Device::set_fault(CUresult code) {
  CUresult none = CUDA_SUCCESS;
  fault_.compare_exchange_strong(none, code, std::memory_order_acq_rel);
}

}  // namespace tessera::sim
