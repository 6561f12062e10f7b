// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "context.h"
#include "op.h"

namespace tessera::sim {

class Capture;
class GraphNode;

class Event : public Object {
 public:
  static constexpr Tag kTag = Tag::kEvent;
  Event(Context& context, unsigned flags)
      : Object(kTag), context_(Ref<Context>::share(&context)), generation_(context.generation()), flags_(flags) {}

  Context& context() const { return *context_; }
  uint64_t context_generation() const { return generation_; }
  bool timing() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }
  bool interprocess() const { return (flags_ & CU_EVENT_INTERPROCESS) != 0; }

  /// What the last record captured: an op of a stream, or a place in a graph under capture.
  struct Record {
    Ref<Op> op;
    std::weak_ptr<Capture> capture;
    std::vector<GraphNode*> nodes;
    bool captured = false;
  };
  Record record() const {
    const std::lock_guard lock(mutex_);
    return record_;
  }
  void set_record(Record record) {
    const std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }

 private:
  Ref<Context> context_;
  const uint64_t generation_;
  const unsigned flags_;
  mutable std::mutex mutex_;
  Record record_;
};

/// Fails with CUDA_ERROR_INVALID_HANDLE, CONTEXT_IS_DESTROYED or the device's fault.
Event& event_of(CUevent handle);

}  // namespace tessera::sim
