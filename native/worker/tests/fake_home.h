// SPDX-License-Identifier: Apache-2.0
// A program that plays home by hand: device 0, an arena, streams with
// placeholders. It is what the shim will do, without the shim.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunks.h"
#include "counters.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/transport.h"

namespace tessera::worker::testing {

constexpr uint64_t kGranule = TS_GRANULE;
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kSlotBase = 0x7ed000000000;  // what ThreadSanitizer leaves to a program
#else
constexpr uint64_t kSlotBase = 0x200000000000;
#endif
constexpr uint64_t kSlotSize = uint64_t{1} << 32;

struct HomeDriver {
#define TESSERA_DRIVER(name, required) decltype(&::name) name = nullptr;
#include "home_functions.def"
#undef TESSERA_DRIVER
};

/// The driver and device 0 of this process, opened once.
struct HomeGpu {
  static HomeGpu& get();
  Driver driver;
  HomeDriver more;
  Device device;

 private:
  HomeGpu();
};

/// Device memory of home at chosen addresses of a slot.
class Arena {
 public:
  Arena(uint64_t base, uint64_t size);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Maps new memory; the descriptor is what TS_CHUNK carries.
  transport::UniqueFd map(uint64_t address, uint64_t size);
  void unmap(uint64_t address, uint64_t size);

 private:
  HomeGpu& gpu_;
  Reservation addresses_;
  std::map<uint64_t, uint64_t> mapped_;
};

struct Range {
  uint64_t address, size;
  bool pull = true;
};

struct Launch {
  uint32_t function = 0, lane = 0, start = 0, counter_slot = 0;
  uint32_t grid = 1, block = 1, dynamic_shared = 0;
  std::vector<std::byte> parameters;
  std::vector<Range> ranges;
  std::vector<CUlaunchAttribute> attributes;
  uint64_t sequence = UINT64_MAX;  ///< default: the last one sent
};

/// Packs parameters as a kernel's parameter block: each aligned to its own size.
template <class... T>
std::vector<std::byte> pack(const T&... values) {
  std::vector<std::byte> block;
  const auto put = [&block](const auto& value) {
    block.resize((block.size() + alignof(decltype(value)) - 1) / alignof(decltype(value)) * alignof(decltype(value)));
    const size_t at = block.size();
    block.resize(at + sizeof value);
    std::memcpy(block.data() + at, &value, sizeof value);
  };
  (put(values), ...);
  return block;
}

class FakeHome {
 public:
  explicit FakeHome(const std::string& socket, uint64_t base = kSlotBase, uint64_t size = kSlotSize);
  ~FakeHome();
  FakeHome(const FakeHome&) = delete;
  FakeHome& operator=(const FakeHome&) = delete;

  transport::Transport& link() { return *link_; }
  ts_counters_table& counters() { return *counters_.as<ts_counters_table>(); }
  uint64_t base() const { return base_; }

  /// Maps memory at home and tells the worker.
  void add_chunk(uint64_t address, uint64_t size);
  /// Unmaps it at home and tells the worker.
  void release_chunk(uint64_t address, uint64_t size, uint32_t lane = 0);
  void evict(uint64_t address, uint64_t size, uint32_t lane = 0);

  /// Sends the module (once) and the kernel; waits for the answer. Its text, empty on success.
  std::string load(uint32_t function, const char* name, const char* image, uint32_t parameter_size,
                   int32_t max_dynamic_shared = -1);

  void launch(const Launch& launch);
  /// The message for pushing ranges home and finishing lane `lane`; the done value.
  uint32_t join(uint32_t lane, const std::vector<Range>& ranges, uint32_t start = 0);
  /// As join(), also when the worker has failed already: the done value alone.
  uint32_t join_if_alive(uint32_t lane);
  void close_lane(uint32_t lane);
  /// A ring message without a body of its own.
  void send_ranges(uint16_t type, uint32_t lane, const std::vector<Range>& ranges, uint32_t start, uint32_t value);

  // Home's side of a lane: what stands in the home stream.
  CUstream stream(uint32_t lane);
  /// Enqueues the write of the next start value in the lane's home stream; the value.
  uint32_t write_start(uint32_t lane);
  /// The next start value, which nobody writes.
  uint32_t unwritten_start(uint32_t lane) { return ++starts_[lane]; }
  void set_start(uint32_t lane, uint32_t value);
  void wait_done(uint32_t lane, uint32_t value);
  /// Waits for the home stream, at most `milliseconds`; false when it does not end.
  bool synchronize(uint32_t lane, int milliseconds = 10000);
  /// write_start, the launch, join, wait_done, synchronize: one launch redirected by itself.
  bool run(Launch launch, const std::vector<Range>& push);

  // Home's memory, synchronously.
  void write(uint64_t address, const std::vector<uint32_t>& values);
  std::vector<uint32_t> read(uint64_t address, size_t count);

  /// Waits until the worker has failed this program; false when it does not.
  bool wait_failed(int milliseconds = 10000);
  bool wait_hung_up(int milliseconds = 10000);
  uint32_t done(uint32_t lane);
  void detach();

 private:
  HomeGpu& gpu_;
  uint64_t base_;
  transport::SharedMemory counters_;
  std::unique_ptr<transport::Transport> link_;
  std::unique_ptr<Arena> arena_;
  CUdeviceptr flags_ = 0;
  ts_lane* lanes_ = nullptr;
  std::vector<std::string> images_;
  std::map<uint32_t, CUstream> streams_;
  std::map<uint32_t, uint32_t> starts_, requested_;
};

transport::SharedMemory make_counters();

/// Calls `condition` until it holds; false after `milliseconds`.
template <class Condition>
bool eventually(Condition condition, int milliseconds = 10000) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace tessera::worker::testing
