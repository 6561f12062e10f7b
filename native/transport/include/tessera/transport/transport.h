// SPDX-License-Identifier: Apache-2.0
// The seam: what a program needs of one worker, wherever it runs. On one host
// this is a Unix socket and a shared channel (attach_shared_memory); between
// hosts UCX will stand behind the same functions.
//
// Threads: the caller serialises everything but hung_up(), failed() and
// failure(), which any thread may call at any time. Functions throw
// TransportError; the ring and the const questions do not.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/protocol/channel.h"
#include "tessera/transport/ring.h"
#include "tessera/transport/status.h"

namespace tessera::transport {

/// What a program tells of a kernel; see ts_function.
struct FunctionRequest {
  uint32_t function = 0;
  ts_image_hash image{};
  uint32_t parameter_size = 0;
  int32_t max_dynamic_shared = -1;
  int32_t shared_carveout = -1;
  std::string_view name;
};

/// The message that announces it.
std::vector<uint8_t> function_message(const FunctionRequest& request, uint64_t sequence);

/// What a program tells of a host library whose calls the worker is to repeat; see ts_library.
struct LibraryRequest {
  uint32_t function = 0;
  uint32_t kind = 0;
  std::string_view path, environment;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// The worker's answer to the attachment: its device and its memory budget.
  virtual const ts_attached& attached() const = 0;

  // Each send returns the sequence number that later ring messages name to be read behind it. Descriptors stay the
  // caller's. kHungUp, kTimeout.
  /// Home has mapped `size` bytes (whole granules) at `address`; `memory` is the exported physical memory.
  virtual uint64_t send_chunk(uint64_t address, uint64_t size, int memory) = 0;
  /// `image` holds `size` bytes that do not change any more (make_constant).
  virtual uint64_t send_image(const ts_image_hash& hash, uint64_t size, int image) = 0;
  /// The worker answers each with one ts_function_ready, in its own order.
  virtual uint64_t send_function(const FunctionRequest& request) = 0;
  /// Likewise.
  virtual uint64_t send_library(const LibraryRequest& request) = 0;
  /// The next answer, or nothing within `timeout`. kHungUp, kCorrupt.
  virtual std::optional<ts_function_ready> receive_function_ready(std::chrono::milliseconds timeout) = 0;
  /// Asks for room for `bytes` of mirrored memory in all; returns what this program may hold from now on. Precondition:
  /// no function is unanswered. kHungUp, kTimeout, kCorrupt.
  virtual uint64_t ask_room(uint64_t bytes) = 0;
  /// The sequence number of the last send.
  virtual uint64_t sequence() const = 0;

  virtual Producer& ring() = 0;
  /// TS_LANES pairs of flags, page-aligned, kLanesBytes long: for the driver to register, and to unregister before this
  /// object goes.
  virtual ts_lane* lanes() = 0;
  static constexpr size_t kLanesBytes = sizeof(ts_lane) * TS_LANES;

  /// Tells the worker that this program leaves it: it finishes what it has been sent and gives the addresses free.
  /// Only the const questions, lanes() and hung_up() may follow.
  virtual void leave() = 0;
  /// The worker's process is gone, or has closed this attachment.
  virtual bool hung_up() const = 0;
  /// The worker has given this program up; failure() says why.
  virtual bool failed() const = 0;
  virtual ChannelFailure failure() const = 0;
};

struct AttachRequest {
  std::string socket;  ///< where the worker listens
  uint32_t index = 0;  ///< its index in the controller
  uint64_t arena_base = 0, arena_size = 0;
  int counters = -1;                        ///< the program's counters table, sealed (SharedMemory::create)
  std::chrono::milliseconds timeout{5000};  ///< of the attachment and of each send
};

/// Attaches to a worker on this host. TransportError: kRefused with the worker's reason (attached to no worker,
/// version, addresses taken), kTimeout, kHungUp.
std::unique_ptr<Transport> attach_shared_memory(const AttachRequest& request);

}  // namespace tessera::transport
