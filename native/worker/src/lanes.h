// SPDX-License-Identifier: Apache-2.0
// The streams of one session, one for each lane that has been used.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "device.h"
#include "gate.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::worker {

class Lanes {
 public:
  /// Registers the lanes' flags with the driver. Throws DriverError.
  Lanes(const Device& device, Gate& gate, ts_channel* channel);
  /// Destroys the streams; the registration of the flags stays (see unregister_flags).
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// The lane's stream, made at first use. Throws DriverError.
  CUstream stream(uint32_t lane);
  /// The lane's stream is about to get `operations` more: to be said before, since giving them may fail half-way.
  /// `what` names the last one in error texts and outlives the lane's work.
  void submitted(uint32_t lane, uint32_t operations, const std::string* what);
  /// At most so many of the operations given to the lane's stream have not ended: its done flag tells of the others.
  uint32_t queued(uint32_t lane);

  /// Enqueues a wait for the lane's start flag. False when it may not be enqueued now (see Gate). Throws DriverError.
  bool wait_start(uint32_t lane, uint32_t start);
  /// Enqueues the write of the lane's done flag. Throws DriverError.
  void write_done(uint32_t lane, uint32_t value);

  /// The lane's stream goes away once it is idle; using the lane again before keeps it.
  void close(uint32_t lane);

  /// Asks every busy stream how it is, and destroys idle closed ones. Throws DriverError when one has failed.
  void poll();
  /// The last kernels of the busy streams, for error texts: a broken context does not say whose fault it is.
  std::string running() const;
  bool idle() const { return busy_ == 0; }
  /// Whether all that any stream was given has surely ended, by the done flags alone: to ask a broken context is no
  /// use.
  bool all_ended();
  /// Lanes whose streams are not known to be idle.
  const std::vector<uint32_t>& open_lanes() const { return open_; }
  bool busy(uint32_t lane) const { return lanes_[lane].depth != 0; }

  const StartWaits& waits() const { return waits_; }
  /// Lets every stream go on although no start flag came: the program is gone.
  void release_starts(uint32_t round) const { waits_.release_all(round); }
  /// done = requested for every lane: nobody at home waits for this worker any more.
  void release_home() const;
  void abandon();

 private:
  struct Mark {
    uint32_t done;   // once the done flag has this value,
    uint32_t depth;  // so many operations have ended
  };
  struct Lane {
    CUstream stream = nullptr;
    uint32_t depth = 0;  // operations since the stream was last seen idle
    uint32_t ended = 0;  // of them, surely
    std::deque<Mark> marks;
    bool closing = false;
    const std::string* last = nullptr;
  };
  CUdeviceptr flag(uint32_t lane, size_t offset) const { return flags_ + lane * sizeof(ts_lane) + offset; }

  const Device& device_;
  ts_channel* channel_;
  CUdeviceptr flags_ = 0;
  StartWaits waits_;
  std::array<Lane, TS_LANES> lanes_{};
  std::vector<uint32_t> open_;
  uint32_t busy_ = 0;
};

/// Undoes the registration that Lanes made. Waits for other programs' streams: call with the gate closed and clear.
void unregister_flags(const Device& device, ts_channel* channel);

}  // namespace tessera::worker
