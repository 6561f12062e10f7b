// SPDX-License-Identifier: Apache-2.0
// What a worker does for a well-behaved program.
#include <random>

#include "fake_home.h"
#include "kernels.h"
#include "testing/check.h"
#include "worker_process.h"

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kAdd = 0, kCombine = 1;

std::vector<uint32_t> counting(size_t n, uint32_t from) {
  std::vector<uint32_t> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = from + static_cast<uint32_t>(i);
  return values;
}

void load_kernels(FakeHome& home) {
  CHECK_EQ(home.load(kAdd, "add", kKernels, 16), std::string());
  CHECK_EQ(home.load(kCombine, "combine", kKernels, 24), std::string());
}

Launch add(uint64_t data, uint32_t n, uint32_t amount, uint32_t lane = 0, bool pull = true) {
  Launch launch;
  launch.function = kAdd;
  launch.lane = lane;
  launch.grid = (n + 127) / 128;
  launch.block = 128;
  launch.parameters = pack(data, n, amount);
  launch.ranges = {{data, n * 4ull, pull}};
  return launch;
}

Launch combine(uint64_t out, uint64_t a, uint64_t b, uint32_t lane = 0) {
  Launch launch;
  launch.function = kCombine;
  launch.lane = lane;
  launch.block = 64;
  launch.parameters = pack(out, a, b);
  launch.ranges = {{out, 256, false}, {a, 256}, {b, 256}};
  return launch;
}

TEST_CASE(a_launch_computes_and_comes_home) {
  const WorkerProcess worker;
  REQUIRE(worker.ready());
  FakeHome home(worker.socket());
  CHECK(home.link().attached().device.compute_capability >= 80);
  CHECK_EQ(home.link().attached().memory_budget, uint64_t{256} << 20);
  home.add_chunk(home.base(), 2 * kGranule);
  load_kernels(home);
  const uint64_t data = home.base() + 4096;
  home.write(data, counting(1000, 7));
  CHECK(home.run(add(data, 1000, 5), {{data, 4000}}));
  CHECK(home.read(data, 1000) == counting(1000, 12));
  // Only what was pushed changed at home.
  home.write(data, counting(1000, 0));
  CHECK(home.run(add(data, 1000, 1), {{data + 400, 40}}));
  const auto partly = home.read(data, 1000);
  for (uint32_t i = 0; i < 1000; ++i) CHECK_EQ(partly[i], i + (i >= 100 && i < 110 ? 1 : 0));
}

TEST_CASE(ranges_may_cross_chunks_and_granules) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  for (int i = 0; i < 4; ++i) home.add_chunk(home.base() + i * kGranule, kGranule);
  load_kernels(home);
  const uint64_t data = home.base() + 100 * 4;
  const uint32_t n = 3 * kGranule / 4;
  home.write(data, counting(n, 1));
  CHECK(home.run(add(data, n, 2), {{data, n * 4ull}}));
  CHECK(home.read(data, n) == counting(n, 3));
}

TEST_CASE(data_stays_until_it_is_joined) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), 2 * kGranule);
  load_kernels(home);
  const uint64_t a = home.base(), b = a + 4096, c = a + kGranule;
  home.write(a, counting(64, 10));
  home.write(b, counting(64, 100));
  home.write(c, std::vector<uint32_t>(64, 0));
  Launch first = add(a, 64, 1);
  first.start = home.write_start(0);
  home.launch(first);
  home.launch(add(a, 64, 1, 0, false));
  Launch third = combine(c, a, b);
  third.ranges = {{c, 256, false}, {a, 256, false}, {b, 256, true}};
  home.launch(third);
  home.wait_done(0, home.join(0, {{c, 256}}));
  CHECK(home.synchronize(0));
  const auto result = home.read(c, 64);
  for (uint32_t i = 0; i < 64; ++i) CHECK_EQ(result[i], 3 * (10 + i + 2) + 100 + i);
  CHECK(home.read(a, 64) == counting(64, 10));  // was not pushed
}

TEST_CASE(a_lane_waits_for_its_start) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  load_kernels(home);
  const uint64_t data = home.base();
  home.write(data, counting(64, 0));
  Launch late = add(data, 64, 1, 3);
  late.start = home.unwritten_start(3);
  home.launch(late);
  const uint32_t value = home.join(3, {{data, 256}});
  Launch other = add(data + 4096, 64, 1, 4);  // another lane is not held up
  CHECK(home.run(other, {}));
  CHECK(home.done(3) != value);
  home.write(data, counting(64, 1000));  // what home does before start is seen
  home.set_start(3, late.start);
  CHECK(eventually([&] { return home.done(3) == value; }));
  CHECK(home.read(data, 64) == counting(64, 1001));
}

TEST_CASE(many_lanes_at_once) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), 4 * kGranule);
  load_kernels(home);
  constexpr uint32_t kLanes = 24, kRounds = 20;
  const auto data = [&](uint32_t lane) { return home.base() + lane * 65536ull; };
  for (uint32_t lane = 0; lane < kLanes; ++lane) home.write(data(lane), counting(200, lane));
  std::vector<uint32_t> done(kLanes);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      Launch launch = add(data(lane), 200, lane + 1, lane);
      launch.start = home.write_start(lane);
      home.launch(launch);
      done[lane] = home.join(lane, {{data(lane), 800}});
      home.wait_done(lane, done[lane]);
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    CHECK(home.synchronize(lane));
    CHECK(home.read(data(lane), 200) == counting(200, lane + kRounds * (lane + 1)));
  }
  CHECK_EQ(home.counters().workers[1].launches, uint64_t{kLanes} * kRounds);
  CHECK_EQ(home.counters().workers[1].joins, uint64_t{kLanes} * kRounds);
  CHECK_EQ(home.counters().workers[1].bytes_pulled, uint64_t{kLanes} * kRounds * 800);
  CHECK_EQ(home.counters().workers[1].bytes_pushed, uint64_t{kLanes} * kRounds * 800);
}

TEST_CASE(a_long_queue_behind_a_wait_does_not_block_the_worker) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  load_kernels(home);
  const uint64_t data = home.base();
  home.write(data, counting(64, 0));
  const uint32_t start = home.unwritten_start(0);
  for (int i = 0; i < 3000; ++i) {
    Launch launch = add(data, 64, 1, 0, i == 0);
    launch.start = start;
    home.launch(launch);
  }
  const uint32_t value = home.join(0, {{data, 256}});
  std::this_thread::sleep_for(200ms);
  home.set_start(0, start);
  CHECK(eventually([&] { return home.done(0) == value; }, 30000));
  CHECK(home.read(data, 64) == counting(64, 3000));
}

TEST_CASE(pointers_in_device_memory_mean_the_same) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  home.add_chunk(home.base() + 8 * kGranule, kGranule);
  CHECK_EQ(home.load(0, "follow", kKernels, 8), std::string());
  const uint64_t table = home.base(), target = home.base() + 8 * kGranule + 64;
  std::vector<uint32_t> words;
  for (uint64_t i = 0; i < 32; ++i) {
    words.push_back(static_cast<uint32_t>(target + i * 128));
    words.push_back(static_cast<uint32_t>((target + i * 128) >> 32));
  }
  home.write(table, words);
  home.write(target, counting(1024, 0));
  Launch launch;
  launch.block = 32;
  launch.parameters = pack(table);
  launch.ranges = {{table, 256}, {target, 4096}};
  CHECK(home.run(launch, {{target, 4096}}));
  const auto result = home.read(target, 1024);
  for (uint32_t i = 0; i < 1024; ++i) CHECK_EQ(result[i], i + (i % 32 == 0 ? 1 : 0));
}

TEST_CASE(parameters_shared_memory_and_attributes_are_carried) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  const uint64_t out = home.base();
  CHECK_EQ(home.load(0, "wide", kKernels, 608), std::string());
  Launch wide;
  wide.parameters.resize(608, std::byte{0});
  std::memcpy(wide.parameters.data(), &out, 8);
  const uint32_t last = 0xfeedbeef;
  std::memcpy(wide.parameters.data() + 604, &last, 4);
  wide.ranges = {{out, 4, false}};
  CHECK(home.run(wide, {{out, 4}}));
  CHECK_EQ(home.read(out, 1)[0], last);

  CHECK_EQ(home.load(1, "shared_user", kKernels, 12, 90000), std::string());
  Launch shared;
  shared.function = 1;
  shared.block = 32;
  shared.dynamic_shared = 90000;
  shared.parameters = pack(out, uint32_t{90000 - 128});
  shared.ranges = {{out, 128, false}};
  CUlaunchAttribute priority{};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  priority.value.priority = 0;
  shared.attributes = {priority};
  CHECK(home.run(shared, {{out, 128}}));
  CHECK(home.read(out, 32) == counting(32, 0));

  CHECK_EQ(home.load(2, "local_user", kKernels, 8), std::string());
  Launch local;
  local.function = 2;
  local.block = 64;
  local.parameters = pack(out);
  local.ranges = {{out, 256, false}};
  CHECK(home.run(local, {{out, 256}}));
  CHECK(home.read(out, 64) == counting(64, 0));
  CHECK(!home.link().failed());
}

TEST_CASE(device_time_is_sampled) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  load_kernels(home);
  const uint64_t data = home.base();
  home.write(data, counting(64, 0));
  const ts_kernel_counters& row = home.counters().kernels[17];
  const auto launch_many = [&](int n) {
    Launch launch = add(data, 64, 1, 0, false);
    launch.counter_slot = 17;
    for (int i = 0; i < n; ++i) home.launch(launch);
    const uint32_t value = home.join(0, {});
    CHECK(eventually([&] { return home.done(0) == value; }));
  };
  launch_many(20);
  CHECK(eventually([&] { return std::atomic_ref(const_cast<uint64_t&>(row.timed[1])).load() == 20; }));
  CHECK(row.time_ns[1] > 0);
  launch_many(640);
  CHECK(eventually([&] { return std::atomic_ref(const_cast<uint64_t&>(row.timed[1])).load() == 30; }));
  Launch without_row = add(data, 64, 1);
  without_row.counter_slot = UINT32_MAX;
  CHECK(home.run(without_row, {}));
  const transport::SharedMemory status = worker.observe();
  CHECK(status.as<ts_worker_status>()->busy_ns >= row.time_ns[1]);
  CHECK_EQ(status.as<ts_worker_status>()->launches, 661u);
  CHECK_EQ(status.as<ts_worker_status>()->state, 1u);
  CHECK_EQ(status.as<ts_worker_status>()->sessions, 1u);
}

TEST_CASE(a_closed_lane_can_be_used_again) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  load_kernels(home);
  const uint64_t data = home.base();
  home.write(data, counting(64, 0));
  for (uint32_t round = 1; round <= 50; ++round) {
    CHECK(home.run(add(data, 64, 1, round % 3), {{data, 256}}));
    home.close_lane(round % 3);
    if (round % 5 == 0) std::this_thread::sleep_for(5ms);
  }
  home.close_lane(200);  // was never open
  CHECK(home.run(add(data, 64, 1), {{data, 256}}));
  CHECK(home.read(data, 64) == counting(64, 51));
}

TEST_CASE(two_programs_do_not_see_each_other) {
  const WorkerProcess worker;
  FakeHome first(worker.socket()), second(worker.socket(), kSlotBase + kSlotSize);
  for (FakeHome* home : {&first, &second}) {
    home->add_chunk(home->base(), 2 * kGranule);
    load_kernels(*home);
    home->write(home->base(), counting(64, home == &first ? 0 : 500));
  }
  for (int round = 0; round < 20; ++round) {
    for (FakeHome* home : {&first, &second}) CHECK(home->run(add(home->base(), 64, 1), {{home->base(), 256}}));
  }
  CHECK(first.read(first.base(), 64) == counting(64, 20));
  CHECK(second.read(second.base(), 64) == counting(64, 520));
  const transport::SharedMemory status = worker.observe();
  CHECK_EQ(status.as<ts_worker_status>()->sessions, 2u);
}

TEST_CASE(coming_and_going_leaves_nothing) {
  const WorkerProcess worker;
  const transport::SharedMemory status = worker.observe();
  int descriptors = 0;
  for (int round = 0; round < 10; ++round) {
    {
      FakeHome home(worker.socket());
      home.add_chunk(home.base(), 4 * kGranule);
      load_kernels(home);
      home.write(home.base(), counting(64, 0));
      CHECK(home.run(add(home.base(), 64, 1), {{home.base(), 256}}));
      CHECK_EQ(home.read(home.base(), 1)[0], 1u);
      CHECK(status.as<ts_worker_status>()->memory_used > 0);
      home.wait_done(1, home.join(1, {}));  // a join that pushes nothing, in a fresh lane
      CHECK(home.synchronize(1));
    }
    CHECK(eventually([&] {
      return std::atomic_ref(status.as<ts_worker_status>()->memory_used).load() == 0 &&
             std::atomic_ref(status.as<ts_worker_status>()->sessions).load() == 0;
    }));
    std::this_thread::sleep_for(50ms);
    if (round == 1) descriptors = worker.descriptors();
  }
  CHECK(worker.descriptors() <= descriptors);
}

TEST_CASE(an_idle_worker_uses_no_processor) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  load_kernels(home);
  CHECK(home.run(add(home.base(), 64, 1), {}));
  std::this_thread::sleep_for(200ms);
  const auto idle_before = worker.cpu_time();
  std::this_thread::sleep_for(2s);
  CHECK(worker.cpu_time() - idle_before < 100ms);
  // Nor one whose stream waits for a start that does not come.
  Launch waiting = add(home.base(), 64, 1, 5);
  waiting.start = home.unwritten_start(5);
  home.launch(waiting);
  std::this_thread::sleep_for(200ms);
  const auto before = worker.cpu_time();
  std::this_thread::sleep_for(2s);
  // The simulated driver may itself poll for the flag: the bound is for both.
  CHECK(worker.cpu_time() - before < 1000ms);
  home.set_start(5, waiting.start);
}

TEST_CASE(kernels_that_cannot_be_loaded_say_why) {
  WorkerProcess::Setup setup;
  setup.device = 0;  // sm_80
  const WorkerProcess worker(setup);
  FakeHome home(worker.socket());
  home.add_chunk(home.base(), kGranule);
  const std::string newer = home.load(0, "nothing", kNewerKernels, 0);
  CHECK(newer.find("wants sm_90") != std::string::npos);
  CHECK(newer.find("this device is sm_80") != std::string::npos);
  const std::string missing = home.load(1, "no_such_kernel", kKernels, 0);
  CHECK(missing.find("no_such_kernel") != std::string::npos);
  const std::string broken = home.load(2, "broken", ".version 7.0\n.target sm_80\n.entry broken( {", 0);
  CHECK(!broken.empty());
  const std::string short_block = home.load(3, "add", kKernels, 8);
  CHECK(short_block.find("16 parameter bytes") != std::string::npos);
  // None of this has cost the program its session.
  load_kernels(home);
  home.write(home.base(), counting(64, 0));
  CHECK(home.run(add(home.base(), 64, 1), {{home.base(), 256}}));
  CHECK(home.read(home.base(), 64) == counting(64, 1));
}

TEST_CASE(random_work_equals_the_same_work_at_home) {
  const WorkerProcess worker;
  FakeHome home(worker.socket());
  constexpr uint32_t kArrays = 12, kWords = 64;
  home.add_chunk(home.base(), 8 * kGranule);
  load_kernels(home);
  std::mt19937 random(5);
  std::vector<std::vector<uint32_t>> expected;
  const auto at = [&](uint32_t array) { return home.base() + array * 1300000ull / 4 * 4; };
  for (uint32_t i = 0; i < kArrays; ++i) {
    expected.push_back(counting(kWords, i * 1000));
    home.write(at(i), expected.back());
  }
  for (int step = 0; step < 300; ++step) {
    const uint32_t lane = random() % 5, a = random() % kArrays, b = random() % kArrays, out = random() % kArrays;
    Launch launch;
    if (random() % 2 == 0) {
      const uint32_t amount = random() % 100;
      launch = add(at(out), kWords, amount, lane);
      for (uint32_t& word : expected[out]) word += amount;
    } else {
      launch = combine(at(out), at(a), at(b), lane);
      std::vector<uint32_t> result(kWords);
      for (uint32_t i = 0; i < kWords; ++i) result[i] = 3 * expected[a][i] + expected[b][i];
      expected[out] = result;
    }
    CHECK(home.run(launch, {{at(out), kWords * 4}}));
  }
  for (uint32_t i = 0; i < kArrays; ++i) CHECK(home.read(at(i), kWords) == expected[i]);
}

}  // namespace
}  // namespace tessera::worker::testing

TEST_MAIN()
