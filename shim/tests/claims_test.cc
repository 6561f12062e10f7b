// SPDX-License-Identifier: Apache-2.0
// What launches claim: rows, and that a memo never outlives what it follows from. Over the simulated driver
// (TESSERA_DRIVER names it), with memory served from a slot as in a session.
#include "claims.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "blob_builder.h"
#include "driver.h"
#include "rows.h"
#include "testing/check.h"
#include "world.h"

using namespace tessera::shim;
using tessera::access::testing::BlobBuilder;

namespace {

constexpr uint64_t kSlot = uint64_t{0x5200} << 32;

DeviceMemory& memory() {
  static const bool started = [] {
    CUdevice device = 0;
    CUcontext context = nullptr;
    load_driver();
    REQUIRE(driver().cuInit(0) == CUDA_SUCCESS && driver().cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    REQUIRE(driver().cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    REQUIRE(driver().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    world().memory.start(kSlot, uint64_t{1} << 42, 2u << 20, [](Range) {});
    return true;
  }();
  REQUIRE(started);
  return world().memory;
}

uint64_t allocate(uint64_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(memory().allocate(bytes, &address) == CUDA_SUCCESS);
  return address;
}

/// A kernel with pointers and then scalars as parameters, all of 8 bytes.
class Kernel {
 public:
  explicit Kernel(const BlobBuilder& builder) : blob_(BlobBuilder(builder).build()), memo_(blob_.data()) {
    REQUIRE(ts_summary_validate(blob_.data(), blob_.size() * 8) == TS_EVALUATE_OK);
  }
  const Claims& claims(const std::vector<uint64_t>& parameters, uint32_t grid = 1) {
    request_.grid[0] = grid;
    return memo_.of(request_, {reinterpret_cast<const uint8_t*>(parameters.data()), parameters.size() * 8});
  }

 private:
  std::vector<uint64_t> blob_;
  ClaimsMemo memo_;
  LaunchRequest request_;
};

using Ranges = std::vector<Range>;

/// Writes all of `rows` rows of `width` bytes at steps of `pitch` from its pointer on: (pointer, width, rows, pitch).
BlobBuilder tile() {
  BlobBuilder blob(32);
  const int32_t zero = blob.constant(0);
  const auto parameter = [&](int32_t offset) { return blob.node(TS_OP_PARAMETER, offset, 8, 1); };
  const int32_t width = parameter(8), rows = parameter(16), pitch = parameter(24);
  blob.access(0, zero, width, TS_ACCESS_WRITE, TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE);
  blob.level(pitch, rows);
  return blob;
}

/// Reads somewhere in the allocation of its pointer.
BlobBuilder anywhere() {
  BlobBuilder blob(16);
  blob.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_READ, TS_ACCESS_UNBOUNDED);
  return blob;
}

ts_range rows(uint64_t width, const std::vector<std::pair<uint64_t, uint64_t>>& levels) {
  ts_range range{};
  range.begin = 4096;
  range.end = range.begin + width;
  range.width = width;
  range.row_flags = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;
  for (const auto& [pitch, count] : levels) {
    range.pitch[range.n_levels] = pitch;
    range.count[range.n_levels++] = count;
    range.end += pitch * (count - 1);
  }
  return range;
}

Ranges listed(const Rows& rows) {
  Ranges all;
  rows.for_each([&](uint64_t begin, uint64_t end) { all.push_back({begin, end}); });
  return all;
}

}  // namespace

TEST_CASE(a_range_without_levels_is_one_interval) {
  ts_range range = rows(100, {});
  range.flags = TS_ACCESS_EXACT;
  CHECK(listed(rows_of(range, 1)) == (Ranges{{4096, 4196}}));
  CHECK_EQ(rows_of(range, 1).promises, TS_ACCESS_EXACT);
}

TEST_CASE(few_rows_far_apart_are_an_interval_each) {
  const Rows found = rows_of(rows(100, {{1 << 16, 3}}), 8);
  CHECK(listed(found) == (Ranges{{4096, 4196}, {69632, 69732}, {135168, 135268}}));
  CHECK_EQ(found.promises, TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE);
}

TEST_CASE(rows_that_are_many_or_close_are_their_hull) {
  for (const Rows& found : {rows_of(rows(100, {{1 << 16, 9}}), 8), rows_of(rows(100, {{kSmallestGap + 99, 3}}), 8)}) {
    CHECK_EQ(found.intervals, 1u);
    CHECK_EQ(found.promises, 0);  // the gaps are not written
  }
  CHECK_EQ(rows_of(rows(100, {{kSmallestGap + 100, 3}}), 8).intervals, 3u);
  CHECK(listed(rows_of(rows(100, {{1 << 16, 9}}), 8)) == (Ranges{{4096, 4096 + (8 << 16) + 100}}));
}

TEST_CASE(close_rows_of_far_tiles_are_a_hull_for_each_tile) {
  const Rows found = rows_of(rows(100, {{200, 1000}, {1 << 20, 4}}), 8);
  CHECK_EQ(listed(found).size(), 4u);
  CHECK(listed(found)[1] == (Range{4096 + (1 << 20), 4096 + (1 << 20) + 999 * 200 + 100}));
  CHECK_EQ(found.promises, 0);
  // A hull that reaches into the next one.
  CHECK_EQ(rows_of(rows(100, {{1 << 16, 1000}, {1 << 20, 4}}), 8).intervals, 1u);
  CHECK_EQ(rows_of(rows(100, {{1 << 16, 2}, {1 << 20, 4}}), 8).intervals, 8u);
  CHECK_EQ(rows_of(rows(100, {{1 << 16, 2}, {1 << 20, 5}}), 8).intervals, 5u);
  CHECK_EQ(rows_of(rows(100, {{1 << 16, uint64_t{1} << 40}, {uint64_t{1} << 58, 2}}), 8).intervals, 2u);
}

TEST_CASE(a_tile_of_columns_leaves_its_neighbour_alone) {
  constexpr uint64_t kWidth = 32 << 10;
  const uint64_t matrix = allocate(4 * 2 * kWidth);
  Kernel left(tile());
  const Claims& claims = left.claims({matrix, kWidth, 4, 2 * kWidth});
  REQUIRE(claims.known && claims.all_in_slot && claims.exact);
  CHECK(claims.needed.empty());
  REQUIRE(claims.written.size() == 4);
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t begin = matrix + i * 2 * kWidth;
    CHECK(claims.written[i] == (Range{begin, begin + kWidth}));
  }
  CHECK(claims.all == claims.written);
  memory().free(matrix);
}

TEST_CASE(rows_outside_of_the_allocation_are_left_out) {
  constexpr uint64_t kPitch = 64 << 10;
  const uint64_t matrix = allocate(2 * kPitch);
  Kernel kernel(tile());
  CHECK_EQ(kernel.claims({matrix, 512, 5, kPitch}).written.size(), 2u);
  memory().free(matrix);
}

TEST_CASE(a_full_directory_takes_hulls) {
  constexpr uint64_t kPitch = 64 << 10;
  const uint64_t matrix = allocate(4 * kPitch), other = allocate(1 << 20);
  Kernel kernel(tile());
  const std::vector<uint64_t> launch = {matrix, 512, 4, kPitch};
  CHECK_EQ(kernel.claims(launch).written.size(), 4u);
  for (uint64_t i = 0; i < 1024; ++i) world().directory.written({other + 512 * i, other + 512 * i + 256}, 1, {});
  const Claims& claims = kernel.claims(launch);
  CHECK(claims.written == (Ranges{{matrix, matrix + 3 * kPitch + 512}}));
  CHECK(claims.needed == claims.written);  // what lies between the rows stays what it is
  CHECK(!claims.exact);
  world().directory.forget({other, other + (1 << 20)});
  CHECK_EQ(kernel.claims(launch).written.size(), 4u);
  memory().free(matrix);
  memory().free(other);
}

TEST_CASE(a_launch_claims_what_is_allocated_now) {
  Kernel kernel(anywhere());
  const uint64_t small = allocate(1000);
  CHECK(kernel.claims({small, 0}).needed == (Ranges{{small, small + 1000}}));
  CHECK(kernel.claims({small, 0}).needed == (Ranges{{small, small + 1000}}));
  memory().free(small);
  const uint64_t larger = allocate(1400);
  REQUIRE(larger == small);
  CHECK(kernel.claims({small, 0}).needed == (Ranges{{small, small + 1400}}));
  const uint64_t neighbour = allocate(512);
  CHECK(kernel.claims({small, 0}).all_in_slot);
  memory().expose(neighbour);
  CHECK(!kernel.claims({small, 0}).all_in_slot);  // the same chunk
  memory().free(larger);
  memory().free(neighbour);
  CHECK(!kernel.claims({small, 0}).all_in_slot);
}

TEST_CASE(what_the_driver_says_is_asked_each_time) {
  Kernel kernel(anywhere());
  CUdeviceptr outside = 0;
  REQUIRE(driver().cuMemAlloc_v2(&outside, 4096) == CUDA_SUCCESS);
  CHECK(kernel.claims({outside, 0}).known);
  CHECK(!kernel.claims({outside, 0}).all_in_slot);
  REQUIRE(driver().cuMemFree_v2(outside) == CUDA_SUCCESS);
  CHECK(!kernel.claims({outside, 0}).known);
}

TEST_CASE(each_part_of_a_launch_counts) {
  const uint64_t array = allocate(1 << 20);
  BlobBuilder blob(24);
  const int32_t zero = blob.constant(0);
  const int32_t n = blob.node(TS_OP_PARAMETER, 8, 4, 1);
  blob.access(0, zero, blob.node(TS_OP_MUL, n, blob.node(TS_OP_GRID, 0)), TS_ACCESS_READ, TS_ACCESS_EXACT);
  Kernel kernel(blob);
  // More launches than the memo has places, twice over.
  for (int turn = 0; turn < 2; ++turn) {
    for (uint64_t launch = 1; launch < 200; ++launch) {
      const uint64_t begin = array + 512 * (launch % 7), width = launch % 50 + 1;
      const auto grid = static_cast<uint32_t>(launch % 5 + 1);
      CHECK(kernel.claims({begin, width, launch % 3}, grid).needed == (Ranges{{begin, begin + width * grid}}));
    }
  }
  memory().free(array);
}

TEST_CASE(a_launch_seen_before_takes_little_time) {
  const uint64_t matrix = allocate(1 << 20);
  Kernel kernel(tile());
  const std::vector<uint64_t> launch = {matrix, 512, 4, 64 << 10};
  constexpr int kBatches = 300, kTurns = 1000;
  double best = 1e9;  // of the batches, for the machine may be busy
  for (int batch = 0; batch < kBatches; ++batch) {
    size_t sum = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTurns; ++i) sum += kernel.claims(launch).written.size();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kTurns);
    CHECK_EQ(sum, size_t{4} * kTurns);
  }
  std::printf("       %.0f ns for a launch seen before\n", best);
  CHECK(best < 500);  // some thirty: an evaluation, an allocation or a driver call would show
  memory().free(matrix);
}

TEST_MAIN()
