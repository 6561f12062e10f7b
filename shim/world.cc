// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>

#include "driver.h"
#include "seams.h"

namespace tessera::shim {

namespace detail {

constinit LaunchPointers launch_pointers;

/// Never destroyed: threads of the program may still call while it exits.
World& first_world() {
  static World* first = new World;
  World* none = nullptr;
  launch_pointers.world.compare_exchange_strong(none, first, std::memory_order_acq_rel);
  return *launch_pointers.world.load(std::memory_order_acquire);
}

}  // namespace detail

void process_forked() {
  // Another thread may have been in the middle of anything, and nothing of it is this process's.
  detail::launch_pointers.world.store(new World, std::memory_order_release);
}

bool World::wake() {
  if (!calm_.load(std::memory_order_relaxed)) return true;
  calm_.store(false, std::memory_order_seq_cst);
  if (HomePass::drain()) return true;
  calm_.store(true, std::memory_order_seq_cst);
  return false;
}

void World::rest() {
  if (!kept_awake_ && !recorded_ && unjoined_streams == 0 && directory.quiet()) {
    calm_.store(true, std::memory_order_seq_cst);
  }
}

void World::record(bool wanted) {
  recorded_ = wanted;
  rest();
}

void World::fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  failure_.compare_exchange_strong(none, error, std::memory_order_acq_rel);
}

bool World::is_in_flight(std::span<const Range> ranges) const {
  return std::any_of(in_flight.begin(), in_flight.end(),
                     [&](const std::vector<Range>& copy) { return memory::overlap(copy, ranges); });
}

void World::forgive() {
  const bool attached =
      std::any_of(workers.begin(), workers.end(), [](const auto& worker) { return worker != nullptr; });
  if (!attached) failure_.store(CUDA_SUCCESS, std::memory_order_release);
}

bool World::detach_worker(uint32_t index) {
  if (index >= workers.size() || workers[index] == nullptr) return false;
  workers[index]->close();
  detached_.push_back(std::move(workers[index]));
  streams.for_each([&](StreamState& stream) {
    stream.lanes[index] = -1;
    if (stream.unjoined == 1u << index) --unjoined_streams;
    stream.unjoined &= static_cast<uint16_t>(~(1u << index));
  });
  return directory.lost(index) != 0;
}

void World::check_workers() {
  for (const auto& worker : workers) {
    if (worker == nullptr) continue;
    if (const CUresult error = worker->error(); error != CUDA_SUCCESS) fail(error);
  }
}

bool is_capturing(CUstream stream) {
  if (world().captures.load(std::memory_order_acquire) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // An error (a legacy stream during a capture elsewhere) is the driver's to report, at the call itself.
  return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace tessera::shim
