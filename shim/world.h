// SPDX-License-Identifier: Apache-2.0
// All that the launch path shares between threads, under one lock. While the
// world is calm - every byte valid at home alone and no stream waiting to be
// joined - home launches read one atomic and never take the lock.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "activity.h"
#include "device_memory.h"
#include "host_waits.h"
#include "streams.h"
#include "tessera/memory/directory.h"
#include "worker_link.h"

namespace tessera::shim {

class World {
  // What every launch at home looks at, in one cache line: in a program with much else to do it is cold each time.
  alignas(64) std::atomic<bool> calm_{true};
  bool kept_awake_ = false, recorded_ = false;
  std::atomic<CUresult> failure_{CUDA_SUCCESS};

 public:
  /// Captures that have begun and not ended, on any stream.
  std::atomic<uint32_t> captures{0};

  std::mutex mutex;
  Streams streams;
  DeviceMemory memory;
  memory::Directory directory;
  std::vector<std::unique_ptr<WorkerLink>> workers;  // by index; null: none, or not attached yet

  bool calm() const { return calm_.load(std::memory_order_seq_cst); }
  /// Called with the lock before anything becomes remote: afterwards every home
  /// call either has been enqueued already or will take the lock. False, and nothing may become remote, when a home
  /// call of another thread does not come to an end.
  [[nodiscard]] bool wake();
  /// Called with the lock after work that may have ended all remoteness.
  void rest();
  /// From now on it is never calm: every operation takes the lock, though nothing is remote.
  void keep_awake() {
    kept_awake_ = true;
    calm_.store(false, std::memory_order_seq_cst);
  }
  /// As long as launches are recorded it is not calm. Called with the lock, and before a recording after `wake`.
  void record(bool wanted);
  uint32_t unjoined_streams = 0;

  WorkerLink* worker(uint32_t index) {
    return index < workers.size() && workers[index] != nullptr && workers[index]->alive() ? workers[index].get()
                                                                                          : nullptr;
  }

  /// Lets the worker go, whose operations have all ended or are given up; the next redirection attaches anew. What
  /// only it has is lost: returns whether there was any.
  bool detach_worker(uint32_t index);
  /// Looks whether a worker has reported a failure, and keeps it. Any thread with the lock.
  void check_workers();

  /// The sticky error of a lost or failed worker; CUDA_SUCCESS while there is none.
  CUresult failure() const { return failure_.load(std::memory_order_acquire); }
  void fail(CUresult error);

  /// Operations that may wait for the host, unfinished ones: what waits for their streams may wait for itself.
  HostWaits host_waits;

  /// The program made a context anew: the failure went with the old one, once no worker is attached any more.
  void forgive();

  /// What copies write that other threads are in the middle of (`complete`), whatever lies there yet.
  std::list<std::vector<Range>> in_flight;
  bool is_in_flight(std::span<const Range> ranges) const;
  /// Another thread may be in a copy within the driver, which keeps a lock of its own until the copy is done: calls
  /// that register or export memory wait for it, and the copy may wait for what the caller would do next.
  bool driver_may_be_held() const { return !in_flight.empty(); }

 private:
  std::vector<std::unique_ptr<WorkerLink>> detached_;  // kept: other threads may still look at them
};

namespace detail {

/// Together, for the same reason.
struct alignas(64) LaunchPointers {
  std::atomic<World*> world{nullptr};
  std::atomic<const uint8_t*> placements{nullptr};  // ts_placement_table's `device`; null: there is none to look at
};
extern constinit LaunchPointers launch_pointers;
World& first_world();

}  // namespace detail

inline World& world() {
  if (World* known = detail::launch_pointers.world.load(std::memory_order_acquire)) [[likely]]
    return *known;
  return detail::first_world();
}

/// True when work given to the stream is being captured, not executed.
bool is_capturing(CUstream stream);

}  // namespace tessera::shim
