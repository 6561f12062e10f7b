// SPDX-License-Identifier: Apache-2.0
// Some driver calls (loading and unloading a module, unregistering host memory,
// the first launch of a kernel with more local memory) wait until no stream of
// the context waits for a flag any more, and hold up the launches of every
// thread meanwhile. A stream that waits for one program's start flag would then
// stop all programs, for ever if that flag depends on one of them.
//
// So whoever wants to make such a call closes the gate, and calls once no wait
// is outstanding; while the gate is closed sessions watch start flags with the
// processor instead of giving the wait to a stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tessera/protocol/channel.h"

namespace tessera::worker {

/// Whether a flag with value `flag` satisfies a wait for `value` (cyclic, as CU_STREAM_WAIT_VALUE_GEQ compares).
inline bool reached(uint32_t flag, uint32_t value) { return static_cast<int32_t>(flag - value) >= 0; }
inline uint32_t read_flag(const uint32_t& flag) {
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(flag)).load(std::memory_order_acquire);
}

class Gate;

/// The start flags that one session's streams wait for.
class StartWaits {
 public:
  StartWaits(Gate& gate, ts_lane* lanes);
  ~StartWaits();
  StartWaits(const StartWaits&) = delete;
  StartWaits& operator=(const StartWaits&) = delete;

  /// Whether the lane's start flag has come, as the processor sees it.
  bool has_come(uint32_t lane, uint32_t start) const { return reached(read_flag(lanes_[lane].start), start); }
  /// Asks to let the lane's stream wait for `start`; false while the gate is closed.
  bool announce(uint32_t lane, uint32_t start);
  bool outstanding() const;
  /// Whether `start` is not before what the lane's stream was last told to wait for: start values only grow.
  bool grows(uint32_t lane, uint32_t start) const;
  /// The program is gone: lets every stream run on. To be called again and again until they have, with `round` counting
  /// up: what the program last had in mind need not satisfy all waits, but one of four rounds satisfies any.
  void release_all(uint32_t round) const;

 private:
  Gate& gate_;
  ts_lane* lanes_;
  std::array<std::atomic<uint32_t>, TS_LANES> last_{};  // 0: none yet
};

class Gate {
 public:
  bool closed() const { return closers_.load() != 0; }
  void close() { closers_.fetch_add(1); }
  void open() { closers_.fetch_sub(1); }
  /// While closed: whether the driver may be called.
  bool clear();

 private:
  friend class StartWaits;
  void add(StartWaits* waits);
  void remove(StartWaits* waits);
  std::atomic<int> closers_{0};
  std::mutex mutex_;
  std::vector<StartWaits*> sessions_;
};

/// Closes a gate while it lives.
class Closing {
 public:
  explicit Closing(Gate& gate) : gate_(gate) { gate_.close(); }
  ~Closing() { gate_.open(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  bool clear() const { return gate_.clear(); }

 private:
  Gate& gate_;
};

}  // namespace tessera::worker
