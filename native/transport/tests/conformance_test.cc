// SPDX-License-Identifier: Apache-2.0
// What every implementation of the Transport seam must do. An implementation
// gives a Far, the worker's end, and a way to attach to it; each case runs once
// for each implementation.
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <thread>

#include "support.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/socket.h"
#include "tessera/transport/transport.h"

namespace tessera::transport {
namespace {

using namespace std::chrono_literals;

/// The worker's end of one attachment.
class Far {
 public:
  virtual ~Far() = default;
  virtual std::optional<Packet> receive(Milliseconds timeout) = 0;
  virtual Consumer& ring() = 0;
  virtual ts_channel* channel() = 0;
  virtual void answer_function(uint32_t function, int32_t status, const char* text) = 0;
};

struct Attached {
  std::unique_ptr<Transport> near;
  std::unique_ptr<Far> far;
};

struct Implementation {
  const char* name;
  /// Attaches; the far side answers with `status` and `text`, as version `version`. Throws what attaching throws.
  std::function<Attached(int32_t status, const char* text, uint16_t version)> attach;
  Attached good() const { return attach(0, "", TS_PROTOCOL_VERSION); }
};

class SharedMemoryFar final : public Far {
 public:
  SharedMemoryFar(Socket socket, int32_t status, const char* text, uint16_t version) : socket_(std::move(socket)) {
    auto packet = socket_.receive(2s);
    REQUIRE(packet);
    attach_ = packet->expect<ts_attach>(2);
    memory_ = SharedMemory::map(std::move(packet->fds[0]), sizeof(ts_channel));
    std::string why;
    REQUIRE(channel_matches(channel(), &why));
    ring_.emplace(channel(), 50us);
    auto answer = make_message<ts_attached>(TS_ATTACHED);
    answer.header.version = version;
    answer.status = status;
    answer.memory_budget = 12345;
    std::strncpy(answer.text, text, sizeof answer.text - 1);
    socket_.send(answer, {}, 1s);
  }
  std::optional<Packet> receive(Milliseconds timeout) override { return socket_.receive(timeout); }
  Consumer& ring() override { return *ring_; }
  ts_channel* channel() override { return memory_.as<ts_channel>(); }
  void answer_function(uint32_t function, int32_t status, const char* text) override {
    auto answer = make_message<ts_function_ready>(TS_FUNCTION_READY);
    answer.function = function;
    answer.status = status;
    std::strncpy(answer.text, text, sizeof answer.text - 1);
    socket_.send(answer, {}, 1s);
  }

 private:
  Socket socket_;
  ts_attach attach_{};
  SharedMemory memory_;
  std::optional<Consumer> ring_;
};

Attached attach_on_this_host(int32_t status, const char* text, uint16_t version) {
  const TemporaryFolder folder;
  const Listener listener = Listener::bind(folder / "worker");
  const SharedMemory counters = SharedMemory::create("counters", 4096);
  Attached attached;
  std::thread server([&] {
    auto socket = listener.accept(2s);
    if (socket) attached.far = std::make_unique<SharedMemoryFar>(std::move(*socket), status, text, version);
  });
  AttachRequest request;
  request.socket = listener.path();
  request.arena_base = 0x200000000000;
  request.arena_size = 1u << 30;
  request.counters = counters.fd().get();
  request.timeout = 2s;
  try {
    attached.near = attach_shared_memory(request);
  } catch (...) {
    server.join();
    throw;
  }
  server.join();
  return attached;
}

const Implementation kImplementations[] = {{"shared memory", attach_on_this_host}};

void for_each_implementation(const std::function<void(const Implementation&)>& body) {
  for (const Implementation& implementation : kImplementations) {
    std::printf("  %s\n", implementation.name);
    body(implementation);
  }
}

TEST_CASE(attaching_brings_the_answer) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    CHECK_EQ(pair.near->attached().memory_budget, 12345u);
    CHECK(!pair.near->hung_up());
    CHECK(!pair.near->failed());
    CHECK_EQ(pair.near->sequence(), 0u);
    CHECK_EQ(reinterpret_cast<uintptr_t>(pair.near->lanes()) % 4096, 0u);
  });
}

TEST_CASE(a_refusal_carries_its_reason) {
  for_each_implementation([](const Implementation& it) {
    try {
      it.attach(801, "the addresses are taken", TS_PROTOCOL_VERSION);
      CHECK(false);
    } catch (const TransportError& error) {
      CHECK_EQ(error.status(), Status::kRefused);
      CHECK(std::strstr(error.what(), "the addresses are taken") != nullptr);
    }
  });
}

TEST_CASE(another_version_is_named_with_ours) {
  for_each_implementation([](const Implementation& it) {
    try {
      it.attach(0, "", TS_PROTOCOL_VERSION + 41);
      CHECK(false);
    } catch (const TransportError& error) {
      CHECK_EQ(error.status(), Status::kRefused);
      CHECK(std::strstr(error.what(), std::to_string(TS_PROTOCOL_VERSION + 41).c_str()) != nullptr);
      CHECK(std::strstr(error.what(), std::to_string(TS_PROTOCOL_VERSION).c_str()) != nullptr);
    }
  });
}

TEST_CASE(sends_arrive_in_order_with_their_sequence) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    const UniqueFd image = make_constant("image", "abc", 3);
    CHECK_EQ(pair.near->send_chunk(0x200000200000, TS_GRANULE, image.get()), 1u);
    CHECK_EQ(pair.near->send_image({1, 2}, 3, image.get()), 2u);
    FunctionRequest request;
    request.function = 5;
    request.image = {1, 2};
    request.parameter_size = 24;
    request.name = "kernel";
    CHECK_EQ(pair.near->send_function(request), 3u);
    CHECK_EQ(pair.near->sequence(), 3u);
    const auto chunk = pair.far->receive(1s);
    REQUIRE(chunk);
    CHECK_EQ(chunk->expect<ts_chunk>(1).sequence, 1u);
    CHECK_EQ(chunk->expect<ts_chunk>(1).address, 0x200000200000u);
    const auto sent_image = pair.far->receive(1s);
    REQUIRE(sent_image);
    CHECK_EQ(sent_image->expect<ts_image>(1).sequence, 2u);
    CHECK_EQ(read_whole(sent_image->fds[0], 3)[2], 'c');
    const auto function = pair.far->receive(1s);
    REQUIRE(function);
    const auto fixed = function->expect<ts_function>();
    CHECK_EQ(fixed.sequence, 3u);
    CHECK_EQ(fixed.max_dynamic_shared, -1);
    CHECK_EQ(function->text_behind(sizeof fixed, fixed.name_size), std::string("kernel"));
  });
}

TEST_CASE(function_answers_come_back) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    CHECK(!pair.near->receive_function_ready(10ms).has_value());
    pair.far->answer_function(5, 209, "wants sm_90, this device is sm_80");
    const auto ready = pair.near->receive_function_ready(1s);
    REQUIRE(ready);
    CHECK_EQ(ready->function, 5u);
    CHECK_EQ(ready->status, 209);
    CHECK_EQ(std::string(ready->text), std::string("wants sm_90, this device is sm_80"));
  });
}

TEST_CASE(ring_messages_arrive) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    void* at = nullptr;
    REQUIRE(pair.near->ring().reserve(sizeof(ts_ring_header), 1s, &at) == Status::kOk);
    auto* header = static_cast<ts_ring_header*>(at);
    header->type = TS_RING_CLOSE_LANE;
    header->lane = 17;
    pair.near->ring().commit();
    RingMessage message;
    for (int i = 0; i < 100 && pair.far->ring().peek(&message) == Status::kEmpty; ++i) {
      pair.far->ring().wait(10ms, false, [] { return false; });
    }
    REQUIRE(pair.far->ring().peek(&message) == Status::kOk);
    CHECK_EQ(message.header.lane, 17u);
  });
}

TEST_CASE(a_send_wakes_the_sleeping_far_side) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    std::atomic<bool> woke{false};
    std::thread reader([&] {
      pair.far->ring().wait(20s, false, [] { return false; });
      woke = true;
    });
    std::this_thread::sleep_for(50ms);
    const UniqueFd image = make_constant("image", "abc", 3);
    const auto start = std::chrono::steady_clock::now();
    pair.near->send_image({1, 2}, 3, image.get());
    reader.join();
    CHECK(woke);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
  });
}

TEST_CASE(lanes_are_shared_both_ways) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    pair.near->lanes()[3].start = 9;
    CHECK_EQ(pair.far->channel()->lanes[3].start, 9u);
    pair.far->channel()->lanes[TS_LANES - 1].done = 4;
    CHECK_EQ(pair.near->lanes()[TS_LANES - 1].done, 4u);
  });
}

TEST_CASE(the_far_sides_failure_is_told) {
  for_each_implementation([](const Implementation& it) {
    const Attached pair = it.good();
    fail_channel(pair.far->channel(), 700, "kernel scale_rows failed");
    CHECK(pair.near->failed());
    CHECK_EQ(pair.near->failure().code, 700);
    CHECK_EQ(pair.near->failure().text, std::string("kernel scale_rows failed"));
    void* at = nullptr;
    CHECK_EQ(pair.near->ring().reserve(64, 1s, &at), Status::kFailed);
  });
}

TEST_CASE(a_far_side_that_goes_away_is_noticed) {
  for_each_implementation([](const Implementation& it) {
    Attached pair = it.good();
    pair.far.reset();
    for (int i = 0; i < 1000 && !pair.near->hung_up(); ++i) std::this_thread::sleep_for(1ms);
    CHECK(pair.near->hung_up());
    const UniqueFd image = make_constant("image", "abc", 3);
    CHECK_EQ(status_of([&] { pair.near->send_image({1, 2}, 3, image.get()); }), Status::kHungUp);
    CHECK_EQ(status_of([&] { pair.near->receive_function_ready(1s); }), Status::kHungUp);
    void* at = nullptr;
    Status status = Status::kOk;
    while (status == Status::kOk) {
      status = pair.near->ring().reserve(kMaxRingMessage, 5s, &at);
      std::memset(static_cast<char*>(at) + 4, 0, 28);
      pair.near->ring().commit();
    }
    CHECK_EQ(status, Status::kHungUp);
  });
}

TEST_CASE(leaving_is_seen_by_the_far_side) {
  for_each_implementation([](const Implementation& it) {
    Attached pair = it.good();
    pair.near.reset();
    CHECK_EQ(pair.far->channel()->header.closed, 1u);
    CHECK_EQ(status_of([&] { pair.far->receive(1s); }), Status::kHungUp);
  });
}

TEST_CASE(a_failed_attachment_leaves_nothing_open) {
  for_each_implementation([](const Implementation& it) {
    const int before = open_descriptors();
    for (int i = 0; i < 10; ++i) {
      CHECK_EQ(status_of([&] { it.attach(801, "no", TS_PROTOCOL_VERSION); }), Status::kRefused);
      it.good();
    }
    CHECK_EQ(open_descriptors(), before);
  });
}

}  // namespace
}  // namespace tessera::transport

TEST_MAIN()
