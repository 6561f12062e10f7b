// SPDX-License-Identifier: Apache-2.0
// What comes by the ring. A message that cannot be carried out yet stays at the
// ring's tail (kHold) and is tried again; until its last step nothing of it that
// could not be repeated has been done.
#include <cstring>
#include <thread>

#include "attributes.h"
#include "launch_call.h"
#include "log.h"
#include "session.h"

namespace tessera::worker {
namespace {

using transport::RingMessage;
using transport::Status;
using transport::TransportError;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 64;
// The driver blocks, and with it every thread that launches, when a queue of about 1,000 entries is full. Behind a wait
// that has not come true a stream gets no more than this.
constexpr uint32_t kDeepest = 256;

[[noreturn]] void break_off(const std::string& text) { throw TransportError(Status::kCorrupt, text); }

}  // namespace

bool Session::drain_ring() {
  RingMessage message;
  for (int i = 0; i < kBatch; ++i) {
    const Status status = ring_.peek(&message);
    if (status == Status::kCorrupt) break_off(ring_.error());
    if (status == Status::kEmpty) return i != 0;
    if (carry_out(message) == Outcome::kHold) return i != 0;
    hold_ = Hold::kNone;
    ring_.pop();
  }
  return true;
}

Session::Outcome Session::hold(Hold reason) {
  if (hold_ != reason) hold_since_ = Clock::now();
  hold_ = reason;
  return Outcome::kHold;
}

Session::Outcome Session::carry_out(const RingMessage& message) {
  const ts_ring_header& header = message.header;
  if (header.sequence > last_sequence_) {
    if (hold_ == Hold::kSocket && Clock::now() - hold_since_ > worker_.timing.timeout) {
      break_off("message " + std::to_string(header.sequence) + " was announced and did not come");
    }
    return hold(Hold::kSocket);
  }
  if (!apply_chunks(header.sequence)) return hold(Hold::kMemory);
  switch (header.type) {
    case TS_RING_LAUNCH:
      return launch(message);
    case TS_RING_JOIN:
      return join(message);
    case TS_RING_RELEASE:
      release(message);
      return Outcome::kDone;
    case TS_RING_EVICT:
      evict(message);
      return Outcome::kDone;
    case TS_RING_CLOSE_LANE:
      lanes_.close(header.lane);
      return Outcome::kDone;
    default:
      break_off("ring message " + std::to_string(header.type) + " is unknown");
  }
}

/// Maps the chunks announced up to `sequence`. False while one lies where another is still being released.
bool Session::apply_chunks(uint64_t sequence) {
  while (!pending_chunks_.empty() && pending_chunks_.front().sequence <= sequence) {
    const PendingChunk& chunk = pending_chunks_.front();
    if (const std::string objection = chunks_.objection(chunk.address, chunk.size); !objection.empty()) {
      break_off("a chunk " + objection);
    }
    if (chunks_.releasing(chunk.address, chunk.size)) return false;
    chunks_.add(chunk.address, chunk.size, chunk.memory);
    pending_chunks_.pop_front();
  }
  return true;
}

/// Whether the lane's stream may be given a wait for `start` and more work behind it.
bool Session::ready_to_wait(uint32_t lane, uint32_t start) {
  if (start == 0) return true;
  if (!lanes_.waits().grows(lane, start)) break_off("a start value of lane " + std::to_string(lane) + " goes back");
  if (lanes_.waits().has_come(lane, start)) return true;
  return !worker_.gate.closed() && lanes_.queued(lane) < kDeepest;
}

/// Null while it is still being loaded.
const LoadRequest* Session::ready_function(uint32_t number) {
  if (number >= functions_.size() || functions_[number].request == nullptr) {
    break_off("function " + std::to_string(number) + " was never announced");
  }
  const LoadRequest& request = *functions_[number].request;
  if (!request.done.load()) return nullptr;
  if (request.status != CUDA_SUCCESS) throw DriverError(request.status, request.name + ": " + request.text);
  return &request;
}

Session::Outcome Session::launch(const RingMessage& message) {
  const ts_ring_header& header = message.header;
  const LoadRequest* function = ready_function(message.launch.function);
  if (function == nullptr) return hold(Hold::kFunction);
  if (const std::string objection = attribute_objection(message.attributes); !objection.empty()) {
    throw DriverError(CUDA_ERROR_NOT_SUPPORTED, function->name + ": " + objection);
  }
  if (function->driver_parameter_size != 0 && message.launch.parameter_size > function->driver_parameter_size) {
    throw DriverError(CUDA_ERROR_INVALID_VALUE, function->name + ": too many parameter bytes");
  }
  for (const ts_ring_range& range : message.ranges) {
    if (!chunks_.cover(range.begin, range.end)) break_off(function->name + ": a range lies outside home's chunks");
  }
  if (!map_ranges(message.ranges)) return hold(Hold::kMemory);
  const ts_blas_call* call = blas_call(message, *function);
  std::atomic<int>& high_water = device_.local_memory_high_water();
  const bool waits_for_device = call != nullptr ? function->blas->is_new(*call) : function->local_bytes > high_water;
  if (waits_for_device && !ready_alone(header)) return hold(Hold::kExclusive);
  high_water.store(std::max(high_water.load(), function->local_bytes));
  if (!ready_to_wait(header.lane, header.start)) return hold(Hold::kStart);
  if (header.start != 0 && !lanes_.wait_start(header.lane, header.start)) return hold(Hold::kStart);
  const CUstream stream = lanes_.stream(header.lane);
  lanes_.submitted(header.lane, static_cast<uint32_t>(message.ranges.size()) + 3, &function->name);
  pull(stream, message);
  samples_.before(message.launch.counter_slot, stream);
  if (call != nullptr) {
    function->blas->enqueue(stream, header.lane, *call);
  } else {
    launch_kernel(driver_, stream, message, *function);
  }
  samples_.after(stream);
  counters_.add(&ts_worker_counters::launches, 1);
  worker_.status.add_launch();
  closing_.reset();
  return Outcome::kDone;
}

/// Maps what is missing. False while memory has to come free first.
bool Session::map_ranges(std::span<const ts_ring_range> ranges) {
  uint64_t mapped = 0;
  bool complete = true;
  for (const ts_ring_range& range : ranges) {
    reclaims_.keep(range.begin, range.end);
    while (complete && !mirror_.map(chunks_, range.begin, range.end, &mapped)) complete = make_room();
  }
  if (mapped != 0) counters_.add(&ts_worker_counters::bytes_mapped, mapped);
  return complete;
}

/// True when memory came free at once, false when it will once streams have gone on. Throws when there is none.
bool Session::make_room() {
  if (reclaims_.pending()) {
    reclaims_.poll();
    return !reclaims_.pending();
  }
  if (mirror_.can_compact()) {
    lanes_.poll();
    if (!lanes_.idle()) return false;
    const CUstream stream = lanes_.stream(0);
    mirror_.compact(stream, [this, stream] {
      CUresult state = CUDA_ERROR_NOT_READY;
      while ((state = driver_.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      driver_.check(state, "moving mirrored data");
    });
    return true;
  }
  throw DriverError(CUDA_ERROR_OUT_OF_MEMORY, "mirrored data would take more than the budget of " +
                                                  std::to_string(worker_.status.budget() >> 20) + " MiB (" +
                                                  std::to_string(worker_.status.memory_used() >> 20) +
                                                  " MiB are in use)");
}

/// The first kernel with more local memory than any before makes the driver wait for an idle device, and so may a
/// library that loads kernels: such a launch goes out when no stream waits for a flag, or after our patience all the
/// same.
bool Session::ready_alone(const ts_ring_header& header) {
  if (!closing_) closing_.emplace(worker_.gate);
  const bool started = header.start == 0 || lanes_.waits().has_come(header.lane, header.start);
  const bool patient = hold_ != Hold::kExclusive || Clock::now() - hold_since_ < worker_.timing.patience;
  if (!(started && closing_->clear()) && patient) return false;
  if (!started) closing_.reset();  // out of patience: our own wait has to get through
  return true;
}

/// The call that a launch of a library stands for; null for a kernel's.
const ts_blas_call* Session::blas_call(const RingMessage& message, const LoadRequest& function) const {
  if (function.blas == nullptr) return nullptr;
  if (message.parameters.size() != sizeof(ts_blas_call)) break_off("a library's call has another size");
  const auto* call = reinterpret_cast<const ts_blas_call*>(message.parameters.data());
  if (const std::string objection = function.blas->objection(*call); !objection.empty()) {
    throw DriverError(CUDA_ERROR_INVALID_VALUE, std::string(blas_function_name(call->function)) + ": " + objection);
  }
  return call;
}

void Session::pull(CUstream stream, const RingMessage& message) {
  uint64_t bytes = 0, pulls = 0;
  for (const ts_ring_range& range : message.ranges) {
    if ((range.flags & TS_RANGE_PULL) == 0) continue;
    const uint64_t size = range.end - range.begin;
    driver_.check(driver_.cuMemcpyDtoDAsync_v2(range.begin, chunks_.alias(range.begin), size, stream), "pulling data");
    bytes += size;
    ++pulls;
  }
  if (pulls == 0) return;
  counters_.add(&ts_worker_counters::pulls, pulls);
  counters_.add(&ts_worker_counters::bytes_pulled, bytes);
  worker_.status.add_pulled(bytes);
}

Session::Outcome Session::join(const RingMessage& message) {
  const ts_ring_header& header = message.header;
  for (const ts_ring_range& range : message.ranges) {
    if (!chunks_.cover(range.begin, range.end)) break_off("a range to push lies outside home's chunks");
    if (!mirror_.is_mapped(range.begin, range.end)) break_off("a range to push was never here");
  }
  if (!ready_to_wait(header.lane, header.start)) return hold(Hold::kStart);
  if (header.start != 0 && !lanes_.wait_start(header.lane, header.start)) return hold(Hold::kStart);
  const CUstream stream = lanes_.stream(header.lane);
  lanes_.submitted(header.lane, static_cast<uint32_t>(message.ranges.size()), nullptr);
  uint64_t bytes = 0;
  for (const ts_ring_range& range : message.ranges) {
    const uint64_t size = range.end - range.begin;
    driver_.check(driver_.cuMemcpyDtoDAsync_v2(chunks_.alias(range.begin), range.begin, size, stream), "pushing data");
    bytes += size;
  }
  lanes_.write_done(header.lane, header.value);
  counters_.add(&ts_worker_counters::joins, 1);
  counters_.add(&ts_worker_counters::pushes, message.ranges.size());
  counters_.add(&ts_worker_counters::bytes_pushed, bytes);
  worker_.status.add_pushed(bytes);
  return Outcome::kDone;
}

void Session::release(const RingMessage& message) {
  for (const ts_ring_range& range : message.ranges) {
    if (!chunks_.are_whole(range.begin, range.end)) break_off("what is to be released is not made of whole chunks");
    chunks_.begin_release(range.begin, range.end);  // so that none is named twice
  }
  lanes_.poll();  // streams that are idle need no event
  reclaims_.release(message.ranges);
  reclaims_.poll();
}

void Session::evict(const RingMessage& message) {
  uint64_t granules = 0;
  for (const ts_ring_range& range : message.ranges) {
    if (!slot_.contains(range.begin, range.end) || !slot_.aligned(range.begin, range.end)) {
      break_off("what is to be evicted is not made of whole granules of the slot");
    }
    const auto [first, end] = slot_.touched(range.begin, range.end);
    granules += end - first;
  }
  lanes_.poll();
  reclaims_.evict(message.ranges);
  reclaims_.poll();
  counters_.add(&ts_worker_counters::evictions, granules);
}

}  // namespace tessera::worker
