// SPDX-License-Identifier: Apache-2.0
// How a call that works on the device takes its place in the program's order.
// Every wrapper of a driver function with a stream says what it touches and
// hands the real call over; the rules are in coherence.h.
#pragma once

#include <cuda.h>

#include <mutex>
#include <utility>
#include <vector>

#include "activity.h"
#include "coherence.h"
#include "home_timer.h"
#include "own_events.h"
#include "runtime.h"
#include "seams.h"
#include "world.h"

namespace tessera::shim {

/// `after_call`, without a call. Sticky: as after a fault of a kernel at home, every call gets it.
inline CUresult as_program_sees(CUresult result) {
  const CUresult failure = world().failure();
  return failure == CUDA_SUCCESS ? result : failure;
}

/// The current context's stream is made ready for an operation of this
/// footprint. Precondition: the world's lock is held. Nothing happens for a
/// stream under capture: what it is given runs later, and as part of a graph.
CUresult prepare_home(CUstream stream, const Footprint& footprint);

/// A call that enqueues work and returns. `describe()` gives the Footprint and
/// is asked only when something may be remote.
template <class Describe, class Call>
CUresult enqueue(CUstream stream, bool per_thread, Describe&& describe, Call&& call) {
  const CUstream handle = normalized(stream, per_thread);
  {
    const HomePass pass(handle);
    if (world().calm()) {
      return as_program_sees(call());
    }
  }
  const std::lock_guard lock(world().mutex);
  const Footprint footprint = describe();
  if (const CUresult ready = prepare_home(handle, footprint); ready != CUDA_SUCCESS) return after_call(ready);
  activity().bump(handle);
  const CUresult result = call();
  if (result == CUDA_SUCCESS && !is_capturing(handle)) Coherence(world()).after_home(footprint);
  return after_call(result);
}

/// A call that may return only when its work is done, and of which nobody can say when it was enqueued: other threads
/// may have to go on before it ends, so the lock is not held meanwhile. What it writes is home's from the start, and no
/// launch that claims any of it moves before its end; whatever else comes in between is as if it had come before.
template <class Describe, class Call>
CUresult complete(CUstream stream, bool per_thread, Describe&& describe, Call&& call) {
  if (!runtime().active()) return call();
  const CUstream handle = normalized(stream, per_thread);
  const bool captured = is_capturing(handle);
  std::unique_lock lock(world().mutex);
  Footprint footprint = describe();
  footprint.may_keep = true;  // it may fail: nothing that is elsewhere is given up for it
  if (!captured && !world().calm()) {
    if (const CUresult ready = prepare_home(handle, footprint); ready != CUDA_SUCCESS) return after_call(ready);
    Coherence(world()).after_home(footprint);
  }
  const auto mark = world().in_flight.insert(world().in_flight.end(), footprint.writes);
  lock.unlock();
  const CUresult result = [&] {
    const OwnEvents::Copy copy(own_events());
    return call();
  }();
  if (result == CUDA_SUCCESS) home_timer().collect();
  lock.lock();
  world().in_flight.erase(mark);
  activity().bump(handle);  // behind the call: what is launched now has to wait for it
  if (world().calm()) return after_call(result);
  world().check_workers();
  if (result == CUDA_SUCCESS && !captured) Coherence(world()).after_home(footprint);
  return after_call(result);
}

/// The operation just given to the stream may wait for something that the host does.
void may_wait_for_host(CUstream stream);

/// As `enqueue`, for an operation that may.
template <class Describe, class Call>
CUresult enqueue_waiting(CUstream stream, bool per_thread, Describe&& describe, Call&& call) {
  const CUresult result = enqueue(stream, per_thread, describe, call);
  if (result == CUDA_SUCCESS) may_wait_for_host(normalized(stream, per_thread));
  return result;
}

/// A call that waits for work, or asks whether it is done, and gives the device nothing.
template <class Join, class Call>
CUresult synchronize(Join&& join, Call&& call) {
  if (!world().calm()) {
    const std::lock_guard lock(world().mutex);
    Coherence coherence(world());
    if (const CUresult joined = join(coherence); joined != CUDA_SUCCESS) return after_call(joined);
  }
  const CUresult result = call();
  if (result == CUDA_SUCCESS) home_timer().collect();
  if (result == CUDA_SUCCESS && !world().calm()) {
    const std::lock_guard lock(world().mutex);
    world().check_workers();
    Coherence(world()).settle();
  }
  return after_call(result);
}

/// All of `ranges` is home, and nothing that was sent for it under way any more, when this returns. Needs no context.
/// CUDA_ERROR_LAUNCH_TIMEOUT when that takes too long: what the program does next would meet old bytes.
CUresult bring_to_rest(const std::vector<Range>& ranges);

inline Footprint nothing() { return {}; }
inline Footprint anything() {
  Footprint footprint;
  footprint.everything = true;
  return footprint;
}
inline Footprint reading(CUdeviceptr address, uint64_t bytes) {
  return {{{address, address + bytes}}, {}, false, false};
}
inline Footprint writing(CUdeviceptr address, uint64_t bytes) {
  return {{}, {{address, address + bytes}}, false, false};
}
inline Footprint copying(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  return {{{from, from + bytes}}, {{to, to + bytes}}, false, false};
}

/// The context may be about to go: what other contexts need of its streams' work and of workers that are attached
/// through it is brought to an end and home.
/// Returns what goes with it.
struct Belongings {
  std::vector<CUdeviceptr> memory;
  std::vector<CUstream> streams;
};
Belongings context_leaves(CUcontext context);
/// It is gone, with all that was in it; a new one may have the same handle already.
void context_left(CUcontext context, const Belongings& belongings);

}  // namespace tessera::shim
