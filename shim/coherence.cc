// SPDX-License-Identifier: Apache-2.0
#include "coherence.h"

#include <algorithm>
#include <bit>

#include "driver.h"
#include "own_events.h"
#include "tessera/protocol/control.h"

namespace tessera::shim {
namespace {

using memory::kHome;
using memory::Replicas;
using memory::Touch;

constexpr uint32_t kNoWorker = TS_MAX_DEVICES;
constexpr size_t kSettleAt = 64;  // intervals from which it pays to look for finished touches

#define TESSERA_RETURN_IF_ERROR(call)                                             \
  do {                                                                            \
    if (const CUresult result_ = (call); result_ != CUDA_SUCCESS) return result_; \
  } while (false)

}  // namespace

CUresult Coherence::wait_for(StreamState& stream, WorkerLink& worker, int lane, uint32_t serial) {
  if (worker.finished(static_cast<uint16_t>(lane), serial)) return CUDA_SUCCESS;
  activity().bump(stream.handle);
  return driver().cuStreamWaitValue32_v2(stream.handle, worker.done_flag(lane), serial, CU_STREAM_WAIT_VALUE_GEQ);
}

CUresult Coherence::join_lane(StreamState& stream, uint32_t index, StreamState& waiting) {
  if (&stream == &waiting) mark_joined(stream, index);
  WorkerLink* worker = world_.worker(index);
  const int lane = stream.lanes[index];
  if (worker == nullptr || lane < 0) return world_.failure();  // lost: what it still owed has been reported
  uint32_t serial = worker->lane(lane).requested;
  if (serial != worker->lane(lane).serial) serial = worker->join(lane, 0, {});
  if (serial == 0) return CUDA_ERROR_LAUNCH_TIMEOUT;
  return wait_for(waiting, *worker, lane, serial);
}

CUresult Coherence::join_lanes(StreamState& stream, uint32_t except, StreamState& waiting) {
  for (uint16_t left = stream.unjoined; left != 0; left &= static_cast<uint16_t>(left - 1)) {
    const auto index = static_cast<uint32_t>(std::countr_zero(left));
    if (index != except) TESSERA_RETURN_IF_ERROR(join_lane(stream, index, waiting));
  }
  return CUDA_SUCCESS;
}

CUresult Coherence::join_related(StreamState& stream) {
  if (world_.unjoined_streams == 0 || stream.kind == StreamState::Kind::kNonBlocking) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  world_.streams.for_each([&](StreamState& other) {
    if (result == CUDA_SUCCESS && other.unjoined != 0 && stream.synchronizes_with(other)) {
      result = join_lanes(other, kNoWorker, other.reachable() ? other : stream);
    }
  });
  return result;
}

CUresult Coherence::join(StreamState& stream) {
  TESSERA_RETURN_IF_ERROR(join_related(stream));
  return join_lanes(stream, kNoWorker);
}

CUresult Coherence::join_other_workers(StreamState& stream, uint32_t except) {
  TESSERA_RETURN_IF_ERROR(join_related(stream));
  return join_lanes(stream, except);
}

CUresult Coherence::join_all() {
  if (world_.unjoined_streams == 0) return CUDA_SUCCESS;
  CUcontext current = nullptr;
  TESSERA_RETURN_IF_ERROR(driver().cuCtxGetCurrent(&current));
  CUresult result = CUDA_SUCCESS;
  StreamState* mine = nullptr;  // made before the walk, which it would disturb
  if (world_.streams.any_unreachable()) mine = &world_.streams.get(CU_STREAM_PER_THREAD);
  world_.streams.for_each([&](StreamState& stream) {
    if (result != CUDA_SUCCESS || stream.context != current) return;
    result = join_lanes(stream, kNoWorker, stream.reachable() ? stream : *mine);
  });
  return result;
}

void Coherence::mark_joined(StreamState& stream, uint32_t worker) {
  stream.unjoined &= static_cast<uint16_t>(~(1u << worker));
  if (stream.unjoined == 0) --world_.unjoined_streams;
}

void Coherence::mark_unjoined(StreamState& stream, uint32_t worker) {
  if (stream.unjoined == 0) ++world_.unjoined_streams;
  stream.unjoined |= static_cast<uint16_t>(1u << worker);
}

CUresult Coherence::gate(StreamState& stream, WorkerLink& worker, uint32_t* start) {
  const int index = worker.wait_for_lane(stream);
  if (index < 0) return CUDA_ERROR_LAUNCH_TIMEOUT;
  Lane& lane = worker.lane(index);
  const uint64_t now = activity().total();
  *start = 0;
  if (lane.gated && lane.activity == now) return CUDA_SUCCESS;
  uint32_t value = lane.start + 1;
  if (value == 0) value = 1;  // 0 says "no wait"
  TESSERA_RETURN_IF_ERROR(driver().cuStreamWriteValue32_v2(stream.handle, worker.start_flag(index), value, 0));
  lane.start = *start = value;
  lane.activity = now;
  lane.gated = true;
  return CUDA_SUCCESS;
}

bool Coherence::finished(const Touch& touch) {
  WorkerLink* worker = world_.worker(touch.worker);
  return worker == nullptr || worker->finished(touch.lane, touch.serial);
}

CUresult Coherence::wait_for_touch(StreamState& stream, const Touch& touch) {
  if (touch.none() || stream.lanes[touch.worker] == static_cast<int16_t>(touch.lane) || finished(touch)) {
    return CUDA_SUCCESS;  // the lane's own stream is ordered by the lane itself, or by its join
  }
  WorkerLink& worker = *world_.worker(touch.worker);
  const Lane& lane = worker.lane(touch.lane);
  if (static_cast<int32_t>(lane.requested - touch.serial) < 0 && worker.join(touch.lane, 0, {}) == 0) {
    return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return wait_for(stream, worker, touch.lane, touch.serial);
}

CUresult Coherence::wait_for_touches(StreamState& stream, std::span<const Range> ranges) {
  std::vector<Touch> touches;
  for (const Range& range : ranges) {
    world_.directory.for_each(range, [&](Range, const Replicas& replicas) {
      if (!replicas.touch.none()) touches.push_back(replicas.touch);
    });
  }
  for (size_t i = 0; i < touches.size(); ++i) {
    if (i == 0 || !(touches[i] == touches[i - 1])) TESSERA_RETURN_IF_ERROR(wait_for_touch(stream, touches[i]));
  }
  return CUDA_SUCCESS;
}

CUresult Coherence::push(StreamState& stream, uint32_t index, std::vector<Range>& ranges) {
  WorkerLink* worker = world_.worker(index);
  if (worker == nullptr) {
    world_.fail(CUDA_ERROR_LAUNCH_FAILED);  // what only it has is lost; an earlier failure stays the one that is told
    return world_.failure();
  }
  memory::normalize(ranges);
  uint32_t start = 0;
  TESSERA_RETURN_IF_ERROR(gate(stream, *worker, &start));
  const int lane = stream.lanes[index];
  const uint32_t serial = worker->join(lane, start, ranges);
  if (serial == 0) return CUDA_ERROR_LAUNCH_TIMEOUT;
  mark_unjoined(stream, index);
  const Touch touch{static_cast<uint16_t>(index), static_cast<uint16_t>(lane), serial};
  for (const Range& range : ranges) world_.directory.copied(range, kHome, touch);
  return CUDA_SUCCESS;
}

CUresult Coherence::bring_home(StreamState& stream, std::span<const Range> ranges) {
  TESSERA_RETURN_IF_ERROR(wait_for_touches(stream, ranges));
  std::vector<Range> away[TS_MAX_DEVICES];
  uint32_t holders = 0;
  for (const Range& range : ranges) {
    world_.directory.for_each(range, [&](Range piece, const Replicas& replicas) {
      if (replicas.valid_on(kHome)) return;
      const auto holder = static_cast<uint32_t>(std::countr_zero(replicas.valid));
      away[holder].push_back(piece);
      holders |= 1u << holder;
    });
  }
  for (; holders != 0; holders &= holders - 1) {
    const auto holder = static_cast<uint32_t>(std::countr_zero(holders));
    TESSERA_RETURN_IF_ERROR(push(stream, holder, away[holder]));
  }
  return CUDA_SUCCESS;
}

CUresult Coherence::bring_all_home(StreamState& stream) {
  std::vector<Range> all;
  world_.directory.for_each([&](Range range, const Replicas&) { all.push_back(range); });
  return bring_home(stream, all);
}

CUresult Coherence::before_home(StreamState& stream, const Footprint& footprint) {
  TESSERA_RETURN_IF_ERROR(join_related(stream));
  if (world_.directory.intervals() >= kSettleAt) settle();
  if (footprint.everything) {
    TESSERA_RETURN_IF_ERROR(bring_all_home(stream));
  } else {
    TESSERA_RETURN_IF_ERROR(bring_home(stream, footprint.reads));
    TESSERA_RETURN_IF_ERROR(footprint.may_keep ? bring_home(stream, footprint.writes)
                                               : wait_for_touches(stream, footprint.writes));
  }
  return join_lanes(stream, kNoWorker);
}

void Coherence::after_home(const Footprint& footprint) {
  std::vector<Range> written = footprint.writes;
  if (footprint.everything) {
    world_.directory.for_each([&](Range range, const Replicas&) { written.push_back(range); });
  }
  std::vector<std::pair<Range, Touch>> changed;
  for (const Range& range : written) {
    world_.directory.for_each(range, [&](Range piece, const Replicas& replicas) {
      // A touch that has not ended still has to be waited for: by users that are ordered after it only by this claim.
      if (replicas != Replicas{}) changed.emplace_back(piece, finished(replicas.touch) ? Touch{} : replicas.touch);
    });
  }
  for (const auto& [piece, touch] : changed) world_.directory.written(piece, kHome, touch);
  world_.rest();
}

CUresult Coherence::wait_for_other_streams(StreamState& stream) {
  if (!HomePass::drain()) return CUDA_ERROR_LAUNCH_TIMEOUT;
  std::vector<CUstream> others;
  bool through_legacy = false;
  activity().for_each([&](CUstream handle, size_t slot, uint64_t count) {
    const bool same = handle == stream.handle && handle != CU_STREAM_PER_THREAD;  // a handle of every thread
    if (same || stream.seen[slot] == count) return;
    stream.seen[slot] = count;
    const bool special = handle == CU_STREAM_PER_THREAD || handle == CU_STREAM_LEGACY;
    if (!special && world_.streams.get(handle).kind == StreamState::Kind::kNonBlocking) {
      others.push_back(handle);
    } else {
      through_legacy = true;  // the legacy stream waits for every blocking stream, other threads' own ones too
    }
  });
  if (through_legacy && stream.kind != StreamState::Kind::kLegacy) others.push_back(CU_STREAM_LEGACY);
  for (CUstream handle : others) {
    StreamState& other = world_.streams.get(handle);
    if (other.context != stream.context) continue;  // other contexts' streams share no memory of the slot
    TESSERA_RETURN_IF_ERROR(join(other));
    if (stream.barrier == nullptr) TESSERA_RETURN_IF_ERROR(own_events().ordering(&stream.barrier));
    TESSERA_RETURN_IF_ERROR(driver().cuEventRecord(stream.barrier, handle));
    TESSERA_RETURN_IF_ERROR(driver().cuStreamWaitEvent(stream.handle, stream.barrier, 0));
    activity().bump(stream.handle);
  }
  return CUDA_SUCCESS;
}

/// A thread that gives its per-thread stream nothing more never joins it.
void Coherence::settle_joins() {
  if (world_.unjoined_streams == 0) return;
  world_.streams.for_each([&](StreamState& stream) {
    for (uint16_t left = stream.unjoined; left != 0; left &= static_cast<uint16_t>(left - 1)) {
      const auto index = static_cast<uint32_t>(std::countr_zero(left));
      WorkerLink* worker = world_.worker(index);
      if (worker == nullptr) continue;
      const Lane& lane = worker->lane(stream.lanes[index]);
      if (lane.requested == lane.serial && worker->finished(static_cast<uint16_t>(stream.lanes[index]), lane.serial)) {
        mark_joined(stream, index);
      }
    }
  });
}

void Coherence::settle() {
  world_.check_workers();  // a failed worker ends its operations by force: first the failure, then the ends
  world_.directory.settle([&](const Touch& touch) { return finished(touch); });
  settle_joins();
  world_.rest();
}

}  // namespace tessera::shim
