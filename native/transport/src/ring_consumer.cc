// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "atomics.h"
#include "clock.h"
#include "tessera/transport/ring.h"

namespace tessera::transport {

Consumer::Consumer(ts_channel* channel, std::chrono::microseconds spin)
    : channel_(channel),
      spin_(spin),
      copy_(std::make_unique_for_overwrite<std::byte[]>(kMaxRingMessage)),
      tail_(load(channel->header.tail)) {}

bool Consumer::has_message() const { return load(channel_->header.head) != tail_; }

Status Consumer::corrupt(std::string text) {
  error_ = std::move(text);
  return Status::kCorrupt;
}

Status Consumer::peek(RingMessage* message) {
  peeked_ = 0;
  for (;;) {
    const uint64_t published = load(channel_->header.head) - tail_;
    if (published == 0) return Status::kEmpty;
    if (published > TS_RING_BYTES || published % kRingAlignment != 0) {
      return corrupt("the ring's head is impossible");
    }
    const uint64_t position = tail_ % TS_RING_BYTES;
    const uint64_t to_end = TS_RING_BYTES - position;
    const uint8_t* at = channel_->ring + position;
    ts_ring_header header;
    std::memcpy(&header, at, sizeof header);
    if (header.size < kRingAlignment || header.size % kRingAlignment != 0) return corrupt("a message's size is odd");
    if (header.size > published || header.size > to_end) return corrupt("a message ends outside the ring");
    if (header.type == TS_RING_SKIP) {
      if (header.size != to_end) return corrupt("a skip does not lead to the end of the ring");
      peeked_ = header.size;
      pop();
      continue;
    }
    if (header.size > kMaxRingMessage) return corrupt("a message is larger than the protocol allows");
    std::memcpy(copy_.get(), at, header.size);
    if (!parse_ring_message(copy_.get(), header.size, message, &error_)) return Status::kCorrupt;
    peeked_ = header.size;
    return Status::kOk;
  }
}

void Consumer::pop() {
  tail_ += peeked_;
  peeked_ = 0;
  store(channel_->header.tail, tail_);
}

void Consumer::wait(std::chrono::microseconds bound, bool spin, const std::function<bool()>& ready) {
  if (spin) {
    const Clock::time_point until = Clock::now() + spin_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (has_message()) return;
        cpu_relax();
      }
    } while (Clock::now() < until);
  }
  uint32_t& sleeping = channel_->header.sleeping;
  store(sleeping, 1u, std::memory_order_seq_cst);
  const bool empty = load(channel_->header.head, std::memory_order_seq_cst) == tail_;
  if (empty && !ready()) {
    futex_wait(&sleeping, 1, std::chrono::duration_cast<std::chrono::nanoseconds>(bound).count());
  }
  store(sleeping, 0u);
}

}  // namespace tessera::transport
