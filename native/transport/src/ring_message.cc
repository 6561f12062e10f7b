// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "atomics.h"
#include "tessera/transport/ring.h"

namespace tessera::transport {
namespace {

bool reject(std::string* why, const std::string& text) {
  *why = text;
  return false;
}

bool known_type(uint16_t type) { return type >= TS_RING_LAUNCH && type <= TS_RING_CLOSE_LANE; }

bool check_ranges(std::span<const ts_ring_range> ranges, std::string* why) {
  for (const ts_ring_range& range : ranges) {
    if (range.begin >= range.end) return reject(why, "a range ends before it begins");
    if ((range.flags & ~uint64_t{TS_RANGE_PULL}) != 0) return reject(why, "a range has unknown flags");
  }
  return true;
}

bool parse_launch(const std::byte* data, uint32_t size, RingMessage* message, std::string* why) {
  if (size < sizeof(ts_ring_launch)) return reject(why, "a launch message is too short");
  std::memcpy(&message->launch, data, sizeof(ts_ring_launch));
  const ts_ring_launch& launch = message->launch;
  if (launch.n_attributes > kMaxLaunchAttributes) return reject(why, "a launch has too many attributes");
  if (launch.parameter_size > TS_MAX_PARAMETERS) return reject(why, "a launch has too many parameter bytes");
  const uint64_t needed = launch_message_size(launch.header.n_ranges, launch.n_attributes, launch.parameter_size);
  if (needed > size) return reject(why, "a launch message is shorter than its parts");
  const std::byte* behind = data + sizeof(ts_ring_launch) + launch.header.n_ranges * sizeof(ts_ring_range);
  message->ranges = {reinterpret_cast<const ts_ring_range*>(data + sizeof(ts_ring_launch)), launch.header.n_ranges};
  message->attributes = {behind, size_t{launch.n_attributes} * kLaunchAttributeBytes};
  message->parameters = {behind + message->attributes.size(), launch.parameter_size};
  return true;
}

}  // namespace

static_assert(sizeof(ts_ring_header) % 8 == 0 && sizeof(ts_ring_launch) % 8 == 0 && sizeof(ts_ring_range) % 8 == 0,
              "what follows stays 8-byte aligned");
static_assert(sizeof(ts_ring_header) <= kRingAlignment, "a SKIP fits wherever the ring can end");

bool parse_ring_message(const std::byte* data, uint32_t size, RingMessage* message, std::string* why) {
  *message = RingMessage{};
  if (size < sizeof(ts_ring_header)) return reject(why, "a message is shorter than its header");
  std::memcpy(&message->header, data, sizeof(ts_ring_header));
  const ts_ring_header& header = message->header;
  if (header.size != size) return reject(why, "a message changed its size while it was read");
  if (!known_type(header.type)) return reject(why, "message type " + std::to_string(header.type) + " is unknown");
  if (header.flags != 0) return reject(why, "a message has unknown flags");
  if (header.lane >= TS_LANES) return reject(why, "lane " + std::to_string(header.lane) + " does not exist");
  if (header.type == TS_RING_LAUNCH) {
    if (!parse_launch(data, size, message, why)) return false;
  } else {
    if (range_message_size(header.n_ranges) > size) return reject(why, "a message is shorter than its ranges");
    message->ranges = {reinterpret_cast<const ts_ring_range*>(data + sizeof(ts_ring_header)), header.n_ranges};
  }
  return check_ranges(message->ranges, why);
}

void initialise_channel(ts_channel* channel) {
  channel->header.magic = TS_CHANNEL_MAGIC;
  channel->header.version = TS_PROTOCOL_VERSION;
  channel->header.ring_bytes = TS_RING_BYTES;
  channel->header.n_lanes = TS_LANES;
}

bool channel_matches(const ts_channel* channel, std::string* why) {
  const ts_channel_header& header = channel->header;
  if (header.magic != TS_CHANNEL_MAGIC) return reject(why, "the channel's memory is no Tessera channel");
  if (header.version != TS_PROTOCOL_VERSION) {
    return reject(why, "the channel has version " + std::to_string(header.version) + ", this side speaks " +
                           std::to_string(TS_PROTOCOL_VERSION));
  }
  if (header.ring_bytes != TS_RING_BYTES || header.n_lanes != TS_LANES) {
    return reject(why, "the channel has another ring size or number of lanes");
  }
  return true;
}

void fail_channel(ts_channel* channel, int32_t code, const std::string& text) {
  ts_channel_header& header = channel->header;
  int32_t none = 0;
  if (!std::atomic_ref<int32_t>(header.error).compare_exchange_strong(none, code == 0 ? -1 : code)) return;
  const size_t size = std::min(text.size(), sizeof header.error_text - 1);
  std::memcpy(header.error_text, text.data(), size);
  header.error_text[size] = '\0';
  store(header.failed, 1u, std::memory_order_seq_cst);
}

bool channel_failed(const ts_channel* channel) { return load(channel->header.failed) != 0; }

ChannelFailure channel_failure(const ts_channel* channel) {
  const ts_channel_header& header = channel->header;
  return {load(header.error), std::string(header.error_text, strnlen(header.error_text, sizeof header.error_text))};
}

void futex_wait(uint32_t* word, uint32_t expected, int64_t nanoseconds) {
  const timespec limit{static_cast<time_t>(nanoseconds / 1000000000), static_cast<long>(nanoseconds % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

}  // namespace tessera::transport
