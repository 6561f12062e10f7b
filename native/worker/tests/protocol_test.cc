// SPDX-License-Identifier: Apache-2.0
// What a worker does with programs that break the protocol: they lose their
// session and are told why, the worker and the other programs go on.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "fake_home.h"
#include "kernels.h"
#include "tessera/transport/socket.h"
#include "testing/check.h"
#include "worker_process.h"

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;
using transport::make_header;
using transport::make_message;
using transport::SharedMemory;
using transport::Socket;
using transport::TransportError;
using transport::UniqueFd;

constexpr uint64_t kElsewhere = kSlotBase + kSlotSize;

/// Another program, whose health shows the worker's.
struct Bystander {
  FakeHome home;
  explicit Bystander(const WorkerProcess& worker) : home(worker.socket(), kElsewhere) {
    home.add_chunk(home.base(), kGranule);
    CHECK_EQ(home.load(0, "add", kKernels, 16), std::string());
  }
  bool works() {
    home.write(home.base(), std::vector<uint32_t>(64, 8));
    Launch launch;
    launch.block = 64;
    launch.parameters = pack(home.base(), uint32_t{64}, uint32_t{1});
    launch.ranges = {{home.base(), 256}};
    return home.run(launch, {{home.base(), 256}}) && home.read(home.base(), 64) == std::vector<uint32_t>(64, 9);
  }
};

WorkerProcess::Setup impatient() {
  WorkerProcess::Setup setup;
  setup.environment = {{"TESSERA_TIMEOUT_MS", "400"}};
  return setup;
}

/// Sends `bytes` as the first packet; the text of the refusal, or "" when the connection just ends.
std::string first_packet(const WorkerProcess& worker, const void* bytes, size_t size, std::span<const int> fds) {
  const Socket socket = Socket::connect(worker.socket(), 2s);
  socket.send(bytes, size, fds, 2s);
  try {
    const auto packet = socket.receive(5s);
    REQUIRE(packet);
    const auto answer = packet->expect<ts_attached>();
    CHECK(answer.status != 0);
    CHECK_EQ(answer.device.compute_capability > 0, true);
    return answer.text;
  } catch (const TransportError&) {
    return "";
  }
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' is not in '%s'\n", part.c_str(), text.c_str());
  return false;
}

struct GoodAttach {
  SharedMemory channel = SharedMemory::create("channel", sizeof(ts_channel));
  SharedMemory counters = make_counters();
  ts_attach message = make_message<ts_attach>(TS_ATTACH);
  GoodAttach() {
    transport::initialise_channel(channel.as<ts_channel>());
    message.arena_base = kSlotBase;
    message.arena_size = kSlotSize;
    message.pid = getpid();
    message.index = 1;
  }
  std::string send(const WorkerProcess& worker) const {
    const int fds[] = {channel.fd().get(), counters.fd().get()};
    return first_packet(worker, &message, sizeof message, fds);
  }
};

TEST_CASE(another_version_is_refused_and_both_are_named) {
  const WorkerProcess worker;
  GoodAttach attach;
  attach.message.header.version = TS_PROTOCOL_VERSION + 6;
  const std::string text = attach.send(worker);
  CHECK(contains(text, "protocol " + std::to_string(TS_PROTOCOL_VERSION + 6)));
  CHECK(contains(text, "worker " + std::to_string(TS_PROTOCOL_VERSION)));
  // Also when the other version's messages have other sizes, or come without descriptors.
  ts_message header = make_header(TS_ATTACH, sizeof header);
  header.version = 99;
  CHECK(contains(first_packet(worker, &header, sizeof header, {}), "99"));
  header.type = TS_OBSERVE;
  CHECK(contains(first_packet(worker, &header, sizeof header, {}), "99"));
  CHECK(Bystander(worker).works());
}

TEST_CASE(an_attachment_that_is_not_right_is_refused) {
  const WorkerProcess worker;
  const auto refused = [&](const std::string& part, const std::function<void(GoodAttach&)>& spoil) {
    GoodAttach attach;
    spoil(attach);
    return contains(attach.send(worker), part);
  };
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_base += 4096; }));
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_size -= 1; }));
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_size = 0; }));
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_base = 0; }));
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_base = UINT64_MAX - kGranule + 1; }));
  CHECK(refused("whole granules", [](GoodAttach& it) { it.message.arena_size = uint64_t{1} << 60; }));
  CHECK(refused("worker 7", [](GoodAttach& it) { it.message.index = 7; }));
  CHECK(refused("no Tessera channel", [](GoodAttach& it) { it.channel.as<ts_channel>()->header.magic = 5; }));
  CHECK(refused("version 9", [](GoodAttach& it) { it.channel.as<ts_channel>()->header.version = 9; }));
  CHECK(refused("ring size", [](GoodAttach& it) { it.channel.as<ts_channel>()->header.ring_bytes = 64; }));
  CHECK(refused("bytes", [](GoodAttach& it) { it.channel = SharedMemory::create("channel", 4096); }));
  CHECK(refused("counters table", [](GoodAttach& it) { it.counters.as<ts_counters_table>()->magic = 0; }));
  CHECK(refused("bytes", [](GoodAttach& it) { it.counters = SharedMemory::create("counters", 64); }));
  const GoodAttach good;
  const auto refused_fds = [&](const std::string& part, std::vector<int> fds) {
    return contains(first_packet(worker, &good.message, sizeof good.message, fds), part);
  };
  const UniqueFd unsealed(memfd_create("channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(unsealed.get(), sizeof(ts_channel)) == 0);
  const int channel = good.channel.fd().get(), counters = good.counters.fd().get();
  CHECK(refused_fds("sealed", {unsealed.get(), counters}));
  CHECK(refused_fds("sealed", {channel, unsealed.get()}));
  CHECK(refused_fds("sealed", {STDIN_FILENO, counters}));
  CHECK(refused_fds("descriptors", {channel}));
  CHECK(refused_fds("descriptors", {}));
  CHECK(refused_fds("descriptors", {channel, counters, counters}));
  CHECK(Bystander(worker).works());
}

TEST_CASE(a_first_message_of_another_kind_is_refused) {
  const WorkerProcess worker;
  const auto chunk = make_message<ts_chunk>(TS_CHUNK);
  const int fd = 0;
  CHECK(contains(first_packet(worker, &chunk, sizeof chunk, {&fd, 1}), "must be an attachment"));
  ts_attach cut = make_message<ts_attach>(TS_ATTACH);
  cut.header.size = 20;
  const int fds[] = {0, 0};
  CHECK(contains(first_packet(worker, &cut, 20, fds), "20 bytes"));
  CHECK_EQ(first_packet(worker, &cut, 10, {}), std::string());  // no message at all: just closed
  CHECK_EQ(first_packet(worker, "GET / HTTP/1.1\r\n\r\n", 18, {}), std::string());
  CHECK(Bystander(worker).works());
}

TEST_CASE(taken_addresses_are_refused_until_they_are_free) {
  const WorkerProcess worker;
  auto first = std::make_unique<FakeHome>(worker.socket());
  for (const uint64_t shift : {uint64_t{0}, kSlotSize / 2}) {
    GoodAttach attach;
    attach.message.arena_base += shift;
    CHECK(contains(attach.send(worker), "another program"));
  }
  CHECK(Bystander(worker).works());  // the neighbouring slot is free
  first.reset();
  CHECK(!FakeHome(worker.socket()).link().hung_up());  // at once: the worker waits for the leaving one
}

TEST_CASE(connections_that_say_nothing_stop_nobody) {
  WorkerProcess worker(impatient());
  for (int i = 0; i < 10; ++i) Socket::connect(worker.socket(), 2s);
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Socket::connect(worker.socket(), 2s));
  CHECK(Bystander(worker).works());
  CHECK(eventually([&] { return silent.back().hung_up(); }, 3000));
  CHECK(worker.running());
}

/// One bad deed: what the text of the failure must contain, and the deed.
struct Deed {
  const char* says;
  std::function<void(FakeHome&)> commit;
};

void spoil_chunk(FakeHome& home, uint64_t address, uint64_t size, int fd = -1) {
  const SharedMemory other = SharedMemory::create("no device memory", 4096);
  home.link().send_chunk(address, size, fd >= 0 ? fd : other.fd().get());
}

Launch good_launch(const FakeHome& home) {
  Launch launch;
  launch.block = 64;
  launch.parameters = pack(home.base(), uint32_t{64}, uint32_t{1});
  launch.ranges = {{home.base(), 256}};
  return launch;
}

void send_raw_ring(FakeHome& home, const std::function<void(ts_ring_header*)>& fill) {
  void* at = nullptr;
  REQUIRE(home.link().ring().reserve(256, 2s, &at) == transport::Status::kOk);
  auto* header = static_cast<ts_ring_header*>(at);
  const uint32_t size = header->size;
  std::memset(at, 0, 256);
  header->size = size;
  header->type = TS_RING_JOIN;
  fill(header);
  home.link().ring().commit();
}

void launch_with(FakeHome& home, const std::function<void(Launch&)>& change) {
  Launch launch = good_launch(home);
  change(launch);
  home.launch(launch);
}

std::vector<Deed> deeds() {
  const auto image = [](FakeHome& home, const char* bytes, uint64_t claimed) {
    const UniqueFd fd = transport::make_constant("image", bytes, std::strlen(bytes));
    home.link().send_image({1, 2}, claimed, fd.get());
  };
  return {
      {"outside home's chunks",
       [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0].address += 8 * kGranule; }); }},
      {"outside home's chunks",
       [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0].size = 5 * kGranule; }); }},
      {"outside home's chunks",
       [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0] = {kElsewhere, 64}; }); }},
      {"outside home's chunks", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0] = {64, 64}; }); }},
      {"ends before it begins", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0].size = 0; }); }},
      {"ends before it begins", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.ranges[0].size = -300; }); }},
      {"never announced", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.function = 77; }); }},
      {"never announced", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.function = UINT32_MAX; }); }},
      {"parameter bytes", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.parameters.resize(64); }); }},
      {"attribute 7",
       [](FakeHome& h) {
         launch_with(h, [&](Launch& l) {
           l.attributes.resize(1);
           l.attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
         });
       }},
      {"too many attributes", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.attributes.resize(33); }); }},
      {"launching add", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.block = 5000; }); }},
      {"launching add", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.dynamic_shared = 1u << 30; }); }},
      {"did not come", [](FakeHome& h) { launch_with(h, [&](Launch& l) { l.sequence = 1000; }); }},
      {"could not",
       [](FakeHome& h) {
         CHECK(!h.load(9, "missing", kKernels, 0).empty());
         launch_with(h, [&](Launch& l) { l.function = 9; });
       }},
      {"goes back",
       [](FakeHome& h) {
         launch_with(h, [&](Launch& l) { l.start = 1000; });
         launch_with(h, [&](Launch& l) { l.start = 999; });
       }},
      {"lane 512", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->lane = 512; }); }},
      {"type 6", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->type = TS_RING_COPY; }); }},
      {"type 999", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->type = 999; }); }},
      {"size is odd", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->size = 100; }); }},
      {"size is odd", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->size = 0; }); }},
      {"outside the ring", [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->size = 1 << 20; }); }},
      {"shorter than its ranges",
       [](FakeHome& h) { send_raw_ring(h, [](ts_ring_header* m) { m->n_ranges = UINT32_MAX; }); }},
      {"shorter than its parts",
       [](FakeHome& h) {
         send_raw_ring(h, [](ts_ring_header* m) {
           m->type = TS_RING_LAUNCH;
           reinterpret_cast<ts_ring_launch*>(m)->parameter_size = 30000;
         });
       }},
      {"head is impossible",
       [](FakeHome& h) {
         std::atomic_ref(reinterpret_cast<ts_channel*>(reinterpret_cast<char*>(h.link().lanes()) - 4096)->header.head)
             .store(uint64_t{1} << 50);
       }},
      {"never here", [](FakeHome& h) { h.join(0, {{h.base() + 2 * kGranule, 64}}); }},
      {"outside home's chunks", [](FakeHome& h) { h.join(0, {{h.base() + 100 * kGranule, 64}}); }},
      {"whole chunks", [](FakeHome& h) { h.send_ranges(TS_RING_RELEASE, 0, {{h.base(), kGranule}}, 0, 0); }},
      {"whole chunks", [](FakeHome& h) { h.send_ranges(TS_RING_RELEASE, 0, {{h.base(), 5 * kGranule}}, 0, 0); }},
      {"whole chunks",
       [](FakeHome& h) {
         h.send_ranges(TS_RING_RELEASE, 0, {{h.base(), 4 * kGranule}, {h.base(), 4 * kGranule}}, 0, 0);
       }},
      {"whole granules", [](FakeHome& h) { h.evict(h.base() + 64, kGranule); }},
      {"whole granules", [](FakeHome& h) { h.evict(kElsewhere, kGranule); }},
      {"outside the slot", [](FakeHome& h) { spoil_chunk(h, kElsewhere, kGranule); }},
      {"outside the slot", [](FakeHome& h) { spoil_chunk(h, h.base() + kSlotSize - kGranule, 2 * kGranule); }},
      {"outside the slot", [](FakeHome& h) { spoil_chunk(h, UINT64_MAX - 10, 2 * kGranule); }},
      {"cuMemImportFromShareableHandle", [](FakeHome& h) { spoil_chunk(h, h.base() + 8 * kGranule, kGranule); }},
      {"overlaps",
       [](FakeHome& h) {
         Arena elsewhere(kElsewhere + 4 * kSlotSize, 8 * kGranule);
         const UniqueFd fd = elsewhere.map(kElsewhere + 4 * kSlotSize, 4 * kGranule);
         spoil_chunk(h, h.base() + 2 * kGranule, 4 * kGranule, fd.get());
         h.join(0, {});
       }},
      {"cuMemMap",
       [](FakeHome& h) {  // claims more than the memory has
         Arena elsewhere(kElsewhere + 4 * kSlotSize, 8 * kGranule);
         const UniqueFd fd = elsewhere.map(kElsewhere + 4 * kSlotSize, kGranule);
         spoil_chunk(h, h.base() + 8 * kGranule, 4 * kGranule, fd.get());
         h.join(0, {});
       }},
      {"shorter than", [image](FakeHome& h) { image(h, "abc", 4); }},
      {"empty or too large", [image](FakeHome& h) { image(h, "abc", 0); }},
      {"empty or too large", [image](FakeHome& h) { image(h, "abc", UINT64_MAX); }},
      {"image that was not sent",
       [](FakeHome& h) {
         transport::FunctionRequest request;
         request.image = {99, 99};
         request.name = "add";
         h.link().send_function(request);
       }},
      {"number is too large",
       [](FakeHome& h) {
         transport::FunctionRequest request;
         request.function = UINT32_MAX;
         request.image = {std::hash<std::string>()(kKernels), std::strlen(kKernels)};
         request.name = "add";
         h.link().send_function(request);
       }},
      {"announced twice",
       [](FakeHome& h) {
         transport::FunctionRequest request;
         request.image = {std::hash<std::string>()(kKernels), std::strlen(kKernels)};
         request.parameter_size = 16;
         request.name = "add";
         h.link().send_function(request);
       }},
      {"name is empty",
       [](FakeHome& h) {
         transport::FunctionRequest request;
         request.function = 3;
         h.link().send_function(request);
       }},
  };
}

TEST_CASE(each_bad_deed_costs_the_session_and_nothing_else) {
  WorkerProcess worker(impatient());
  Bystander bystander(worker);
  for (const Deed& deed : deeds()) {
    FakeHome home(worker.socket());
    home.add_chunk(home.base(), 4 * kGranule);
    CHECK_EQ(home.load(0, "add", kKernels, 16), std::string());
    home.launch(good_launch(home));
    const uint32_t value = home.join(0, {{home.base(), 256}});
    CHECK(eventually([&] { return home.done(0) == value; }));
    deed.commit(home);
    if (!home.wait_failed(5000)) {
      std::fprintf(stderr, "'%s' was not noticed\n", deed.says);
      CHECK(false);
      continue;
    }
    if (std::strcmp(deed.says, "could not") != 0) CHECK(contains(home.link().failure().text, deed.says));
    home.wait_done(1, 1);
    std::atomic_ref<uint32_t>(home.link().lanes()[1].requested).store(1);
    CHECK(home.synchronize(1, 5000));
  }
  CHECK(bystander.works());
  CHECK(worker.running());
  const SharedMemory status = worker.observe();
  CHECK(eventually([&] { return std::atomic_ref(status.as<ts_worker_status>()->sessions).load() == 1; }));
  CHECK_EQ(status.as<ts_worker_status>()->memory_used, kGranule);
}

TEST_CASE(unexpected_socket_messages_cost_the_session) {
  const WorkerProcess worker;
  Bystander bystander(worker);
  const GoodAttach attach;
  const auto talk = [&](const void* bytes, size_t size, std::span<const int> fds) {
    const Socket socket = Socket::connect(worker.socket(), 2s);
    transport::initialise_channel(attach.channel.as<ts_channel>());
    const int channel_fds[] = {attach.channel.fd().get(), attach.counters.fd().get()};
    socket.send(attach.message, channel_fds, 2s);
    REQUIRE(socket.receive(5s));
    socket.send(bytes, size, fds, 2s);
    const bool failed = eventually([&] { return transport::channel_failed(attach.channel.as<ts_channel>()); }, 5000);
    ts_channel_header& header = attach.channel.as<ts_channel>()->header;
    const std::string text = header.error_text;
    std::memset(&header, 0, sizeof header);
    return failed ? text : "not noticed";
  };
  auto chunk = make_message<ts_chunk>(TS_CHUNK);
  chunk.sequence = 5;
  chunk.address = kSlotBase;
  chunk.size = kGranule;
  const int fd = 0;
  CHECK(contains(talk(&chunk, sizeof chunk, {&fd, 1}), "message 5 came behind message 0"));
  chunk.sequence = 1;
  CHECK(contains(talk(&chunk, sizeof chunk, {}), "descriptors"));
  chunk.header.version = 3;
  CHECK(contains(talk(&chunk, sizeof chunk, {&fd, 1}), "version"));
  const auto again = make_message<ts_attach>(TS_ATTACH);
  CHECK(contains(talk(&again, sizeof again, {}), "message 32"));
  auto function = make_message<ts_function>(TS_FUNCTION);
  function.sequence = 1;
  function.name_size = 1000;
  CHECK(contains(talk(&function, sizeof function, {}), "text"));
  CHECK(contains(talk("junk junk junk junk", 19, {}), "no Tessera message"));
  CHECK(bystander.works());
}

TEST_CASE(random_ring_bytes_never_reach_further_than_the_session) {
  WorkerProcess worker(impatient());
  Bystander bystander(worker);
  std::mt19937_64 random(77);
  int failed = 0;
  for (int round = 0; round < 120; ++round) {
    FakeHome home(worker.socket());
    home.add_chunk(home.base(), 4 * kGranule);
    CHECK_EQ(home.load(0, "ignore", kKernels, 16), std::string());
    for (int n = 0; n < 5 && !home.link().failed(); ++n) {
      void* at = nullptr;
      if (home.link().ring().reserve(256, 2s, &at) != transport::Status::kOk) break;
      auto* message = static_cast<ts_ring_launch*>(at);
      *message = ts_ring_launch{};
      message->header.size = 256;
      message->header.type = static_cast<uint16_t>(1 + random() % 5);
      message->header.n_ranges = random() % 3;
      message->block[0] = message->grid[0] = message->grid[1] = message->grid[2] = message->block[1] =
          message->block[2] = 1;
      message->parameter_size = 16;
      auto* range = reinterpret_cast<ts_ring_range*>(message + 1);
      for (int i = 0; i < 2; ++i) {
        range[i].begin = home.base() + random() % 3 * kGranule;
        range[i].end = range[i].begin + (random() % 2 == 0 ? kGranule : 64);
        range[i].flags = random() % 2;
      }
      const auto parameters = pack(home.base(), uint32_t{1}, uint32_t{1});
      std::memcpy(reinterpret_cast<char*>(message + 1) + message->header.n_ranges * sizeof(ts_ring_range),
                  parameters.data(), 16);
      // The kernel follows no pointer: one that did would break the context with any wrong parameter.
      auto* bytes = static_cast<uint8_t*>(at);
      for (uint64_t flips = random() % 3; flips > 0; --flips) {
        const size_t at_byte = random() % sizeof(ts_ring_launch);
        const bool in_grid = at_byte >= offsetof(ts_ring_launch, grid) && at_byte < offsetof(ts_ring_launch, block);
        if (!in_grid) bytes[at_byte] ^= static_cast<uint8_t>(1u << random() % 8);  // a huge grid is only slow
      }
      home.link().ring().commit();
    }
    if (eventually([&] { return home.link().failed(); }, 30)) ++failed;
  }
  CHECK(failed > 20);
  CHECK(bystander.works());
  CHECK(worker.running());
}

}  // namespace
}  // namespace tessera::worker::testing

TEST_MAIN()
