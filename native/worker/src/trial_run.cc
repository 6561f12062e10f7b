// SPDX-License-Identifier: Apache-2.0
#include "trial_run.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "attributes.h"
#include "launch_call.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/status.h"

namespace tessera::worker {
namespace {

using transport::RingMessage;
using transport::SharedMemory;
using transport::Status;
using transport::TransportError;
using Clock = std::chrono::steady_clock;

[[noreturn]] void break_off(const std::string& text) { throw TransportError(Status::kCorrupt, text); }

/// A copy of the launch message, which the program can change no more, and what it says.
struct Request {
  std::vector<uint64_t> bytes;
  RingMessage message;
};

void read_request(const SharedMemory& memory, Request& request) {
  ts_ring_header header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (header.size < sizeof(ts_ring_launch) || header.size > TS_TRIAL_DATA || header.type != TS_RING_LAUNCH) {
    break_off("a trial without a launch");
  }
  request.bytes.resize((header.size + 7) / 8);
  std::memcpy(request.bytes.data(), memory.data(), header.size);
  std::string why;
  const auto* data = reinterpret_cast<const std::byte*>(request.bytes.data());
  if (!transport::parse_ring_message(data, header.size, &request.message, &why)) break_off(why);
}

std::vector<uint64_t> granules_of(std::span<const ts_ring_range> ranges, const Slot& slot) {
  std::vector<uint64_t> granules;
  for (const ts_ring_range& range : ranges) {
    if (!slot.contains(range.begin, range.end)) break_off("a range lies outside the slot");
    const auto [first, end] = slot.touched(range.begin, range.end);
    for (uint64_t granule = first; granule < end; ++granule) granules.push_back(slot.address_of(granule));
  }
  std::sort(granules.begin(), granules.end());
  granules.erase(std::unique(granules.begin(), granules.end()), granules.end());
  return granules;
}

}  // namespace

TrialRunner::TrialRunner(const Device& device) : device_(device), driver_(device.driver()) {
  driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

TrialRunner::~TrialRunner() {
  unmap();
  driver_.note(driver_.cuStreamDestroy_v2(stream_), "cuStreamDestroy");
}

void TrialRunner::take_slot(const Slot& slot) {
  if (slot.base == slot_.base && slot.size == slot_.size) return;
  if (slot.base % TS_GRANULE != 0 || slot.size % TS_GRANULE != 0 || slot.size == 0) break_off("no slot");
  addresses_ = Reservation();
  addresses_ = Reservation(device_, slot.base, slot.size);
  slot_ = slot;
}

void TrialRunner::map(const std::vector<uint64_t>& granules, uint8_t poison) {
  for (size_t i = 0; i < granules.size();) {
    size_t end = i + 1;
    while (end < granules.size() && granules[end] == granules[end - 1] + TS_GRANULE) ++end;
    const uint64_t bytes = (end - i) * TS_GRANULE;
    MemoryHandle::create(device_, bytes).map(device_, granules[i], bytes);
    mapped_.push_back({granules[i], bytes});
    driver_.check(driver_.cuMemsetD8Async(granules[i], poison, bytes, stream_), "cuMemsetD8Async");
    i = end;
  }
}

void TrialRunner::unmap() {
  for (const Piece& piece : mapped_) driver_.note(driver_.cuMemUnmap(piece.address, piece.bytes), "cuMemUnmap");
  mapped_.clear();
}

/// What may be read gets its content.
void TrialRunner::fill(std::span<const ts_ring_range> ranges, const std::vector<uint64_t>& granules,
                       const uint8_t* before) const {
  for (const ts_ring_range& range : ranges) {
    if ((range.flags & TS_RANGE_PULL) == 0) continue;
    for (uint64_t at = range.begin; at < range.end;) {
      const uint64_t granule = at / TS_GRANULE * TS_GRANULE;
      const uint64_t stop = std::min(range.end, granule + TS_GRANULE);
      const auto place = std::lower_bound(granules.begin(), granules.end(), granule) - granules.begin();
      const uint8_t* source = before + static_cast<uint64_t>(place) * TS_GRANULE + (at - granule);
      driver_.check(driver_.cuMemcpyHtoDAsync_v2(at, source, stop - at, stream_), "cuMemcpyHtoDAsync");
      at = stop;
    }
  }
}

void TrialRunner::finish(const char* what) const {
  CUresult state = CUDA_ERROR_NOT_READY;
  while ((state = driver_.cuStreamQuery(stream_)) == CUDA_ERROR_NOT_READY) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  driver_.check(state, what);
}

TrialOutcome TrialRunner::wait(std::chrono::milliseconds timeout, const std::function<bool()>& gone) const {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const CUresult state = driver_.cuStreamQuery(stream_);
    if (state == CUDA_SUCCESS) return {TS_TRIAL_RAN, state, ""};
    if (state == CUDA_ERROR_LAUNCH_TIMEOUT) return {TS_TRIAL_ENDLESS, state, "it did not end"};
    if (state != CUDA_ERROR_NOT_READY) return {TS_TRIAL_FAULT, state, driver_.error_name(state)};
    if (Clock::now() > deadline || gone()) {
      return {TS_TRIAL_ENDLESS, state, "it did not end within " + std::to_string(timeout.count()) + " ms"};
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

TrialOutcome TrialRunner::run(const ts_trial_run& request, transport::UniqueFd fd, const LoadRequest& function,
                              const std::function<bool()>& gone) {
  const SharedMemory memory = SharedMemory::map(std::move(fd), request.size);
  if (request.size < TS_TRIAL_DATA) break_off("a trial without room for a launch");
  Request wanted;
  read_request(memory, wanted);
  const RingMessage& message = wanted.message;
  try {
    if (const std::string objection = attribute_objection(message.attributes); !objection.empty()) {
      return {TS_TRIAL_CANNOT, CUDA_ERROR_NOT_SUPPORTED, objection};
    }
    take_slot({request.arena_base, request.arena_size});
    const std::vector<uint64_t> granules = granules_of(message.ranges, slot_);
    const uint64_t half = granules.size() * TS_GRANULE;
    if (request.size - TS_TRIAL_DATA < 2 * half) break_off("a trial without room for its memory");
    auto* const before = memory.as<uint8_t>() + TS_TRIAL_DATA;
    unmap();
    map(granules, static_cast<uint8_t>(request.poison));
    fill(message.ranges, granules, before);
    finish("filling the memory of a trial");
    launch_kernel(driver_, stream_, message, function);
    const TrialOutcome outcome = wait(std::chrono::milliseconds(request.timeout_ms), gone);
    if (outcome.kind != TS_TRIAL_RAN) return outcome;
    for (size_t i = 0; i < granules.size(); ++i) {
      driver_.check(driver_.cuMemcpyDtoHAsync_v2(before + half + i * TS_GRANULE, granules[i], TS_GRANULE, stream_),
                    "cuMemcpyDtoHAsync");
    }
    finish("reading the memory of a trial");
    unmap();
    return outcome;
  } catch (const DriverError& error) {
    unmap();
    return {TS_TRIAL_CANNOT, error.code(), error.what()};
  }
}

}  // namespace tessera::worker
