// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "context.h"
#include "device.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

constexpr auto kIdleTime = std::chrono::milliseconds(500);  // a worker without work ends after this

std::atomic<unsigned long long> next_stream_id{1};

}  // namespace

Stream::Stream(Context& context, Kind kind, unsigned flags, int priority)
    : Object(kTag),
      context_(Ref<Context>::share(&context)),
      generation_(context.generation()),
      kind_(kind),
      flags_(flags),
      priority_(priority),
      id_(kind == Kind::kLegacy      ? 1
          : kind == Kind::kPerThread ? 2
                                     : 2 + next_stream_id.fetch_add(1)) {}

Stream::~Stream() = default;

bool Stream::may_run_here(const Op& op, bool on_caller) const {
  if (running_ || !queue_.empty()) return false;
  if (!on_caller && (sim_clock().paced() || !op.task_->is_short())) return false;
  return op.dependencies_.empty();
}

Ref<Op> Stream::submit(TaskPtr task, std::vector<Ref<Op>> dependencies, bool on_caller) {
  context_->add_implicit_dependencies(*this, dependencies);
  VirtualTime floor = sim_clock().now();
  std::erase_if(dependencies, [&floor](const Ref<Op>& op) {
    if (!op->done()) return false;
    floor = std::max(floor, op->end());
    return true;
  });
  Ref<Op> op(new Op(std::move(task), std::move(dependencies), floor));
  std::unique_lock lock(mutex_);
  last_ = op;
  if (may_run_here(*op, on_caller)) {
    running_ = true;
    lock.unlock();
    execute(*op);
    lock.lock();
    running_ = false;
    if (queue_.empty()) return op;
  } else {
    queue_.push_back(op);
  }
  if (!has_worker_) start_worker();
  if (!running_) ready_.notify_one();
  return op;
}

void Stream::start_worker() {
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  retain();  // the worker's own reference
  try {
    std::thread([this] {
      pthread_setname_np(pthread_self(), "sim-stream");
      work();
      release();
    }).detach();
    has_worker_ = true;
  } catch (const std::system_error&) {
    release();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(CUDA_ERROR_OPERATING_SYSTEM);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool woken = ready_.wait_for(lock, kIdleTime, [this] { return !queue_.empty() && !running_; });
    if (!woken) {
      if (!queue_.empty() || running_) continue;
      has_worker_ = false;
      return;
    }
    const Ref<Op> op = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    execute(*op);
    lock.lock();
    running_ = false;
  }
}

void Stream::execute(Op& op) {
  VirtualTime start = std::max(time_, op.floor_);
  for (const Ref<Op>& dependency : op.dependencies_) {
    dependency->wait();
    start = std::max(start, dependency->end());
  }
  Execution execution{*this, *context_, context_->device(), start};
  VirtualTime end = start;
  if (execution.device.fault() == CUDA_SUCCESS || op.task_->runs_after_fault()) {
    try {
      end += op.task_->run(execution);
    } catch (const Failure& failure) {
      execution.fault = failure.code;
    } catch (const std::exception&) {
      execution.fault = CUDA_ERROR_UNKNOWN;
    }
    if (execution.ends_now) end = std::max(end, sim_clock().now());
    if (execution.fault != CUDA_SUCCESS) execution.device.set_fault(execution.fault);
  }
  time_ = end;
  sim_clock().pace(end);
  op.complete(end);
}

Ref<Op> Stream::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

bool Stream::idle() const {
  const Ref<Op> op = last();
  return !op || op->done();
}

VirtualTime Stream::time() const {
  const Ref<Op> op = last();
  return op && op->done() ? op->end() : 0;
}

void Stream::synchronize() const {
  if (kind_ == Kind::kLegacy) {
    for (const Ref<Op>& op : context_->last_blocking_operations()) op->wait_on_host();
  }
  if (const Ref<Op> op = last()) op->wait_on_host();
}

Stream& stream_of_unchecked(CUstream handle) {
  ThreadState& thread = thread_state();
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context& context = thread.current_alive();
    const bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && thread.per_thread_default);
    return per_thread ? thread.per_thread_stream(context) : context.legacy_stream();
  }
  Stream& stream = from_handle<Stream>(handle);
  stream.context().check_alive(stream.context_generation());
  return stream;
}

Stream& stream_of(CUstream handle) {
  Stream& stream = stream_of_unchecked(handle);
  stream.context().device().check_fault();
  return stream;
}

}  // namespace tessera::sim
