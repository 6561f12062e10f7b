// SPDX-License-Identifier: Apache-2.0
// The consumer must survive any bytes in the ring: every message that it hands
// out lies inside its copy, everything else is kCorrupt. Sanitizers are the
// judge of the first half, the checks below of the second.
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tessera/transport/ring.h"

namespace tessera::transport {
namespace {

/// Reads every byte that a message claims to have; true when all of it is in order.
bool touch(const RingMessage& message) {
  uint64_t sum = 0;
  for (const ts_ring_range& range : message.ranges) {
    if (range.begin >= range.end) return false;
    sum += range.begin ^ range.flags;
  }
  for (const std::byte byte : message.attributes) sum += static_cast<uint64_t>(byte);
  for (const std::byte byte : message.parameters) sum += static_cast<uint64_t>(byte);
  volatile uint64_t keep = sum;
  (void)keep;
  const size_t parts = message.ranges.size_bytes() + message.attributes.size() + message.parameters.size();
  return message.header.lane < TS_LANES && parts < message.header.size && message.header.size <= kMaxRingMessage &&
         message.header.type >= TS_RING_LAUNCH && message.header.type <= TS_RING_CLOSE_LANE;
}

/// Input: u64 tail, u64 published bytes, then ring contents from the tail on. Returns the messages handed out, or -1
/// for one that should not have been.
int run_input(const uint8_t* data, size_t size) {
  static const auto channel = std::make_unique<ts_channel>();
  if (size < 16) return 0;
  uint64_t tail = 0, published = 0;
  std::memcpy(&tail, data, 8);
  std::memcpy(&published, data + 8, 8);
  tail = tail / kRingAlignment * kRingAlignment;
  data += 16;
  size = std::min<size_t>(size - 16, TS_RING_BYTES);
  for (size_t i = 0; i < size; ++i) channel->ring[(tail + i) % TS_RING_BYTES] = data[i];
  channel->header.tail = tail;
  channel->header.head = tail + published;
  Consumer consumer(channel.get(), std::chrono::microseconds(0));
  RingMessage message;
  int messages = 0;
  Status status = Status::kOk;
  while ((status = consumer.peek(&message)) == Status::kOk) {
    if (!touch(message)) return -1;
    consumer.pop();
    ++messages;
  }
  if (status == Status::kCorrupt && consumer.error().empty()) return -1;
  for (size_t i = 0; i < size; ++i) channel->ring[(tail + i) % TS_RING_BYTES] = 0;
  return messages;
}

#ifndef TESSERA_LIBFUZZER
void append(std::vector<uint8_t>& out, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

/// A few well-formed messages, as run_input takes them.
std::vector<uint8_t> well_formed(std::mt19937_64& random) {
  std::vector<uint8_t> body;
  for (size_t n = 1 + random() % 4; n > 0; --n) {
    ts_ring_launch launch{};
    launch.header.type = static_cast<uint16_t>(1 + random() % 5);
    launch.header.lane = random() % TS_LANES;
    launch.header.n_ranges = random() % 4;
    launch.n_attributes = random() % 3;
    launch.parameter_size = random() % 200;
    const bool is_launch = launch.header.type == TS_RING_LAUNCH;
    const uint64_t size = is_launch
                              ? launch_message_size(launch.header.n_ranges, launch.n_attributes, launch.parameter_size)
                              : range_message_size(launch.header.n_ranges);
    launch.header.size = static_cast<uint32_t>((size + kRingAlignment - 1) / kRingAlignment * kRingAlignment);
    const size_t start = body.size();
    append(body, &launch, is_launch ? sizeof launch : sizeof launch.header);
    for (uint32_t i = 0; i < launch.header.n_ranges; ++i) {
      const ts_ring_range range{random() % 1000, 1000 + random() % 1000, random() % 2};
      append(body, &range, sizeof range);
    }
    body.resize(start + launch.header.size, static_cast<uint8_t>(random()));
  }
  std::vector<uint8_t> input;
  const uint64_t tail = random() % 2 == 0 ? 0 : TS_RING_BYTES - body.size() - kRingAlignment * (random() % 3);
  const uint64_t published = body.size();
  append(input, &tail, 8);
  append(input, &published, 8);
  append(input, body.data(), body.size());
  return input;
}

void mutate(std::vector<uint8_t>& input, std::mt19937_64& random) {
  static constexpr uint32_t kNasty[] = {0,         1, 63, 64, 65, 0x7fffffff, 0x80000000, 0xffffffff, TS_RING_BYTES,
                                        0xffffffc0};
  for (size_t n = 1 + random() % 6; n > 0; --n) {
    const size_t at = random() % input.size();
    if (random() % 2 == 0) {
      input[at] ^= static_cast<uint8_t>(1u << random() % 8);
    } else if (at + 4 <= input.size()) {
      std::memcpy(&input[at / 4 * 4], &kNasty[random() % std::size(kNasty)], 4);
    }
  }
}
#endif

}  // namespace
}  // namespace tessera::transport

#ifdef TESSERA_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (tessera::transport::run_input(data, size) < 0) __builtin_trap();
  return 0;
}
#else
int main() {
  using namespace tessera::transport;
  std::mt19937_64 random(2024);
  int accepted = 0, delivered = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<uint8_t> input = well_formed(random);
    const int whole = run_input(input.data(), input.size());
    accepted += whole > 0;
    mutate(input, random);
    const int got = run_input(input.data(), input.size());
    if (whole < 0 || got < 0) {
      std::fprintf(stderr, "round %d: a message that breaks the protocol was handed out\n", round);
      return 1;
    }
    delivered += got;
  }
  std::printf("4000 inputs: %d well-formed ones accepted, %d messages out of mutated ones\n", accepted, delivered);
  return accepted == 4000 && delivered > 0 ? 0 : 1;
}
#endif
