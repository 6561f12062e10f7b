// SPDX-License-Identifier: Apache-2.0
#include "fake_home.h"

#include <dlfcn.h>

#include <algorithm>

#include "testing/check.h"
#include "worker_process.h"

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;
using transport::Status;

void check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string("home: ") + what + ": " + HomeGpu::get().driver.error_name(code));
}

ts_ring_range ring_range(const Range& range) {
  return {range.address, range.address + range.size, range.pull ? uint64_t{TS_RANGE_PULL} : 0};
}

}  // namespace

HomeGpu& HomeGpu::get() {
  static HomeGpu gpu;
  gpu.device.make_current();
  return gpu;
}

HomeGpu::HomeGpu() : driver(Driver::open(required_environment("TESSERA_TEST_DRIVER"))), device(driver, 0) {
  void* library = dlopen(required_environment("TESSERA_TEST_DRIVER").c_str(), RTLD_NOW | RTLD_NOLOAD);
#define TESSERA_DRIVER(name, required) more.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name));
#include "home_functions.def"
#undef TESSERA_DRIVER
}

Arena::Arena(uint64_t base, uint64_t size) : gpu_(HomeGpu::get()), addresses_(gpu_.device, base, size) {}

Arena::~Arena() {
  for (const auto& [address, size] : mapped_) gpu_.driver.cuMemUnmap(address, size);
}

transport::UniqueFd Arena::map(uint64_t address, uint64_t size) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu_.device.handle();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  check(gpu_.driver.cuMemCreate(&handle, size, &properties, 0), "cuMemCreate");
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(gpu_.driver.cuMemMap(address, size, 0, handle, 0), "cuMemMap");
  check(gpu_.driver.cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
  int fd = -1;
  check(gpu_.more.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export");
  check(gpu_.driver.cuMemRelease(handle), "cuMemRelease");
  mapped_[address] = size;
  return transport::UniqueFd(fd);
}

void Arena::unmap(uint64_t address, uint64_t size) {
  check(gpu_.driver.cuMemUnmap(address, size), "cuMemUnmap");
  mapped_.erase(address);
}

transport::SharedMemory make_counters() {
  transport::SharedMemory memory = transport::SharedMemory::create("test-counters", sizeof(ts_counters_table));
  memory.as<ts_counters_table>()->magic = TS_COUNTERS_MAGIC;
  memory.as<ts_counters_table>()->version = TS_PROTOCOL_VERSION;
  return memory;
}

FakeHome::FakeHome(const std::string& socket, uint64_t base, uint64_t size)
    : gpu_(HomeGpu::get()), base_(base), counters_(make_counters()) {
  transport::AttachRequest request;
  request.socket = socket;
  request.index = 1;
  request.arena_base = base;
  request.arena_size = size;
  request.counters = counters_.fd().get();
  link_ = transport::attach_shared_memory(request);
  arena_ = std::make_unique<Arena>(base, size);
  lanes_ = link_->lanes();
  check(gpu_.driver.cuMemHostRegister_v2(lanes_, transport::Transport::kLanesBytes,
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
  check(gpu_.driver.cuMemHostGetDevicePointer_v2(&flags_, lanes_, 0), "cuMemHostGetDevicePointer");
}

FakeHome::~FakeHome() { detach(); }

void FakeHome::detach() {
  for (auto& [lane, stream] : streams_) {
    std::atomic_ref<uint32_t>(lanes_[lane].done).store(requested_[lane]);
    gpu_.driver.cuStreamDestroy_v2(stream);
  }
  streams_.clear();
  if (link_ != nullptr) gpu_.driver.cuMemHostUnregister(lanes_);
  link_.reset();
}

void FakeHome::add_chunk(uint64_t address, uint64_t size) {
  const transport::UniqueFd fd = arena_->map(address, size);
  link_->send_chunk(address, size, fd.get());
}

void FakeHome::send_ranges(uint16_t type, uint32_t lane, const std::vector<Range>& ranges, uint32_t start,
                           uint32_t value) {
  void* at = nullptr;
  const Status status =
      link_->ring().reserve(static_cast<uint32_t>(transport::range_message_size(ranges.size())), 10s, &at);
  if (status != Status::kOk) throw transport::TransportError(status, transport::status_name(status));
  auto* header = static_cast<ts_ring_header*>(at);
  header->type = type;
  header->flags = 0;
  header->lane = lane;
  header->start = start;
  header->sequence = link_->sequence();
  header->n_ranges = static_cast<uint32_t>(ranges.size());
  header->value = value;
  auto* out = reinterpret_cast<ts_ring_range*>(header + 1);
  for (const Range& range : ranges) *out++ = ring_range(range);
  link_->ring().commit();
}

void FakeHome::release_chunk(uint64_t address, uint64_t size, uint32_t lane) {
  arena_->unmap(address, size);
  send_ranges(TS_RING_RELEASE, lane, {{address, size, false}}, 0, 0);
}

void FakeHome::evict(uint64_t address, uint64_t size, uint32_t lane) {
  send_ranges(TS_RING_EVICT, lane, {{address, size, false}}, 0, 0);
}

void FakeHome::close_lane(uint32_t lane) { send_ranges(TS_RING_CLOSE_LANE, lane, {}, 0, 0); }

std::string FakeHome::load(uint32_t function, const char* name, const char* image, uint32_t parameter_size,
                           int32_t max_dynamic_shared) {
  transport::FunctionRequest request;
  request.function = function;
  request.image = {std::hash<std::string>()(image), std::strlen(image)};
  request.parameter_size = parameter_size;
  request.max_dynamic_shared = max_dynamic_shared;
  request.name = name;
  if (std::find(images_.begin(), images_.end(), image) == images_.end()) {
    images_.push_back(image);
    const transport::UniqueFd fd = transport::make_constant("image", image, std::strlen(image));
    link_->send_image(request.image, std::strlen(image), fd.get());
  }
  link_->send_function(request);
  const auto ready = link_->receive_function_ready(20s);
  REQUIRE(ready);
  CHECK_EQ(ready->function, function);
  CHECK_EQ(ready->status == CUDA_SUCCESS, ready->text[0] == '\0');
  return ready->text;
}

void FakeHome::launch(const Launch& launch) {
  const uint64_t size =
      transport::launch_message_size(launch.ranges.size(), launch.attributes.size(), launch.parameters.size());
  void* at = nullptr;
  const Status status = link_->ring().reserve(static_cast<uint32_t>(size), 10s, &at);
  if (status != Status::kOk) throw transport::TransportError(status, transport::status_name(status));
  auto* message = static_cast<ts_ring_launch*>(at);
  const uint32_t rounded = message->header.size;
  *message = ts_ring_launch{};
  message->header.size = rounded;
  message->header.type = TS_RING_LAUNCH;
  message->header.lane = launch.lane;
  message->header.start = launch.start;
  message->header.sequence = launch.sequence == UINT64_MAX ? link_->sequence() : launch.sequence;
  message->header.n_ranges = static_cast<uint32_t>(launch.ranges.size());
  message->function = launch.function;
  message->counter_slot = launch.counter_slot;
  const uint32_t grid[3] = {launch.grid, 1, 1}, block[3] = {launch.block, 1, 1};
  std::memcpy(message->grid, grid, sizeof grid);
  std::memcpy(message->block, block, sizeof block);
  message->dynamic_shared = launch.dynamic_shared;
  message->parameter_size = static_cast<uint32_t>(launch.parameters.size());
  message->n_attributes = static_cast<uint32_t>(launch.attributes.size());
  auto* out = reinterpret_cast<ts_ring_range*>(message + 1);
  for (const Range& range : launch.ranges) *out++ = ring_range(range);
  std::byte* bytes =
      std::copy_n(reinterpret_cast<const std::byte*>(launch.attributes.data()),
                  launch.attributes.size() * sizeof(CUlaunchAttribute), reinterpret_cast<std::byte*>(out));
  std::copy(launch.parameters.begin(), launch.parameters.end(), bytes);
  link_->ring().commit();
}

uint32_t FakeHome::join(uint32_t lane, const std::vector<Range>& ranges, uint32_t start) {
  const uint32_t value = ++requested_[lane];
  std::atomic_ref<uint32_t>(lanes_[lane].requested).store(value);
  send_ranges(TS_RING_JOIN, lane, ranges, start, value);
  return value;
}

uint32_t FakeHome::join_if_alive(uint32_t lane) {
  try {
    return join(lane, {});
  } catch (const transport::TransportError& error) {
    CHECK(error.status() == Status::kFailed);
    return requested_[lane];
  }
}

CUstream FakeHome::stream(uint32_t lane) {
  CUstream& stream = streams_[lane];
  if (stream == nullptr) check(gpu_.driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

uint32_t FakeHome::write_start(uint32_t lane) {
  const uint32_t value = ++starts_[lane];
  check(gpu_.driver.cuStreamWriteValue32_v2(stream(lane), flags_ + lane * sizeof(ts_lane), value, 0),
        "cuStreamWriteValue32");
  return value;
}

void FakeHome::set_start(uint32_t lane, uint32_t value) { std::atomic_ref<uint32_t>(lanes_[lane].start).store(value); }

void FakeHome::wait_done(uint32_t lane, uint32_t value) {
  check(gpu_.driver.cuStreamWaitValue32_v2(stream(lane), flags_ + lane * sizeof(ts_lane) + offsetof(ts_lane, done),
                                           value, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue32");
}

bool FakeHome::synchronize(uint32_t lane, int milliseconds) {
  CUresult state = CUDA_ERROR_NOT_READY;
  const bool ended = eventually(
      [&] { return (state = gpu_.driver.cuStreamQuery(stream(lane))) != CUDA_ERROR_NOT_READY; }, milliseconds);
  if (ended) check(state, "cuStreamQuery");
  return ended;
}

bool FakeHome::run(Launch launched, const std::vector<Range>& push) {
  launched.start = write_start(launched.lane);
  launch(launched);
  wait_done(launched.lane, join(launched.lane, push));
  return synchronize(launched.lane);
}

void FakeHome::write(uint64_t address, const std::vector<uint32_t>& values) {
  check(gpu_.more.cuMemcpyHtoD_v2(address, values.data(), values.size() * 4), "cuMemcpyHtoD");
}

std::vector<uint32_t> FakeHome::read(uint64_t address, size_t count) {
  std::vector<uint32_t> values(count);
  check(gpu_.more.cuMemcpyDtoH_v2(values.data(), address, count * 4), "cuMemcpyDtoH");
  return values;
}

bool FakeHome::wait_failed(int milliseconds) {
  return eventually([this] { return link_->failed(); }, milliseconds);
}

bool FakeHome::wait_hung_up(int milliseconds) {
  return eventually([this] { return link_->hung_up(); }, milliseconds);
}

uint32_t FakeHome::done(uint32_t lane) { return std::atomic_ref<uint32_t>(lanes_[lane].done).load(); }

}  // namespace tessera::worker::testing
