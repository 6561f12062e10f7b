// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <algorithm>
#include <cstdio>

#include "device.h"
#include "memory.h"
#include "module.h"
#include "stream.h"
#include "vmm.h"

namespace tessera::sim {
namespace {

std::atomic<unsigned long long> next_context_id{1};

}  // namespace

Context::Context(Device& device, bool primary)
    : Object(kTag), device_(device), primary_(primary), id_(next_context_id.fetch_add(1)) {}

Context::~Context() = default;

void Context::reset_limits() {
  const DeviceModel& model = device_.model();
  const std::lock_guard lock(limits_mutex);
  limits = {};
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 8650752;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = model.l2_bytes * 3 / 16;
  limits[CU_LIMIT_SHMEM_SIZE] = device_.architecture().shared_per_block_optin;
}

void Context::start(unsigned new_flags) {
  reset_limits();
  flags.store(new_flags);
  peers.store(0);
  generation_.fetch_add(1);
  alive_.store(true, std::memory_order_release);
}

void Context::tear_down() {
  if (!alive_.exchange(false)) return;
  ending_.store(true, std::memory_order_release);
  for (const Ref<Stream>& stream : streams()) {
    if (const Ref<Op> op = stream->last()) op->wait();
  }
  if (Stream* legacy = legacy_fast_.load()) {
    if (const Ref<Op> op = legacy->last()) op->wait();
  }
  flush_prints();
  std::vector<Ref<Module>> modules;
  {
    const std::lock_guard lock(mutex_);
    streams_.clear();
    legacy_fast_.store(nullptr);
    legacy_ = {};
    modules.swap(modules_);
  }
  for (const Ref<Module>& module : modules) module->unload();
  free_memory();
  ending_.store(false);
}

void Context::free_memory() {
  const auto mine = address_map().select(
      [this](const Memory& memory) { return memory.context == this && memory.context_generation == generation(); });
  for (const MemoryPtr& memory : mine) release_memory(memory);
}

Stream& Context::legacy_stream() {
  if (Stream* stream = legacy_fast_.load(std::memory_order_acquire)) return *stream;
  const std::lock_guard lock(mutex_);
  if (!legacy_) {
    legacy_ = Ref<Stream>(new Stream(*this, Stream::Kind::kLegacy, CU_STREAM_DEFAULT, 0));
    legacy_fast_.store(legacy_.get(), std::memory_order_release);
  }
  return *legacy_;
}

void Context::add_stream(Stream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(Ref<Stream>::share(&stream));
}

// A destroyed stream still counts until its work is done; others that were left are cleared with it.
void Context::remove_stream(Stream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&stream](const Ref<Stream>& known) {
    return (known.get() == &stream || known->tag() == Tag::kDead) && known->idle();
  });
}

std::vector<Ref<Stream>> Context::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_;
}

std::vector<Ref<Op>> Context::last_blocking_operations() const {
  std::vector<Ref<Op>> operations;
  const std::lock_guard lock(mutex_);
  for (const Ref<Stream>& stream : streams_) {
    if (!stream->blocking()) continue;
    if (Ref<Op> op = stream->last()) operations.push_back(std::move(op));
  }
  return operations;
}

void Context::add_implicit_dependencies(Stream& stream, std::vector<Ref<Op>>& dependencies) {
  if (!stream.blocking()) return;
  if (stream.kind() == Stream::Kind::kLegacy) {
    for (Ref<Op>& op : last_blocking_operations()) dependencies.push_back(std::move(op));
  } else if (const Stream* legacy = legacy_fast_.load(std::memory_order_acquire)) {
    if (Ref<Op> op = legacy->last()) dependencies.push_back(std::move(op));
  }
}

void Context::synchronize() {
  for (const Ref<Stream>& stream : streams()) {
    if (const Ref<Op> op = stream->last()) op->wait_on_host();
  }
  legacy_stream().synchronize();
  flush_prints();
}

void Context::add_module(Module& module) {
  const std::lock_guard lock(mutex_);
  modules_.push_back(Ref<Module>::share(&module));
}

void Context::remove_module(Module& module) {
  Ref<Module> removed;  // released outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(modules_.begin(), modules_.end(),
                                  [&module](const Ref<Module>& known) { return known.get() == &module; });
  if (found == modules_.end()) return;
  removed = std::move(*found);
  modules_.erase(found);
}

void Context::print(const std::string& text) {
  if (text.empty()) return;
  const std::lock_guard lock(prints_mutex_);
  prints_ += text;
}

void Context::flush_prints() {
  std::string text;
  {
    const std::lock_guard lock(prints_mutex_);
    text.swap(prints_);
  }
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tessera::sim
