// SPDX-License-Identifier: Apache-2.0
#include "order.h"

#include <bit>
#include <chrono>
#include <thread>

#include "context.h"
#include "driver.h"
#include "registry.h"

namespace tessera::shim {

CUresult prepare_home(CUstream stream, const Footprint& footprint) {
  if (is_capturing(stream)) return CUDA_SUCCESS;
  return Coherence(world()).before_home(world().streams.get(stream), footprint);
}

CUresult opaque_call(CUstream stream, bool per_thread, CUresult (*call)(void*), void* argument) {
  return enqueue_waiting(stream, per_thread, anything, [&] { return call(argument); });
}

void may_wait_for_host(CUstream stream) {
  if (!runtime().active() || is_capturing(stream)) return;
  const std::lock_guard lock(world().mutex);
  world().host_waits.add(world().streams.get(stream));
}

CUresult after_call(CUresult result) { return as_program_sees(result); }

namespace {

/// Everything that is elsewhere comes home, and all that the context's streams wait for has to be done.
CUresult bring_to_an_end() {
  const std::lock_guard lock(world().mutex);
  Coherence coherence(world());
  CUresult result = coherence.join_all();
  if (result == CUDA_SUCCESS) result = coherence.bring_all_home(world().streams.get(CU_STREAM_PER_THREAD));
  return result == CUDA_SUCCESS ? coherence.join_all() : result;
}

/// The lanes of the context's streams serve others from now on.
void retire_streams(CUcontext context) {
  World& all = world();
  all.streams.for_each([&](StreamState& stream) {
    if (stream.context != context) return;
    if (stream.unjoined != 0) --all.unjoined_streams;
    stream.unjoined = 0;
    for (uint32_t index = 0; index < TS_MAX_DEVICES; ++index) {
      WorkerLink* worker = all.worker(index);
      if (worker != nullptr && stream.lanes[index] >= 0) worker->retire_lane(stream.lanes[index]);
    }
  });
  all.streams.erase_context(context);
}

std::vector<CUstream> streams_of(CUcontext context) {
  std::vector<CUstream> found;
  activity().for_each([&](CUstream handle, size_t, uint64_t) {
    CUcontext own = nullptr;
    const bool special = handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    if (!special && driver().cuStreamGetCtx(handle, &own) == CUDA_SUCCESS && own == context) found.push_back(handle);
  });
  return found;
}

/// A worker that has to do with `ranges` still; none: nobody has, or it is lost, which is the world's failure then.
WorkerLink* worker_concerned(std::span<const Range> ranges) {
  WorkerLink* found = nullptr;
  for (const Range& range : ranges) {
    world().directory.for_each(range, [&](Range, const memory::Replicas& replicas) {
      const bool away = !replicas.valid_on(memory::kHome);
      if (found != nullptr || (!away && replicas.touch.none())) return;
      found = world().worker(away ? static_cast<uint32_t>(std::countr_zero(replicas.valid)) : replicas.touch.worker);
      if (found == nullptr && away) world().fail(CUDA_ERROR_LAUNCH_FAILED);
    });
  }
  return found;
}

/// Sends what is missing home, and says what has to end until it is there.
CUresult start_home(const std::vector<Range>& ranges, std::vector<memory::Touch>& left) {
  const std::lock_guard lock(world().mutex);
  const WorkerLink* worker = worker_concerned(ranges);
  if (worker == nullptr) return world().failure();
  const Entered entered(worker->context());
  if (!entered) return entered.result();
  if (is_capturing(CU_STREAM_PER_THREAD)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Coherence coherence(world());
  const CUresult result = coherence.bring_home(world().streams.get(CU_STREAM_PER_THREAD), ranges);
  if (result != CUDA_SUCCESS) return result;
  bool sent = true;
  for (const Range& range : ranges) {
    world().directory.for_each(range, [&](Range, const memory::Replicas& replicas) {
      const memory::Touch& touch = replicas.touch;
      WorkerLink* link = touch.none() ? nullptr : world().worker(touch.worker);
      if (link == nullptr || link->finished(touch.lane, touch.serial)) return;
      const bool asked = static_cast<int32_t>(link->lane(touch.lane).requested - touch.serial) >= 0;
      sent = sent && (asked || link->join(touch.lane, 0, {}) != 0);
      if (left.empty() || !(left.back() == touch)) left.push_back(touch);
    });
  }
  return sent ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

bool has_ended(const memory::Touch& touch) {
  const std::lock_guard lock(world().mutex);
  const WorkerLink* worker = world().worker(touch.worker);
  return worker == nullptr || worker->finished(touch.lane, touch.serial);
}

}  // namespace

CUresult bring_to_rest(const std::vector<Range>& ranges) {
  if (ranges.empty() || world().directory.quiet()) return CUDA_SUCCESS;
  constexpr int kPatience = 12;  // times what a message may take: kernels may have to end first
  std::vector<memory::Touch> left;
  if (const CUresult started = start_home(ranges, left); started != CUDA_SUCCESS) return started;
  const auto until = std::chrono::steady_clock::now() + kPatience * message_timeout();
  for (const memory::Touch& touch : left) {
    // By the flags alone: a driver call that waits could spoil a capture of the program's.
    while (!has_ended(touch)) {
      if (std::chrono::steady_clock::now() > until) return CUDA_ERROR_LAUNCH_TIMEOUT;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  const std::lock_guard lock(world().mutex);
  Coherence(world()).settle();
  return world().failure();
}

Belongings context_leaves(CUcontext context) {
  if (const Entered entered(context); entered && !world().calm()) {
    // The lock is not held while the device works: host functions of the program may need it.
    if (bring_to_an_end() == CUDA_SUCCESS) driver().cuCtxSynchronize();
  }
  const std::lock_guard lock(world().mutex);
  return {world().memory.owned_by(context), streams_of(context)};
}

void context_left(CUcontext context, const Belongings& belongings) {
  own_events().forget(context);
  World& all = world();
  const std::lock_guard lock(all.mutex);
  for (CUstream stream : belongings.streams) activity().retire(stream);
  for (const CUdeviceptr address : belongings.memory) {
    if (const auto freed = all.memory.free(address)) all.directory.forget(*freed);
  }
  retire_streams(context);
  for (uint32_t index = 0; index < all.workers.size(); ++index) {
    if (all.workers[index] == nullptr || all.workers[index]->context() != context) continue;
    if (all.detach_worker(index)) all.fail(CUDA_ERROR_LAUNCH_FAILED);
  }
  all.forgive();
  all.rest();
}

}  // namespace tessera::shim
