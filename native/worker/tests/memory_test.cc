// SPDX-License-Identifier: Apache-2.0
// Mapping, eviction, release and the budget.
#include "fake_home.h"
#include "kernels.h"
#include "testing/check.h"
#include "worker_process.h"

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kWords = 64;

/// A home whose function 0 is `add`, with a status page to look at.
struct Bench {
  WorkerProcess worker;
  transport::SharedMemory status;
  FakeHome home;

  explicit Bench(int memory_mib = 256) : worker(setup(memory_mib)), status(worker.observe()), home(worker.socket()) {
    CHECK_EQ(home.load(0, "add", kKernels, 16), std::string());
    CHECK_EQ(home.load(1, "spin", kKernels, 8), std::string());
  }
  static WorkerProcess::Setup setup(int memory_mib) {
    WorkerProcess::Setup result;
    result.memory_mib = memory_mib;
    return result;
  }

  uint64_t used() const { return std::atomic_ref(status.as<ts_worker_status>()->memory_used).load() / kGranule; }
  uint64_t granule(uint64_t index) const { return home.base() + index * kGranule; }

  Launch add(uint64_t data, uint32_t amount, std::vector<Range> ranges, uint32_t lane = 0) const {
    Launch launch;
    launch.block = kWords;
    launch.lane = lane;
    launch.parameters = pack(data, kWords, amount);
    launch.ranges = std::move(ranges);
    return launch;
  }
  /// Adds 1 to the first words of a granule, pulling them and pushing them home.
  bool touch(uint64_t index) {
    return home.run(add(granule(index), 1, {{granule(index), kWords * 4}}), {{granule(index), kWords * 4}});
  }
  void fill(uint64_t index, uint32_t value) { home.write(granule(index), std::vector<uint32_t>(kWords, value)); }
  bool holds(uint64_t index, uint32_t value) {
    return home.read(granule(index), kWords) == std::vector<uint32_t>(kWords, value);
  }
};

TEST_CASE(only_touched_granules_are_mapped) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), 64 * kGranule);
  CHECK_EQ(bench.used(), 0u);
  bench.fill(3, 10);
  CHECK(bench.touch(3));
  CHECK(bench.holds(3, 11));
  CHECK_EQ(bench.used(), 1u);
  CHECK(bench.touch(3));
  CHECK_EQ(bench.used(), 1u);
  // A range over several granules maps each once.
  CHECK(bench.home.run(bench.add(bench.granule(2), 0, {{bench.granule(2) + 100, 5 * kGranule, false}}), {}));
  CHECK_EQ(bench.used(), 6u);
  CHECK(bench.home.run(bench.add(bench.granule(8), 0, {{bench.granule(8), 56 * kGranule, false}}), {}));
  CHECK_EQ(bench.used(), 62u);
  CHECK_EQ(bench.home.counters().workers[1].bytes_mapped, 62 * kGranule);
}

TEST_CASE(a_released_chunk_gives_its_memory_back) {
  Bench bench;
  for (uint32_t round = 0; round < 5; ++round) {
    bench.home.add_chunk(bench.granule(4), 8 * kGranule);
    bench.fill(5, round);
    CHECK(bench.touch(5));
    CHECK(bench.holds(5, round + 1));
    CHECK_EQ(bench.used(), 1u);
    bench.home.release_chunk(bench.granule(4), 8 * kGranule);
    CHECK(eventually([&] { return bench.used() == 0; }));
  }
}

TEST_CASE(several_whole_chunks_may_be_released_in_one) {
  Bench bench;
  for (uint64_t i = 0; i < 4; ++i) bench.home.add_chunk(bench.granule(i), kGranule);
  for (uint64_t i = 0; i < 4; ++i) CHECK(bench.touch(i));
  bench.home.send_ranges(TS_RING_RELEASE, 0, {{bench.granule(0), 2 * kGranule}, {bench.granule(3), kGranule}}, 0, 0);
  CHECK(eventually([&] { return bench.used() == 1; }));
  CHECK(bench.touch(2));
  CHECK(!bench.home.link().failed());
}

TEST_CASE(release_waits_for_the_streams) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), kGranule);
  bench.home.add_chunk(bench.granule(1), kGranule);
  bench.fill(0, 5);
  Launch late = bench.add(bench.granule(0), 1, {{bench.granule(0), kWords * 4}}, 2);
  late.start = bench.home.unwritten_start(2);
  bench.home.launch(late);
  const uint32_t value = bench.home.join(2, {});
  bench.home.send_ranges(TS_RING_RELEASE, 0, {{bench.granule(0), kGranule}}, 0, 0);
  CHECK(bench.touch(1));  // the session goes on meanwhile
  CHECK_EQ(bench.used(), 2u);
  bench.home.set_start(2, late.start);
  CHECK(eventually([&] { return bench.home.done(2) == value; }));
  CHECK(eventually([&] { return bench.used() == 1; }));
}

TEST_CASE(a_new_chunk_may_take_the_place_of_a_released_one_at_once) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), kGranule);
  bench.home.add_chunk(bench.granule(1), kGranule);
  bench.fill(0, 5);
  Launch late = bench.add(bench.granule(0), 1, {{bench.granule(0), kWords * 4}}, 2);
  late.start = bench.home.unwritten_start(2);
  bench.home.launch(late);
  bench.home.join(2, {});
  bench.home.release_chunk(bench.granule(0), kGranule);
  bench.home.add_chunk(bench.granule(0), kGranule);  // while the old one is still in use on the worker
  bench.fill(0, 77);
  Launch next = bench.add(bench.granule(0), 1, {{bench.granule(0), kWords * 4}});
  bench.home.launch(next);
  const uint32_t value = bench.home.join(0, {{bench.granule(0), kWords * 4}});
  std::this_thread::sleep_for(50ms);
  CHECK(bench.home.done(0) != value);
  bench.home.set_start(2, late.start);
  CHECK(eventually([&] { return bench.home.done(0) == value; }));
  CHECK(bench.holds(0, 78));
}

TEST_CASE(eviction_gives_memory_back_and_data_is_pulled_again) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), 16 * kGranule);
  for (uint64_t i = 0; i < 6; ++i) {
    bench.fill(i, 100);
    CHECK(bench.touch(i));
  }
  CHECK_EQ(bench.used(), 6u);
  bench.home.evict(bench.granule(1), 4 * kGranule);
  CHECK(eventually([&] { return bench.used() == 2; }));
  bench.fill(2, 7);
  CHECK(bench.touch(2));
  CHECK(bench.holds(2, 8));
  bench.home.evict(bench.granule(0), 16 * kGranule);  // mapped or not
  CHECK(eventually([&] { return bench.used() == 0; }));
}

TEST_CASE(eviction_waits_for_the_streams_and_use_behind_it_keeps_the_granule) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), 4 * kGranule);
  bench.fill(0, 1);
  bench.fill(1, 50);
  CHECK(bench.touch(1));
  Launch late = bench.add(bench.granule(0), 1, {{bench.granule(0), kWords * 4}}, 2);
  late.start = bench.home.unwritten_start(2);
  bench.home.launch(late);
  bench.home.evict(bench.granule(0), 2 * kGranule);
  // Used again before the eviction is due: what is pulled now must survive it.
  bench.fill(1, 60);
  bench.home.launch(bench.add(bench.granule(1), 1, {{bench.granule(1), kWords * 4}}, 3));
  const uint32_t pulled = bench.home.join(3, {});
  CHECK(eventually([&] { return bench.home.done(3) == pulled; }));
  CHECK_EQ(bench.used(), 2u);
  bench.home.set_start(2, late.start);
  CHECK(eventually([&] { return bench.used() == 1; }));
  bench.home.launch(bench.add(bench.granule(1), 1, {{bench.granule(1), kWords * 4, false}}, 3));
  const uint32_t value = bench.home.join(3, {{bench.granule(1), kWords * 4}});
  CHECK(eventually([&] { return bench.home.done(3) == value; }));
  CHECK(bench.holds(1, 62));
}

TEST_CASE(a_partly_evicted_block_is_taken_up_again) {
  Bench bench;
  bench.home.add_chunk(bench.granule(0), 8 * kGranule);
  CHECK(bench.home.run(bench.add(bench.granule(0), 0, {{bench.granule(0), 8 * kGranule, false}}), {}));
  CHECK_EQ(bench.used(), 8u);
  bench.home.evict(bench.granule(2), 2 * kGranule);
  bench.home.evict(bench.granule(5), kGranule);
  for (uint64_t i = 0; i < 8; ++i) {
    bench.fill(i, static_cast<uint32_t>(i));
    CHECK(bench.touch(i));
    CHECK(bench.holds(i, static_cast<uint32_t>(i + 1)));
  }
  CHECK_EQ(bench.used(), 8u);
  bench.home.evict(bench.granule(0), 8 * kGranule);
  CHECK(eventually([&] { return bench.used() == 0; }));
}

TEST_CASE(evicted_parts_of_blocks_count_when_memory_is_short) {
  Bench bench(16);  // 8 granules
  bench.home.add_chunk(bench.granule(0), 16 * kGranule);
  CHECK(bench.home.run(bench.add(bench.granule(0), 0, {{bench.granule(0), 8 * kGranule, false}}), {}));
  for (uint64_t i = 0; i < 8; ++i) bench.fill(i, static_cast<uint32_t>(10 * i));
  for (uint64_t i = 0; i < 8; ++i) CHECK(bench.home.run(bench.add(bench.granule(i), 1, {{bench.granule(i), 256}}), {}));
  bench.home.evict(bench.granule(1), 3 * kGranule);
  bench.home.evict(bench.granule(6), kGranule);
  // Four granules are free by home's count: they must be to be had.
  CHECK(bench.home.run(bench.add(bench.granule(8), 0, {{bench.granule(8), 4 * kGranule, false}}), {}));
  CHECK(!bench.home.link().failed());
  CHECK_EQ(bench.used(), 8u);
  // What was in use has kept its contents.
  for (const uint64_t i : {0, 4, 5, 7}) {
    CHECK(bench.home.run(bench.add(bench.granule(i), 1, {{bench.granule(i), 256, false}}), {{bench.granule(i), 256}}));
    CHECK(bench.holds(i, static_cast<uint32_t>(10 * i + 2)));
  }
}

TEST_CASE(room_that_is_being_made_is_waited_for) {
  Bench bench(8);  // 4 granules
  bench.home.add_chunk(bench.granule(0), 16 * kGranule);
  for (uint64_t i = 0; i < 4; ++i) CHECK(bench.touch(i));
  Launch late = bench.add(bench.granule(0), 1, {{bench.granule(0), kWords * 4}}, 2);
  late.start = bench.home.unwritten_start(2);
  bench.home.launch(late);
  bench.home.evict(bench.granule(0), 2 * kGranule);
  bench.fill(9, 3);
  bench.home.launch(bench.add(bench.granule(9), 1, {{bench.granule(9), kWords * 4}}));
  const uint32_t value = bench.home.join(0, {{bench.granule(9), kWords * 4}});
  std::this_thread::sleep_for(50ms);
  CHECK(bench.home.done(0) != value);
  bench.home.set_start(2, late.start);
  CHECK(eventually([&] { return bench.home.done(0) == value; }));
  CHECK(bench.holds(9, 4));
}

TEST_CASE(beyond_the_budget_the_program_is_given_up_and_others_go_on) {
  Bench bench(16);
  FakeHome other(bench.worker.socket(), kSlotBase + kSlotSize);
  CHECK_EQ(other.load(0, "add", kKernels, 16), std::string());
  other.add_chunk(other.base(), kGranule);
  bench.home.add_chunk(bench.granule(0), 16 * kGranule);
  bench.home.launch(bench.add(bench.granule(0), 0, {{bench.granule(0), 9 * kGranule, false}}));
  const uint32_t value = bench.home.join(0, {});
  CHECK(bench.home.wait_failed());
  CHECK_EQ(bench.home.link().failure().code, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(bench.home.link().failure().text.find("16 MiB") != std::string::npos);
  CHECK(eventually([&] { return bench.home.done(0) == value; }));  // nobody at home hangs
  bench.home.detach();
  CHECK(eventually([&] { return bench.used() == 0; }));
  other.write(other.base(), std::vector<uint32_t>(kWords, 3));
  Launch launch = bench.add(other.base(), 4, {{other.base(), kWords * 4}});
  CHECK(other.run(launch, {{other.base(), kWords * 4}}));
  CHECK_EQ(other.read(other.base(), 1)[0], 7u);
}

TEST_CASE(a_default_budget_follows_the_device) {
  const WorkerProcess worker(Bench::setup(0));
  REQUIRE(worker.ready());
  const transport::SharedMemory page = worker.observe();
  const auto* status = page.as<ts_worker_status>();
  CHECK(status->memory_budget > status->device.memory_bytes / 2);
  CHECK(status->memory_budget <= status->device.memory_bytes);
  CHECK_EQ(status->memory_budget % kGranule, 0u);
}

}  // namespace
}  // namespace tessera::worker::testing

TEST_MAIN()
