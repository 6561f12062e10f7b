// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "atomics.h"
#include "clock.h"
#include "tessera/transport/ring.h"

namespace tessera::transport {

void wake_consumer(ts_channel* channel) {
  uint32_t& sleeping = channel->header.sleeping;
  if (load(sleeping, std::memory_order_seq_cst) == 0) return;
  if (std::atomic_ref<uint32_t>(sleeping).exchange(0, std::memory_order_seq_cst) != 0) futex_wake(&sleeping);
}

Producer::Producer(ts_channel* channel, std::function<bool()> peer_gone)
    : channel_(channel), peer_gone_(std::move(peer_gone)), head_(load(channel->header.head)) {}

Status Producer::reserve(uint32_t size, std::chrono::milliseconds timeout, void** message) {
  reserved_ = 0;
  if (size < sizeof(ts_ring_header) || size > kMaxRingMessage) return Status::kTooLarge;
  size = (size + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
  const uint64_t position = head_ % TS_RING_BYTES;
  const uint64_t to_end = TS_RING_BYTES - position;
  const uint64_t skipped = to_end < size ? to_end : 0;
  if (const Status status = wait_for_room(skipped + size, timeout); status != Status::kOk) return status;
  if (skipped != 0) {
    ts_ring_header skip{};
    skip.size = static_cast<uint32_t>(skipped);
    skip.type = TS_RING_SKIP;
    std::memcpy(channel_->ring + position, &skip, sizeof skip);
  }
  uint8_t* at = channel_->ring + (head_ + skipped) % TS_RING_BYTES;
  std::memcpy(at + offsetof(ts_ring_header, size), &size, sizeof size);
  reserved_ = skipped + size;
  *message = at;
  return Status::kOk;
}

Status Producer::wait_for_room(uint64_t needed, std::chrono::milliseconds timeout) {
  Backoff backoff;
  Clock::time_point deadline{};
  for (;;) {
    if (channel_failed(channel_)) return Status::kFailed;
    const uint64_t used = head_ - load(channel_->header.tail);
    if (used > TS_RING_BYTES) return Status::kCorrupt;
    if (TS_RING_BYTES - used >= needed) return Status::kOk;
    const Clock::time_point now = Clock::now();
    if (deadline == Clock::time_point{}) deadline = now + timeout;
    if (backoff.slow() && peer_gone_()) return Status::kHungUp;
    if (now >= deadline) return peer_gone_() ? Status::kHungUp : Status::kTimeout;
    wake();
    backoff.pause();
  }
}

void Producer::commit() {
  if (reserved_ == 0) return;
  head_ += reserved_;
  reserved_ = 0;
  // Sequentially consistent with the consumer's `sleeping`: either it sees this head or we see it asleep.
  store(channel_->header.head, head_, std::memory_order_seq_cst);
  wake();
}

void Producer::wake() { wake_consumer(channel_); }

uint64_t Producer::backlog() const { return head_ - load(channel_->header.tail); }

}  // namespace tessera::transport
