// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device_memory.h"
#include "images.h"
#include "streams.h"
#include "tessera/memory/directory.h"
#include "tessera/protocol/channel.h"

namespace tessera::transport {
class Transport;
}

namespace tessera::shim {

/// One home stream's pair of flags in the channel, and what went through it.
/// Serials number the lane's operations; the done flag carries a serial.
struct Lane {
  StreamState* owner = nullptr;  // null: free, or its stream is gone
  uint32_t serial = 0;           // of the last operation sent
  uint32_t requested = 0;        // last serial whose end the worker was asked to signal
  uint32_t start = 0;            // last value of the start flag
  uint64_t activity = 0;         // home activity when the lane was last gated
  bool gated = false;
};

/// Home's side of one worker: lanes, what it has been sent, what it holds.
/// Guarded by the world's lock, but for `alive` and `give_up`.
class WorkerLink {
 public:
  /// Attaches. Throws std::runtime_error that says why it could not.
  WorkerLink(const ts_worker_info& info, uint64_t arena_base, uint64_t arena_size, int counters_fd);
  ~WorkerLink();

  uint32_t index() const { return index_; }
  const ts_device& device() const { return device_; }
  const std::string& name() const { return name_; }
  /// Nothing said yet that it cannot be used. Any thread.
  bool alive() const { return !given_up_.load(std::memory_order_acquire); }
  /// Whether its end of the socket is still open. Any thread.
  bool connected() const;
  /// The first error that the worker reported, or CUDA_SUCCESS. Any thread.
  CUresult error(std::string* text = nullptr) const;
  /// Sends nothing any more, and lets every home stream that waits for this
  /// worker go on. Returns whether any operation was unfinished; the world's
  /// failure is set before the first stream goes on. Any thread, without the
  /// lock: its holder may be the one that waits.
  bool give_up();
  /// Ends the attachment. The object stays for threads that still look at it.
  void close();
  /// In which the flags are registered: the attachment ends with it.
  CUcontext context() const { return context_; }

  /// The stream's lane, opened at first use; -1 when no lane is left.
  int lane_of(StreamState& stream);
  /// The same for one that cannot do without: waits until a lane comes free. -1: none did in time.
  int wait_for_lane(StreamState& stream);
  void retire_lane(int lane);
  Lane& lane(int index) { return lanes_[static_cast<size_t>(index)]; }
  bool finished(uint16_t lane, uint32_t serial) const;
  CUdeviceptr start_flag(int lane) const { return flags_ + static_cast<CUdeviceptr>(lane) * sizeof(ts_lane); }
  CUdeviceptr done_flag(int lane) const { return start_flag(lane) + sizeof(uint32_t); }

  struct Kernel {
    uint32_t function;
    uint32_t counter_slot;
    const uint32_t* grid;
    const uint32_t* block;
    uint32_t dynamic_shared;
    std::span<const uint8_t> parameters;
    std::span<const CUlaunchAttribute> attributes;
  };
  /// Sends one launch and gives it the lane's next serial. False: the worker
  /// took no message in time or is gone, and nothing was sent.
  bool launch(int lane, uint32_t start, std::span<const ts_ring_range> ranges, const Kernel& kernel);
  /// Asks the worker to push `ranges` home and to signal the end of everything
  /// in the lane so far. Takes a serial of its own; returns it, or 0 as above.
  uint32_t join(int lane, uint32_t start, std::span<const Range> ranges);
  /// Tells the worker that home unmapped the chunk.
  void release(Range chunk);

  /// The chunks that back `ranges` are known to the worker; sends those that are not.
  bool send_chunks(const DeviceMemory& memory, std::span<const Range> ranges);
  /// Loads a function on the worker. Returns its number, or -1 with `reason`.
  int64_t load_function(const Image& image, const std::string& name, uint32_t parameter_size, int max_dynamic_shared,
                        int shared_carveout, std::string* reason);

  /// The same for a host library, whose calls the worker is to make; see ts_library.
  int64_t load_library(uint32_t kind, const std::string& path, const std::string& environment, std::string* reason);

  /// Granules of `ranges` that the worker does not hold yet.
  std::vector<uint64_t> missing_granules(std::span<const Range> ranges) const;
  /// Whether the worker lets this program hold so many granules more; asks it where that was not settled before.
  bool has_room_for(size_t granules);
  /// Whether `ranges` could be held at all, if nothing else were: where not, nothing need be evicted for them. Costs
  /// nothing that grows with their bytes.
  bool could_hold(std::span<const Range> ranges);
  /// Held granules outside `keep`, least recently used first.
  std::vector<uint64_t> eviction_order(std::span<const Range> keep) const;
  bool evict(uint64_t granule);
  /// Notes that the granules of `ranges` are held, and used now.
  void hold(std::span<const Range> ranges);

 private:
  int give_lane(size_t number, StreamState& stream);
  uint8_t* reserve(uint64_t bytes);
  bool send_ranges(uint16_t type, int lane, uint32_t start, uint32_t value, std::span<const Range> ranges);
  void send_image(const Image& image);
  int64_t await_function(uint32_t number, std::string* reason);

  std::unique_ptr<transport::Transport> transport_;
  uint32_t index_;
  ts_device device_{};
  std::string name_;
  uint64_t budget_ = 0;  // bytes that the worker has promised this program
  std::chrono::steady_clock::time_point full_until_{};
  uint64_t too_large_ = UINT64_MAX;  // bytes that could not be had, until then
  std::chrono::steady_clock::time_point too_large_until_{};
  CUcontext context_ = nullptr;
  CUdeviceptr flags_ = 0;  // the lanes, as the home device sees them
  std::vector<Lane> lanes_;
  std::set<uint64_t> chunks_;  // begins of chunks that were sent
  std::set<std::pair<uint64_t, uint64_t>> images_;
  uint32_t next_function_ = 0;
  std::map<uint64_t, uint64_t> granules_;  // begin -> last use
  uint64_t clock_ = 0;
  std::atomic<bool> given_up_{false};
};

/// Writes a whole launch message at `at`, where there is room for transport::launch_message_size. `header`: all but
/// what follows from the rest.
void write_launch(uint8_t* at, ts_ring_header header, std::span<const ts_ring_range> ranges,
                  const WorkerLink::Kernel& kernel);

}  // namespace tessera::shim
