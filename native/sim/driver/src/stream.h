// SPDX-License-Identifier: Apache-2.0
// A stream: operations in order, on a thread of its own that lives while there
// is work. An idle stream runs a short operation on the submitting thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "op.h"

namespace tessera::sim {

class Capture;

class Stream : public Object {
 public:
  static constexpr Tag kTag = Tag::kStream;
  enum class Kind : uint8_t { kLegacy, kPerThread, kCreated };

  Stream(Context& context, Kind kind, unsigned flags, int priority);
  ~Stream() override;

  /// Appends `task`. It starts after all earlier operations of this stream, after `dependencies`,
  /// and after what the legacy default stream's rules ask for.
  /// `on_caller`: the caller waits for it anyway, so it may run here and now.
  Ref<Op> submit(TaskPtr task, std::vector<Ref<Op>> dependencies = {}, bool on_caller = false);
  /// The last submitted operation; null when there was none.
  Ref<Op> last() const;
  bool idle() const;
  /// Waits for everything submitted so far. For the legacy stream this includes the blocking streams.
  void synchronize() const;

  Context& context() const { return *context_; }
  uint64_t context_generation() const { return generation_; }
  Kind kind() const { return kind_; }
  bool blocking() const { return kind_ == Kind::kLegacy || (flags_ & CU_STREAM_NON_BLOCKING) == 0; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }
  unsigned long long id() const { return id_; }
  /// Time that the stream's work up to now takes; for queries and tests.
  VirtualTime time() const;

  /// The capture that this stream is part of; null when it is not capturing. Guarded by Capture's lock.
  std::shared_ptr<Capture> capture;

  std::mutex attributes_mutex;
  std::map<int, CUstreamAttrValue> attributes;

 private:
  void execute(Op& op);
  void work();
  void start_worker();
  bool may_run_here(const Op& op, bool on_caller) const;

  Ref<Context> context_;
  const uint64_t generation_;
  const Kind kind_;
  const unsigned flags_;
  const int priority_;
  const unsigned long long id_;

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Ref<Op>> queue_;
  Ref<Op> last_;
  bool running_ = false;  // some thread is inside execute()
  bool has_worker_ = false;
  VirtualTime time_ = 0;  // end of the last executed operation; owned by who is running
};

/// The stream a handle names, default streams included, in the current context where it needs one.
/// Fails with CUDA_ERROR_INVALID_HANDLE, INVALID_CONTEXT, CONTEXT_IS_DESTROYED or the device's fault.
Stream& stream_of(CUstream handle);
/// Without the check for a fault of the device.
Stream& stream_of_unchecked(CUstream handle);

}  // namespace tessera::sim
