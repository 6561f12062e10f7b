// SPDX-License-Identifier: Apache-2.0
#include "redirect.h"

#include <algorithm>

#include "architecture.h"
#include "driver.h"
#include "log.h"
#include "order.h"
#include "session.h"
#include "tessera/access/summary.h"

namespace tessera::shim {
namespace {

using memory::kHome;
using memory::Replicas;
using memory::Touch;

/// Attributes that mean on the worker what they mean at home.
bool carries_over(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return true;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return attribute.value.cooperative == 0;
    default:
      return false;
  }
}

/// Whether home's driver would take the cluster of this launch.
bool cluster_is_valid(const LaunchRequest& request, const KernelState& state) {
  constexpr uint32_t kPortable = 8;  // blocks of a cluster that every device with clusters can hold
  constexpr uint32_t kFirstWithClusters = 90;
  uint32_t size[3] = {state.required_cluster()[0], state.required_cluster()[1], state.required_cluster()[2]};
  for (const CUlaunchAttribute& attribute : request.attributes) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& wanted = attribute.value.clusterDim;
    const bool differs = size[0] != 0 && (size[0] != wanted.x || size[1] != wanted.y || size[2] != wanted.z);
    if (differs || wanted.x == 0 || wanted.y == 0 || wanted.z == 0) return false;
    size[0] = wanted.x, size[1] = wanted.y, size[2] = wanted.z;
  }
  if (size[0] == 0) return true;  // no clusters
  return state.home_architecture() >= kFirstWithClusters && uint64_t{size[0]} * size[1] * size[2] <= kPortable &&
         request.grid[0] % size[0] == 0 && request.grid[1] % size[1] == 0 && request.grid[2] % size[2] == 0;
}

/// Whether function, stream and thread belong to one context: to the driver all else is an error.
bool in_one_context(const LaunchRequest& request, const KernelState& state) {
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
  const CUcontext own = state.entry()->context();
  return (own == nullptr || own == current) && world().streams.get(request.stream).context == current;
}

Redirection stay(uint32_t reason) { return {false, CUDA_SUCCESS, reason}; }

/// A kernel's launch, as an errand.
class KernelErrand final : public Errand {
 public:
  KernelErrand(const LaunchRequest& request, KernelState& state, Tally& tally, std::span<const uint8_t> parameters)
      : request_(request), state_(state), tally_(tally), parameters_(parameters) {}

  bool load(WorkerLink& worker) override {
    const FunctionEntry& entry = *state_.entry();
    if (state_.on_worker(worker) == KernelState::kNotLoaded) {
      const auto image = entry.image();
      std::string reason = "its image is gone";
      const int64_t number = image == nullptr
                                 ? KernelState::kRefused
                                 : worker.load_function(*image, entry.name, entry.parameter_size,
                                                        entry.max_dynamic_shared, entry.shared_carveout, &reason);
      if (number < 0) {
        log_line(LogLevel::kWarn, "%s stays home: %s cannot run it (%s)", entry.name.c_str(), worker.name().c_str(),
                 reason.c_str());
      }
      state_.set_on_worker(worker, number);
    }
    return state_.on_worker(worker) >= 0;
  }

  bool send(WorkerLink& worker, int lane, uint32_t start, std::span<const ts_ring_range> ranges) override {
    const WorkerLink::Kernel kernel{static_cast<uint32_t>(state_.on_worker(worker)),
                                    tally_.slot(),
                                    request_.grid,
                                    request_.block,
                                    request_.dynamic_shared,
                                    parameters_,
                                    request_.attributes};
    return worker.launch(lane, start, ranges, kernel);
  }

  void count_bytes_in(uint32_t device, uint64_t bytes) override { tally_.count_bytes_in(device, bytes); }

 private:
  const LaunchRequest& request_;
  KernelState& state_;
  Tally& tally_;
  std::span<const uint8_t> parameters_;
};

/// One attempt to move one errand; its steps in the order in which they happen.
class Move {
 public:
  Move(CUstream stream, WorkerLink& worker, const Claims& claims, Errand& errand)
      : errand_(errand), worker_(worker), claims_(claims), coherence_(world()), stream_(world().streams.get(stream)) {}

  Redirection run() {
    // Behind an operation that may wait for others it could itself be what they wait for, unseen by the program.
    if (world().host_waits.unfinished_in(stream_)) return stay(TS_STAY_WORKER);
    if (!errand_.load(worker_) || worker_.lane_of(stream_) < 0 || !make_room()) return stay(TS_STAY_WORKER);
    if (!worker_.send_chunks(world().memory, claims_.all)) return stay(TS_STAY_WORKER);
    // Its bounds claim more than it touches, so it is ordered behind all other streams: never behind what may wait for
    // the host, which may be waiting for this very launch.
    if (!claims_.exact && (activity().overflowed() || world().host_waits.unfinished_beside(stream_))) {
      return stay(TS_STAY_WORKER);
    }
    if (!world().wake()) return stay(TS_STAY_WORKER);
    uint32_t start = 0;
    CUresult result = order();
    if (result == CUDA_SUCCESS) result = coherence_.gate(stream_, worker_, &start);
    if (result != CUDA_SUCCESS) return {true, result, 0};
    collect_pulls();
    if (!send(start)) {
      world().rest();
      return stay(TS_STAY_WORKER);
    }
    record();
    return {true, CUDA_SUCCESS, 0};
  }

 private:
  /// Memory on the worker for what it does not hold yet: clean granules go first, dirty ones are brought home.
  bool make_room() {
    if (!worker_.could_hold(claims_.all)) return false;
    const size_t missing = worker_.missing_granules(claims_.all).size();
    if (worker_.has_room_for(missing)) return true;
    for (const uint64_t granule : worker_.eviction_order(claims_.all)) {
      const Range range{granule, granule + TS_GRANULE};
      if (!evict(range)) return false;
      if (worker_.has_room_for(missing)) return true;
    }
    return false;
  }

  bool evict(Range range) {
    std::vector<Range> only_there;
    world().directory.for_each(range, [&](Range piece, const Replicas& replicas) {
      if (replicas.valid == 1u << worker_.index()) only_there.push_back(piece);
    });
    if (!only_there.empty() && coherence_.bring_home(stream_, only_there) != CUDA_SUCCESS) return false;
    world().directory.dropped(range, worker_.index());
    return worker_.evict(range.begin);
  }

  /// The home stream waits for everything that has to come before this launch.
  CUresult order() {
    const uint32_t index = worker_.index();
    CUresult result = coherence_.join_other_workers(stream_, index);
    if (result == CUDA_SUCCESS) result = coherence_.wait_for_touches(stream_, claims_.all);
    if (result == CUDA_SUCCESS) result = bring_home_from_others();
    if (result == CUDA_SUCCESS) result = coherence_.join_other_workers(stream_, index);
    if (result == CUDA_SUCCESS && !claims_.exact) result = coherence_.wait_for_other_streams(stream_);
    return result;
  }

  CUresult bring_home_from_others() {
    std::vector<Range> elsewhere;
    for (const Range& range : claims_.needed) {
      world().directory.for_each(range, [&](Range piece, const Replicas& replicas) {
        if (!replicas.valid_on(kHome) && !replicas.valid_on(worker_.index())) elsewhere.push_back(piece);
      });
    }
    return elsewhere.empty() ? CUDA_SUCCESS : coherence_.bring_home(stream_, elsewhere);
  }

  void collect_pulls() {
    for (const Range& range : claims_.needed) {
      world().directory.for_each(range, [&](Range piece, const Replicas& replicas) {
        if (replicas.valid_on(worker_.index())) return;
        pulled_.push_back(piece);
        bytes_pulled_ += piece.size();
      });
    }
    memory::normalize(pulled_);
    for (const Range& range : claims_.all) ranges_.push_back({range.begin, range.end, 0});
    for (const Range& range : pulled_) ranges_.push_back({range.begin, range.end, TS_RANGE_PULL});
  }

  bool send(uint32_t start) { return errand_.send(worker_, stream_.lanes[worker_.index()], start, ranges_); }

  void record() {
    const auto index = static_cast<uint16_t>(worker_.index());
    const auto lane = static_cast<uint16_t>(stream_.lanes[index]);
    const Touch touch{index, lane, worker_.lane(lane).serial};
    for (const Range& range : pulled_) world().directory.copied(range, index, touch);
    for (const Range& range : claims_.written) world().directory.written(range, index, touch);
    worker_.hold(claims_.all);
    coherence_.mark_unjoined(stream_, index);
    errand_.count_bytes_in(index, bytes_pulled_);
  }

  Errand& errand_;
  WorkerLink& worker_;
  const Claims& claims_;
  Coherence coherence_;
  StreamState& stream_;
  std::vector<Range> pulled_;
  uint64_t bytes_pulled_ = 0;
  std::vector<ts_ring_range> ranges_;
};

}  // namespace

bool runs_on(const KernelState& state, const ts_device& device) {
  return architecture_runs_on(state.minimum_architecture(), state.only_architecture(), device.compute_capability);
}

uint32_t obstacle_to(const LaunchRequest& request, const KernelState& state, const Claims& claims) {
  if (runtime().unknown_function_seen()) return TS_STAY_UNKNOWN;
  if (!claims.known || !state.entry()->movable()) return TS_STAY_PROPERTY;
  if (!claims.all_in_slot) return TS_STAY_MEMORY;
  if (request.cooperative || !std::all_of(request.attributes.begin(), request.attributes.end(), carries_over)) {
    return TS_STAY_ATTRIBUTES;
  }
  if (!state.surely_valid(request.grid, request.block, request.dynamic_shared)) return TS_STAY_ATTRIBUTES;
  if (!cluster_is_valid(request, state) || !in_one_context(request, state)) return TS_STAY_ATTRIBUTES;
  // While anything is captured, waiting for other streams could become part of the capture.
  if (world().captures.load(std::memory_order_acquire) != 0) return TS_STAY_CAPTURE;
  if (world().is_in_flight(claims.all)) return TS_STAY_MEMORY;
  return TS_STAY_PLACED;
}

Redirection move(CUstream stream, WorkerLink& worker, const Claims& claims, Errand& errand) {
  return Move(stream, worker, claims, errand).run();
}

Redirection redirect(const LaunchRequest& request, KernelState& state, Tally& tally, uint32_t device,
                     const Claims& claims, std::span<const uint8_t> parameters) {
  if (const uint32_t obstacle = obstacle_to(request, state, claims); obstacle != TS_STAY_PLACED) return stay(obstacle);
  // A kernel at home may be looking at what this one writes while both run.
  if (world().host_waits.watched_beside(world().streams.get(request.stream), claims.all)) return stay(TS_STAY_MEMORY);
  WorkerLink* worker = attached_worker(device);
  if (worker == nullptr || !runs_on(state, worker->device())) return stay(TS_STAY_WORKER);
  KernelErrand errand(request, state, tally, parameters);
  return move(request.stream, *worker, claims, errand);
}

}  // namespace tessera::shim
