// SPDX-License-Identifier: Apache-2.0
// One program on this worker, served by a thread of its own: the ring, the
// socket, the memory that mirrors the program's, and what goes wrong with them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blas_handle.h"
#include "chunks.h"
#include "counters.h"
#include "lanes.h"
#include "mirror.h"
#include "reclaims.h"
#include "samples.h"
#include "slot.h"
#include "tessera/transport/ring.h"
#include "tessera/transport/socket.h"
#include "worker.h"

namespace tessera::worker {

/// What an accepted attachment consists of.
struct Attachment {
  transport::Socket socket;
  transport::SharedMemory channel;
  Counters counters;
  Slot slot;
};

class Session {
 public:
  /// Takes the slot's addresses and registers the flags; the context is current. Throws DriverError.
  Session(Worker& worker, Attachment attachment);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const transport::Socket& socket() const { return socket_; }

  /// Serves the program until it leaves, dies, fails, or the worker ends; then waits for its streams. The program has
  /// been answered already.
  void run();

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Outcome { kDone, kHold };
  /// Why the message at the ring's tail cannot be carried out yet.
  enum class Hold { kNone, kSocket, kFunction, kStart, kMemory, kExclusive };

  struct PendingChunk {
    uint64_t sequence, address, size;
    MemoryHandle memory;
  };
  struct Function {
    std::shared_ptr<LoadRequest> request;
    bool answered = false;
  };

  // session.cc: the loop, the end
  void serve();
  void rest(bool was_busy);
  bool gone();
  void poll_device();
  void fail(CUresult code, const std::string& text);
  void stay_failed();
  void wait_for_streams();
  void abandon();
  void give_libraries_back();
  std::string who() const;

  // session_socket.cc
  bool read_socket();
  void take_packet(const transport::Packet& packet);
  void take_sequence(uint64_t sequence);
  void take_chunk(const transport::Packet& packet);
  void take_image(const transport::Packet& packet);
  void take_function(const transport::Packet& packet);
  void take_library(const transport::Packet& packet);
  void announce(uint32_t function, std::shared_ptr<LoadRequest> request);
  void give_room(const transport::Packet& packet);
  bool answer_functions();
  void answer(uint32_t function, CUresult status, const std::string& text);
  void answer_failed();

  // session_ring.cc
  bool drain_ring();
  Outcome carry_out(const transport::RingMessage& message);
  Outcome launch(const transport::RingMessage& message);
  Outcome join(const transport::RingMessage& message);
  void release(const transport::RingMessage& message);
  void evict(const transport::RingMessage& message);
  Outcome hold(Hold reason);
  bool apply_chunks(uint64_t sequence);
  bool ready_to_wait(uint32_t lane, uint32_t start);
  const LoadRequest* ready_function(uint32_t function);
  bool map_ranges(std::span<const ts_ring_range> ranges);
  bool make_room();
  bool ready_alone(const ts_ring_header& header);
  const ts_blas_call* blas_call(const transport::RingMessage& message, const LoadRequest& function) const;
  void pull(CUstream stream, const transport::RingMessage& message);

  Worker& worker_;
  Device& device_;
  const Driver& driver_;
  transport::Socket socket_;
  transport::UniqueFd process_;
  int pid_;
  std::shared_ptr<transport::SharedMemory> memory_;  // the loader wakes us and unregisters the flags through it
  ts_channel* channel_;
  transport::Consumer ring_;
  Counters counters_;
  Slot slot_;

  Promise promise_;  // outlives what it was given for
  Chunks chunks_;
  Mirror mirror_;
  Lanes lanes_;
  Samples samples_;
  Reclaims reclaims_;

  uint64_t last_sequence_ = 0;
  std::deque<PendingChunk> pending_chunks_;
  std::map<std::pair<uint64_t, uint64_t>, ImageBytes> images_;
  std::vector<Function> functions_;
  std::vector<uint32_t> unanswered_;
  std::optional<Closing> closing_;  // while a launch waits to be alone

  Hold hold_ = Hold::kNone;
  Time hold_since_{}, next_poll_{};
  std::chrono::microseconds nap_{};
  bool leaving_ = false, failed_ = false;
  CUresult failure_code_ = CUDA_SUCCESS;
  std::string failure_text_;
};

}  // namespace tessera::worker
