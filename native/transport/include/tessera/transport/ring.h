// SPDX-License-Identifier: Apache-2.0
// The ring of a channel: one producer (the program, under a lock of its own) and
// one consumer (the worker's session thread). Both are data path: no exception,
// no allocation after construction, no system call except to sleep and to wake.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tessera/protocol/channel.h"
#include "tessera/transport/status.h"

namespace tessera::transport {

/// The largest ring message, so that one and the SKIP before it always fit an empty ring.
constexpr uint32_t kMaxRingMessage = TS_RING_BYTES / 4;
constexpr uint32_t kRingAlignment = 64;
/// sizeof(CUlaunchAttribute); checked by the worker, which knows the driver's headers.
constexpr uint32_t kLaunchAttributeBytes = 72;
constexpr uint32_t kMaxLaunchAttributes = 32;

/// Bytes that a launch message takes, before rounding up to kRingAlignment.
constexpr uint64_t launch_message_size(uint64_t n_ranges, uint64_t n_attributes, uint64_t parameter_size) {
  return sizeof(ts_ring_launch) + n_ranges * sizeof(ts_ring_range) + n_attributes * kLaunchAttributeBytes +
         parameter_size;
}
constexpr uint64_t range_message_size(uint64_t n_ranges) {
  return sizeof(ts_ring_header) + n_ranges * sizeof(ts_ring_range);
}

/// Fills a fresh channel's header (magic, version, sizes). The memory must be zero otherwise.
void initialise_channel(ts_channel* channel);
/// Whether the header of a received channel names this version and these sizes; the text says what differs.
bool channel_matches(const ts_channel* channel, std::string* why);

/// Marks the channel failed, for good; the first call wins. Wakes nobody: lanes are the caller's business.
void fail_channel(ts_channel* channel, int32_t code, const std::string& text);
bool channel_failed(const ts_channel* channel);
struct ChannelFailure {
  int32_t code = 0;
  std::string text;
};
/// Meaningful once channel_failed().
ChannelFailure channel_failure(const ts_channel* channel);

/// Wakes the consumer of this channel if it sleeps. Any thread of either process may do so.
void wake_consumer(ts_channel* channel);

/// The program's end. Not thread-safe; the caller serialises reserve..commit.
class Producer {
 public:
  /// `peer_gone` says whether the consumer's process is gone; it is asked about once a millisecond while waiting.
  Producer(ts_channel* channel, std::function<bool()> peer_gone);

  /// Room for a message of `size` bytes, rounded up to kRingAlignment; `*message` points at it and its header's
  /// size is set, the rest is what an earlier message left there. Waits for room at most `timeout`.
  /// kTimeout, kFailed, kHungUp, kTooLarge (over kMaxRingMessage), kCorrupt (the consumer's tail is impossible).
  /// A second reserve() without commit() replaces the first.
  Status reserve(uint32_t size, std::chrono::milliseconds timeout, void** message);

  /// Publishes what reserve() gave and wakes the consumer if it sleeps.
  void commit();

  /// Wakes the consumer if it sleeps; also to be called after a packet went out by the socket.
  void wake();

  /// Bytes published and not consumed yet.
  uint64_t backlog() const;

 private:
  Status wait_for_room(uint64_t needed, std::chrono::milliseconds timeout);

  ts_channel* channel_;
  std::function<bool()> peer_gone_;
  uint64_t head_ = 0;
  uint64_t reserved_ = 0;  // bytes, with the SKIP before the message
};

/// A message that was copied out of the ring and found well-formed: the program can no longer change it.
struct RingMessage {
  ts_ring_header header{};
  std::span<const ts_ring_range> ranges;
  // Only of a LAUNCH:
  ts_ring_launch launch{};
  std::span<const std::byte> attributes;  ///< launch.n_attributes CUlaunchAttribute, 8-byte aligned
  std::span<const std::byte> parameters;  ///< 8-byte aligned
};

/// Checks type, lane, counts and sizes of the message in [data, data + size) and points `message` into it; ranges
/// are well-formed (begin < end) but not compared with any memory. `size` is the header's own; data is 8-byte
/// aligned. False: `why` says what is wrong.
bool parse_ring_message(const std::byte* data, uint32_t size, RingMessage* message, std::string* why);

/// The worker's end.
class Consumer {
 public:
  Consumer(ts_channel* channel, std::chrono::microseconds spin);

  /// The next message, checked and copied: valid until the next peek(). kEmpty; kCorrupt (error() says what; the
  /// ring cannot be read any further).
  Status peek(RingMessage* message);
  /// Gives the space of the message last peeked back to the producer.
  void pop();

  /// Waits until a message is there, the producer wakes us, `bound` has passed, or `ready` (asked once, just before
  /// sleeping) is true. Polls for the spin time first when `spin` is set.
  void wait(std::chrono::microseconds bound, bool spin, const std::function<bool()>& ready);

  const std::string& error() const { return error_; }

 private:
  bool has_message() const;
  Status corrupt(std::string text);

  ts_channel* channel_;
  std::chrono::microseconds spin_;
  std::unique_ptr<std::byte[]> copy_;
  uint64_t tail_ = 0;
  uint32_t peeked_ = 0;
  std::string error_;
};

}  // namespace tessera::transport
