// SPDX-License-Identifier: Apache-2.0
#include "worker_link.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "coherence.h"
#include "driver.h"
#include "log.h"
#include "runtime.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/transport.h"
#include "world.h"

namespace tessera::shim {
namespace {

using transport::Status;
using transport::UniqueFd;

/// Cyclic comparison: whether `value` has been reached.
bool reached(uint32_t flag, uint32_t value) { return static_cast<int32_t>(flag - value) >= 0; }

uint64_t granule_of(uint64_t address) { return address / TS_GRANULE * TS_GRANULE; }

template <class Visit>
void for_each_granule(std::span<const Range> ranges, Visit&& visit) {
  uint64_t last = UINT64_MAX;
  for (const Range& range : ranges) {
    for (uint64_t granule = granule_of(range.begin); granule < range.end; granule += TS_GRANULE) {
      if (granule != last) visit(granule);
      last = granule;
    }
  }
}

}  // namespace

WorkerLink::WorkerLink(const ts_worker_info& info, uint64_t arena_base, uint64_t arena_size, int counters_fd)
    : index_(info.index), lanes_(TS_LANES) {
  transport::AttachRequest request;
  request.socket = info.socket;
  request.index = info.index;
  request.arena_base = arena_base;
  request.arena_size = arena_size;
  request.counters = counters_fd;
  request.timeout = message_timeout();
  transport_ = transport::attach_shared_memory(request);
  device_ = transport_->attached().device;
  name_ = device_.name;
  driver().cuCtxGetCurrent(&context_);
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  CUresult result = driver().cuMemHostRegister_v2(transport_->lanes(), transport::Transport::kLanesBytes, kFlags);
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemHostGetDevicePointer_v2(&flags_, transport_->lanes(), 0);
    if (result != CUDA_SUCCESS) driver().cuMemHostUnregister(transport_->lanes());
  }
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error("the driver does not register host memory for stream flags (error " +
                             std::to_string(result) + ")");
  }
}

WorkerLink::~WorkerLink() = default;

bool WorkerLink::connected() const { return !transport_->hung_up(); }

CUresult WorkerLink::error(std::string* text) const {
  if (!transport_->failed()) return CUDA_SUCCESS;
  const transport::ChannelFailure failure = transport_->failure();
  if (text != nullptr) *text = failure.text;
  return failure.code == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_FAILED : static_cast<CUresult>(failure.code);
}

bool WorkerLink::give_up() {
  given_up_.store(true, std::memory_order_release);
  bool unfinished = false;
  for (uint32_t i = 0; i < TS_LANES; ++i) {
    const ts_lane& flags = transport_->lanes()[i];
    unfinished = unfinished ||
                 std::atomic_ref(lanes_[i].serial).load() != std::atomic_ref(const_cast<uint32_t&>(flags.done)).load();
  }
  if (unfinished) world().fail(error() != CUDA_SUCCESS ? error() : CUDA_ERROR_LAUNCH_FAILED);
  for (uint32_t i = 0; i < TS_LANES; ++i) {
    std::atomic_ref(transport_->lanes()[i].done).store(std::atomic_ref(lanes_[i].serial).load());
  }
  return unfinished;
}

void WorkerLink::close() {
  given_up_.store(true, std::memory_order_release);
  driver().cuMemHostUnregister(transport_->lanes());
  transport_->leave();
}

int WorkerLink::lane_of(StreamState& stream) {
  if (stream.lanes[index_] >= 0) return stream.lanes[index_];
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    // A retired lane is free again once its last operation has ended.
    if (lane.owner != nullptr || !finished(static_cast<uint16_t>(i), lane.serial)) continue;
    return give_lane(i, stream);
  }
  // More streams than lanes: one whose work there has ended, and that need not be waited for, gives its lane away.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const bool joined = lane.owner != nullptr && (lane.owner->unjoined >> index_ & 1) == 0;
    if (!joined || !finished(static_cast<uint16_t>(i), lane.serial)) continue;
    lane.owner->lanes[index_] = -1;
    return give_lane(i, stream);
  }
  return -1;
}

int WorkerLink::give_lane(size_t number, StreamState& stream) {
  lanes_[number].owner = &stream;
  lanes_[number].gated = false;
  stream.lanes[index_] = static_cast<int16_t>(number);
  return static_cast<int>(number);
}

int WorkerLink::wait_for_lane(StreamState& stream) {
  const auto until = std::chrono::steady_clock::now() + message_timeout();
  int lane = lane_of(stream);
  while (lane < 0 && alive() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    Coherence(world()).settle();
    lane = lane_of(stream);
  }
  return lane;
}

void WorkerLink::retire_lane(int index) {
  Lane& retired = lane(index);
  if (retired.serial != retired.requested) join(index, 0, {});
  retired.owner = nullptr;
}

bool WorkerLink::finished(uint16_t lane, uint32_t serial) const {
  return reached(std::atomic_ref(transport_->lanes()[lane].done).load(std::memory_order_acquire), serial);
}

uint8_t* WorkerLink::reserve(uint64_t bytes) {
  if (!alive() || bytes > transport::kMaxRingMessage) return nullptr;
  void* message = nullptr;
  const Status status = transport_->ring().reserve(static_cast<uint32_t>(bytes), message_timeout(), &message);
  if (status == Status::kOk) return static_cast<uint8_t*>(message);
  log_line(LogLevel::kWarn, "worker %u (%s) takes no message: %s", index_, name_.c_str(), status_name(status));
  return nullptr;
}

void write_launch(uint8_t* at, ts_ring_header header, std::span<const ts_ring_range> ranges,
                  const WorkerLink::Kernel& kernel) {
  static_assert(sizeof(CUlaunchAttribute) == transport::kLaunchAttributeBytes);
  ts_ring_launch message{};
  message.header = header;
  message.header.type = TS_RING_LAUNCH;
  message.header.n_ranges = static_cast<uint32_t>(ranges.size());
  message.function = kernel.function;
  message.counter_slot = kernel.counter_slot;
  std::copy_n(kernel.grid, 3, message.grid);
  std::copy_n(kernel.block, 3, message.block);
  message.dynamic_shared = kernel.dynamic_shared;
  message.parameter_size = static_cast<uint32_t>(kernel.parameters.size());
  message.n_attributes = static_cast<uint32_t>(kernel.attributes.size());
  const auto append = [&](const void* data, size_t size) {
    if (size != 0) std::memcpy(at, data, size);
    at += size;
  };
  append(&message, sizeof message);
  append(ranges.data(), ranges.size_bytes());
  append(kernel.attributes.data(), kernel.attributes.size_bytes());
  append(kernel.parameters.data(), kernel.parameters.size());
}

bool WorkerLink::launch(int index, uint32_t start, std::span<const ts_ring_range> ranges, const Kernel& kernel) {
  uint8_t* at =
      reserve(transport::launch_message_size(ranges.size(), kernel.attributes.size(), kernel.parameters.size()));
  if (at == nullptr) return false;
  ts_ring_header header{};
  header.size = reinterpret_cast<ts_ring_header*>(at)->size;
  header.lane = static_cast<uint32_t>(index);
  header.start = start;
  header.sequence = transport_->sequence();
  write_launch(at, header, ranges, kernel);
  std::atomic_ref(lane(index).serial).fetch_add(1);  // before the worker can end it
  transport_->ring().commit();
  return true;
}

bool WorkerLink::send_ranges(uint16_t type, int index, uint32_t start, uint32_t value, std::span<const Range> ranges) {
  uint8_t* at = reserve(transport::range_message_size(ranges.size()));
  if (at == nullptr) return false;
  ts_ring_header message{};
  message.size = reinterpret_cast<ts_ring_header*>(at)->size;
  message.type = type;
  message.lane = static_cast<uint32_t>(index);
  message.start = start;
  message.sequence = transport_->sequence();
  message.n_ranges = static_cast<uint32_t>(ranges.size());
  message.value = value;
  std::memcpy(at, &message, sizeof message);
  at += sizeof message;
  for (const Range& range : ranges) {
    const ts_ring_range wire{range.begin, range.end, 0};
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  }
  if (type == TS_RING_JOIN) {
    std::atomic_ref(lane(index).serial).store(value);
    std::atomic_ref(transport_->lanes()[index].requested).store(value, std::memory_order_release);
  }
  transport_->ring().commit();
  return true;
}

uint32_t WorkerLink::join(int index, uint32_t start, std::span<const Range> ranges) {
  Lane& joined = lane(index);
  uint32_t serial = joined.serial + 1;
  if (serial == 0) serial = 1;  // 0 says "not sent"
  if (!send_ranges(TS_RING_JOIN, index, start, serial, ranges)) return 0;
  joined.requested = serial;
  return serial;
}

void WorkerLink::release(Range chunk) {
  if (chunks_.erase(chunk.begin) == 0) return;
  send_ranges(TS_RING_RELEASE, 0, 0, 0, {&chunk, 1});
  granules_.erase(granules_.lower_bound(chunk.begin), granules_.lower_bound(chunk.end));
}

bool WorkerLink::send_chunks(const DeviceMemory& memory, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    for (uint64_t at = range.begin; at < range.end;) {
      const auto chunk = memory.chunk_of(at);
      if (!chunk) return false;
      at = chunk->end;
      if (chunks_.contains(chunk->begin)) continue;
      if (world().driver_may_be_held()) return false;
      int exported = -1;
      if (memory.export_chunk(chunk->begin, &exported) != CUDA_SUCCESS) return false;
      const UniqueFd fd(exported);
      try {
        transport_->send_chunk(chunk->begin, chunk->size(), fd.get());
      } catch (const transport::TransportError& error) {
        log_line(LogLevel::kWarn, "worker %u (%s): %s", index_, name_.c_str(), error.what());
        return false;
      }
      chunks_.insert(chunk->begin);
    }
  }
  return true;
}

void WorkerLink::send_image(const Image& image) {
  const ts_image_hash hash = image.hash();
  if (!images_.emplace(hash.low, hash.high).second) return;
  const UniqueFd fd = transport::make_constant("tessera-image", image.bytes().data(), image.bytes().size());
  transport_->send_image(hash, image.bytes().size(), fd.get());
}

int64_t WorkerLink::load_function(const Image& image, const std::string& name, uint32_t parameter_size,
                                  int max_dynamic_shared, int shared_carveout, std::string* reason) {
  try {
    send_image(image);
    transport::FunctionRequest request;
    request.function = next_function_++;
    request.image = image.hash();
    request.parameter_size = parameter_size;
    request.max_dynamic_shared = max_dynamic_shared;
    request.shared_carveout = shared_carveout;
    request.name = name;
    transport_->send_function(request);
    return await_function(request.function, reason);
  } catch (const std::exception& error) {
    *reason = error.what();
  }
  return -1;
}

int64_t WorkerLink::load_library(uint32_t kind, const std::string& path, const std::string& environment,
                                 std::string* reason) {
  try {
    const transport::LibraryRequest request{next_function_++, kind, path, environment};
    transport_->send_library(request);
    return await_function(request.function, reason);
  } catch (const std::exception& error) {
    *reason = error.what();
  }
  return -1;
}

/// Loading may compile a module or open a large library: it gets more time than a message.
int64_t WorkerLink::await_function(uint32_t number, std::string* reason) {
  const auto ready = transport_->receive_function_ready(message_timeout() * 6);
  if (ready && ready->function == number && ready->status == CUDA_SUCCESS) return number;
  *reason = ready ? ready->text : "no answer in time";
  return -1;
}

bool WorkerLink::has_room_for(size_t granules) {
  constexpr auto kAskAgain = std::chrono::milliseconds(100);
  const uint64_t needed = (granules_.size() + granules) * TS_GRANULE;
  if (needed <= budget_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < full_until_) return false;
  try {
    // Room for as much again, so that a program that grows asks seldom; what is needed, where that is too much.
    budget_ = transport_->ask_room(needed * 2);
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "worker %u (%s): %s", index_, name_.c_str(), error.what());
  }
  if (needed <= budget_) return true;
  full_until_ = now + kAskAgain;
  return false;
}

bool WorkerLink::could_hold(std::span<const Range> ranges) {
  constexpr auto kAskAgain = std::chrono::milliseconds(100);
  uint64_t needed = 0;
  for (const Range& range : ranges) needed += granule_of(range.end + TS_GRANULE - 1) - granule_of(range.begin);
  if (needed <= budget_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (needed > device_.memory_bytes || (needed >= too_large_ && now < too_large_until_)) return false;
  try {
    const uint64_t before = budget_;
    budget_ = transport_->ask_room(needed);
    if (needed <= budget_) return true;
    budget_ = transport_->ask_room(before);  // others may need what is of no use here
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "worker %u (%s): %s", index_, name_.c_str(), error.what());
  }
  too_large_ = needed;
  too_large_until_ = now + kAskAgain;
  return false;
}

std::vector<uint64_t> WorkerLink::missing_granules(std::span<const Range> ranges) const {
  std::vector<uint64_t> missing;
  for_each_granule(ranges, [&](uint64_t granule) {
    if (!granules_.contains(granule)) missing.push_back(granule);
  });
  return missing;
}

std::vector<uint64_t> WorkerLink::eviction_order(std::span<const Range> keep) const {
  std::set<uint64_t> kept;
  for_each_granule(keep, [&](uint64_t granule) { kept.insert(granule); });
  std::vector<std::pair<uint64_t, uint64_t>> held;  // last use, granule
  for (const auto& [granule, used] : granules_) {
    if (!kept.contains(granule)) held.emplace_back(used, granule);
  }
  std::sort(held.begin(), held.end());
  std::vector<uint64_t> order;
  order.reserve(held.size());
  for (const auto& [used, granule] : held) order.push_back(granule);
  return order;
}

bool WorkerLink::evict(uint64_t granule) {
  const Range range{granule, granule + TS_GRANULE};
  if (!send_ranges(TS_RING_EVICT, 0, 0, 0, {&range, 1})) return false;
  granules_.erase(granule);
  return true;
}

void WorkerLink::hold(std::span<const Range> ranges) {
  ++clock_;
  for_each_granule(ranges, [&](uint64_t granule) { granules_[granule] = clock_; });
}

}  // namespace tessera::shim
