// SPDX-License-Identifier: Apache-2.0
// A task is what a stream (or a graph node) does; an op is one submission of a
// task to a stream: when it is done, and when that was in simulated time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "clock.h"
#include "object.h"

namespace tessera::sim {

class Context;
class Device;
class Stream;

/// What a running task may ask, and what it reports beyond its duration.
struct Execution {
  Stream& stream;
  Context& context;
  Device& device;
  VirtualTime start = 0;
  CUresult fault = CUDA_SUCCESS;  // out: makes the device unusable, as on hardware
  bool ends_now = false;          // out: it waited for something in real time
};

class Task {
 public:
  virtual ~Task() = default;
  /// Does the work on the calling thread and returns its simulated duration. May run more than once (graphs).
  virtual VirtualTime run(Execution& execution) const = 0;
  /// Short and never waits: may run on the thread that submits it.
  virtual bool is_short() const { return false; }
  /// Still runs after a fault (host callbacks learn of it, markers end).
  virtual bool runs_after_fault() const { return false; }
};

using TaskPtr = std::shared_ptr<const Task>;

class Op {
 public:
  Op(TaskPtr task, std::vector<Ref<Op>> dependencies, VirtualTime floor)
      : task_(std::move(task)), dependencies_(std::move(dependencies)), floor_(floor) {}

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const { done_.wait(0, std::memory_order_acquire); }
  /// When it ended; valid once done.
  VirtualTime end() const { return end_; }
  /// Waits as the host does: its simulated time moves on too.
  void wait_on_host() const {
    wait();
    sim_clock().observe(end_);
  }

  /// For whoever runs it: a stream, or a graph for the events that it records.
  void complete(VirtualTime end) {
    end_ = end;
    task_.reset();
    dependencies_.clear();
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }

 private:
  friend class Stream;
  std::atomic<uint32_t> references_{1};
  std::atomic<uint32_t> done_{0};
  VirtualTime end_ = 0;
  TaskPtr task_;
  std::vector<Ref<Op>> dependencies_;
  VirtualTime floor_;  // not before
};

}  // namespace tessera::sim
