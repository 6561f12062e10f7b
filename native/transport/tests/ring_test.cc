// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/ring.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <random>
#include <thread>

#include "support.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::transport {
namespace {

using namespace std::chrono_literals;

struct Channel {
  SharedMemory memory = SharedMemory::create("test-channel", sizeof(ts_channel));
  std::atomic<bool> gone{false};
  ts_channel* get() const { return memory.as<ts_channel>(); }
  Producer producer() {
    return Producer(get(), [this] { return gone.load(); });
  }
  Consumer consumer() const { return Consumer(get(), 50us); }
  Channel() { initialise_channel(get()); }
};

/// A JOIN with `n_ranges` ranges whose contents follow from `number`.
Status send_join(Producer& producer, uint32_t number, uint32_t n_ranges, std::chrono::milliseconds timeout = 5000ms) {
  void* at = nullptr;
  const Status status = producer.reserve(static_cast<uint32_t>(range_message_size(n_ranges)), timeout, &at);
  if (status != Status::kOk) return status;
  auto* header = static_cast<ts_ring_header*>(at);
  header->type = TS_RING_JOIN;
  header->flags = 0;
  header->lane = number % TS_LANES;
  header->start = 0;
  header->sequence = 0;
  header->n_ranges = n_ranges;
  header->value = number;
  auto* ranges = reinterpret_cast<ts_ring_range*>(header + 1);
  for (uint32_t i = 0; i < n_ranges; ++i) ranges[i] = {number + i, number + i + 1ull + number % 7, i % 2};
  producer.commit();
  return Status::kOk;
}

bool join_is_right(const RingMessage& message, uint32_t number) {
  if (message.header.type != TS_RING_JOIN || message.header.value != number) return false;
  for (uint32_t i = 0; i < message.ranges.size(); ++i) {
    const ts_ring_range& range = message.ranges[i];
    if (range.begin != number + i || range.end != number + i + 1ull + number % 7 || range.flags != i % 2) return false;
  }
  return message.ranges.size() == message.header.n_ranges;
}

TEST_CASE(one_message_passes) {
  Channel channel;
  Producer producer = channel.producer();
  Consumer consumer = channel.consumer();
  RingMessage message;
  CHECK_EQ(consumer.peek(&message), Status::kEmpty);
  CHECK_EQ(send_join(producer, 3, 2), Status::kOk);
  CHECK(producer.backlog() > 0);
  CHECK_EQ(consumer.peek(&message), Status::kOk);
  CHECK(join_is_right(message, 3));
  CHECK_EQ(consumer.peek(&message), Status::kOk);  // peeking again gives the same
  CHECK(join_is_right(message, 3));
  consumer.pop();
  CHECK_EQ(producer.backlog(), 0u);
  CHECK_EQ(consumer.peek(&message), Status::kEmpty);
}

TEST_CASE(a_launch_has_all_its_parts) {
  Channel channel;
  Producer producer = channel.producer();
  Consumer consumer = channel.consumer();
  void* at = nullptr;
  const auto size = static_cast<uint32_t>(launch_message_size(2, 1, 13));
  REQUIRE(producer.reserve(size, 0ms, &at) == Status::kOk);
  auto* launch = static_cast<ts_ring_launch*>(at);
  const uint32_t rounded = launch->header.size;
  *launch = ts_ring_launch{};
  launch->header.size = rounded;
  launch->header.type = TS_RING_LAUNCH;
  launch->header.n_ranges = 2;
  launch->n_attributes = 1;
  launch->parameter_size = 13;
  auto* ranges = reinterpret_cast<ts_ring_range*>(launch + 1);
  ranges[0] = {1, 2, 0};
  ranges[1] = {5, 9, TS_RANGE_PULL};
  auto* attribute = reinterpret_cast<char*>(ranges + 2);
  std::memset(attribute, 'a', kLaunchAttributeBytes);
  std::memset(attribute + kLaunchAttributeBytes, 'p', 13);
  producer.commit();
  RingMessage message;
  REQUIRE(consumer.peek(&message) == Status::kOk);
  REQUIRE(message.ranges.size() == 2);
  CHECK_EQ(message.ranges[1].end, 9u);
  REQUIRE(message.attributes.size() == kLaunchAttributeBytes);
  CHECK(message.attributes.back() == std::byte{'a'});
  REQUIRE(message.parameters.size() == 13);
  CHECK(message.parameters.front() == std::byte{'p'} && message.parameters.back() == std::byte{'p'});
}

TEST_CASE(messages_wrap_at_the_end) {
  Channel channel;
  Producer producer = channel.producer();
  Consumer consumer = channel.consumer();
  RingMessage message;
  uint64_t bytes = 0;
  for (uint32_t number = 0; bytes < 3ull * TS_RING_BYTES; ++number) {
    const uint32_t n_ranges = 1 + number * 7919 % 3000;
    REQUIRE(send_join(producer, number, n_ranges) == Status::kOk);
    REQUIRE(consumer.peek(&message) == Status::kOk);
    REQUIRE(join_is_right(message, number));
    consumer.pop();
    bytes += range_message_size(n_ranges);
  }
}

TEST_CASE(a_full_ring_times_out_and_loses_nothing) {
  Channel channel;
  Producer producer = channel.producer();
  Consumer consumer = channel.consumer();
  uint32_t sent = 0;
  Status status = Status::kOk;
  while ((status = send_join(producer, sent, 1000, 10ms)) == Status::kOk) ++sent;
  CHECK_EQ(status, Status::kTimeout);
  CHECK(sent * range_message_size(1000) > TS_RING_BYTES - 2 * range_message_size(1000));
  RingMessage message;
  REQUIRE(consumer.peek(&message) == Status::kOk);
  consumer.pop();
  CHECK_EQ(send_join(producer, sent, 900, 10ms), Status::kOk);
  for (uint32_t number = 1; number <= sent; ++number) {
    REQUIRE(consumer.peek(&message) == Status::kOk);
    REQUIRE(join_is_right(message, number));
    consumer.pop();
  }
  CHECK_EQ(consumer.peek(&message), Status::kEmpty);
}

TEST_CASE(a_waiting_producer_sees_failure_and_death) {
  Channel channel;
  Producer producer = channel.producer();
  while (send_join(producer, 1, 1000, 0ms) == Status::kOk) {
  }
  channel.gone = true;
  CHECK_EQ(send_join(producer, 1, 1000), Status::kHungUp);
  channel.gone = false;
  std::thread failer([&] {
    std::this_thread::sleep_for(20ms);
    fail_channel(channel.get(), 700, "the worker broke");
    fail_channel(channel.get(), 1, "a later failure does not replace the first");
  });
  CHECK_EQ(send_join(producer, 1, 1000), Status::kFailed);
  failer.join();
  CHECK_EQ(channel_failure(channel.get()).code, 700);
  CHECK_EQ(channel_failure(channel.get()).text, std::string("the worker broke"));
  CHECK_EQ(send_join(producer, 1, 1), Status::kFailed);
}

TEST_CASE(impossible_sizes_and_tails_are_refused) {
  Channel channel;
  Producer producer = channel.producer();
  void* at = nullptr;
  CHECK_EQ(producer.reserve(kMaxRingMessage + 1, 0ms, &at), Status::kTooLarge);
  CHECK_EQ(producer.reserve(8, 0ms, &at), Status::kTooLarge);
  CHECK_EQ(producer.reserve(kMaxRingMessage, 0ms, &at), Status::kOk);
  producer.commit();
  channel.get()->header.tail = uint64_t{1} << 40;
  CHECK_EQ(producer.reserve(64, 0ms, &at), Status::kCorrupt);
}

TEST_CASE(a_reservation_that_is_not_committed_leaves_no_trace) {
  Channel channel;
  Producer producer = channel.producer();
  Consumer consumer = channel.consumer();
  void* at = nullptr;
  CHECK_EQ(producer.reserve(4096, 0ms, &at), Status::kOk);
  CHECK_EQ(send_join(producer, 9, 1), Status::kOk);
  producer.commit();  // nothing is reserved: nothing is published
  RingMessage message;
  REQUIRE(consumer.peek(&message) == Status::kOk);
  CHECK(join_is_right(message, 9));
  consumer.pop();
  CHECK_EQ(consumer.peek(&message), Status::kEmpty);
}

TEST_CASE(a_sleeping_consumer_is_woken_and_uses_no_time) {
  Channel channel;
  Producer producer = channel.producer();
  std::atomic<bool> got{false};
  std::atomic<int> sleeps{0};
  std::thread reader([&] {
    Consumer consumer = channel.consumer();
    RingMessage message;
    while (consumer.peek(&message) == Status::kEmpty) {
      ++sleeps;
      consumer.wait(10s, true, [] { return false; });
    }
    got = true;
  });
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(300ms);
  getrusage(RUSAGE_SELF, &after);
  const auto used = [](const rusage& u) { return u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec; };
  CHECK(used(after) - used(before) < 100000);
  CHECK(!got);
  const auto start = std::chrono::steady_clock::now();
  CHECK_EQ(send_join(producer, 1, 1), Status::kOk);
  reader.join();
  CHECK(got);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  CHECK(sleeps <= 3);
}

TEST_CASE(waiting_ends_by_its_bound_and_by_ready) {
  Channel channel;
  Consumer consumer = channel.consumer();
  const auto start = std::chrono::steady_clock::now();
  consumer.wait(20ms, false, [] { return false; });
  CHECK(std::chrono::steady_clock::now() - start >= 15ms);
  consumer.wait(60s, false, [] { return true; });
  CHECK(std::chrono::steady_clock::now() - start < 30s);
}

constexpr uint32_t kStressMessages = 40000;

void produce_all(Producer& producer) {
  std::mt19937 random(11);
  for (uint32_t number = 0; number < kStressMessages; ++number) {
    REQUIRE(send_join(producer, number, random() % 64, 20000ms) == Status::kOk);
    if (random() % 4096 == 0) std::this_thread::sleep_for(1ms);
  }
}

int consume_all(Consumer& consumer) {
  std::mt19937 random(12);
  RingMessage message;
  for (uint32_t number = 0; number < kStressMessages;) {
    const Status status = consumer.peek(&message);
    if (status == Status::kEmpty) {
      consumer.wait(5s, random() % 2 == 0, [] { return false; });
      continue;
    }
    if (status != Status::kOk || !join_is_right(message, number)) return 1;
    consumer.pop();
    ++number;
    if (random() % 8192 == 0) std::this_thread::sleep_for(2ms);
  }
  return 0;
}

TEST_CASE(two_threads_exchange_every_message_in_order) {
  Channel channel;
  Producer producer = channel.producer();
  std::atomic<int> result{-1};
  std::thread reader([&] {
    Consumer consumer = channel.consumer();
    result = consume_all(consumer);
  });
  produce_all(producer);
  reader.join();
  CHECK_EQ(result.load(), 0);
}

TEST_CASE(two_processes_exchange_every_message_in_order) {
  Channel channel;
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    Consumer consumer = channel.consumer();
    _exit(consume_all(consumer));
  }
  Producer producer = channel.producer();
  produce_all(producer);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

TEST_CASE(the_header_is_checked) {
  Channel channel;
  std::string why;
  CHECK(channel_matches(channel.get(), &why));
  channel.get()->header.version = 77;
  CHECK(!channel_matches(channel.get(), &why));
  CHECK(why.find("77") != std::string::npos && why.find('1') != std::string::npos);
  channel.get()->header.magic = 0;
  CHECK(!channel_matches(channel.get(), &why));
  initialise_channel(channel.get());
  channel.get()->header.n_lanes = 4;
  CHECK(!channel_matches(channel.get(), &why));
}

}  // namespace
}  // namespace tessera::transport

TEST_MAIN()
