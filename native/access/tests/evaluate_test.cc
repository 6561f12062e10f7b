// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "blob_builder.h"
#include "testing/check.h"

namespace {

using tessera::access::testing::BlobBuilder;
using tessera::access::testing::elementwise;

struct Parameters {
  std::vector<uint8_t> bytes;
  template <class T>
  Parameters& add(T value) {
    const auto* begin = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof(T));
    return *this;
  }
  ts_launch_shape shape(uint32_t grid = 1, uint32_t block = 1) const {
    return {bytes.data(), static_cast<uint32_t>(bytes.size()), {grid, 1, 1}, {block, 1, 1}, {1, 1, 1}, 0};
  }
};

std::vector<ts_range> evaluate(BlobBuilder builder, const ts_launch_shape& shape, int expected = TS_EVALUATE_OK,
                               uint32_t capacity = 64) {
  const std::vector<uint64_t> blob = builder.build();
  CHECK_EQ(ts_summary_validate(blob.data(), blob.size() * 8), TS_EVALUATE_OK);
  std::vector<ts_range> ranges(capacity);
  uint32_t count = 0;
  CHECK_EQ(ts_summary_evaluate(blob.data(), &shape, ranges.data(), capacity, &count), expected);
  ranges.resize(count);
  return ranges;
}

/// The value of one op over constants; nothing when unbounded.
std::optional<int64_t> compute(int32_t op, int64_t a, int64_t b = 0, int64_t c = 0, int32_t literal_b = -1,
                               int32_t literal_c = 0) {
  BlobBuilder builder(8);
  const int32_t na = builder.constant(a), nb = builder.constant(b), nc = builder.constant(c);
  const int32_t value = builder.node(op, na, literal_b >= 0 ? literal_b : nb, literal_b >= 0 ? literal_c : nc);
  // The range [value / 2^32, same + 1) and the range of the low half carry the value out of the evaluator whole.
  const int32_t shift = builder.constant(32), one = builder.constant(1), mask = builder.constant(0xffffffff);
  const int32_t high = builder.node(TS_OP_SHR, value, shift), low = builder.node(TS_OP_AND, value, mask);
  builder.access(0, high, builder.node(TS_OP_ADD, high, one));
  builder.access(0, low, builder.node(TS_OP_ADD, low, one));
  constexpr uint64_t kPointer = uint64_t{1} << 40;
  const Parameters parameters = Parameters().add(kPointer);
  const std::vector<ts_range> ranges = evaluate(builder, parameters.shape());
  REQUIRE(ranges.size() == 2);
  CHECK_EQ(ranges[0].flags & TS_ACCESS_UNBOUNDED, ranges[1].flags & TS_ACCESS_UNBOUNDED);
  if (ranges[0].flags & TS_ACCESS_UNBOUNDED) {
    CHECK_EQ(ranges[0].begin, kPointer);
    CHECK_EQ(ranges[0].end, kPointer);
    return std::nullopt;
  }
  return static_cast<int64_t>((ranges[0].begin - kPointer) << 32 | (ranges[1].begin - kPointer));
}

constexpr std::optional<int64_t> kUnbounded = std::nullopt;
constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;

#define CHECK_VALUE(expression, expected) CHECK((expression) == std::optional<int64_t>(expected))

/// One row of 12 bytes at 64, and copies of it as `levels` say.
std::vector<ts_range> rows(std::initializer_list<std::pair<int64_t, int64_t>> levels, uint8_t flags = 0) {
  BlobBuilder builder(8);
  builder.access(0, builder.constant(64), builder.constant(76), TS_ACCESS_WRITE, flags);
  for (const auto& [pitch, count] : levels) builder.level(builder.constant(pitch), builder.constant(count));
  return evaluate(builder, Parameters().add(uint64_t{4096}).shape());
}

constexpr uint8_t kAll = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;

}  // namespace

TEST_CASE(arithmetic_and_its_overflow) {
  CHECK_VALUE(compute(TS_OP_ADD, 2, 3), 5);
  CHECK_VALUE(compute(TS_OP_ADD, kMax, 1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_ADD, kMin, -1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_SUB, 2, 3), -1);
  CHECK_VALUE(compute(TS_OP_SUB, kMin, 1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_MUL, -4, 3), -12);
  CHECK_VALUE(compute(TS_OP_MUL, int64_t{1} << 32, int64_t{1} << 31), kUnbounded);
  CHECK_VALUE(compute(TS_OP_NEG, 5), -5);
  CHECK_VALUE(compute(TS_OP_NEG, kMin), kUnbounded);
}

TEST_CASE(divisions) {
  CHECK_VALUE(compute(TS_OP_FLOOR_DIV, -7, 2), -4);
  CHECK_VALUE(compute(TS_OP_FLOOR_MOD, -7, 2), 1);
  CHECK_VALUE(compute(TS_OP_FLOOR_DIV, 7, -2), -4);
  CHECK_VALUE(compute(TS_OP_FLOOR_MOD, 7, -2), -1);
  CHECK_VALUE(compute(TS_OP_TRUNC_DIV, -7, 2), -3);
  CHECK_VALUE(compute(TS_OP_TRUNC_MOD, -7, 2), -1);
  for (const int32_t op : {TS_OP_FLOOR_DIV, TS_OP_FLOOR_MOD, TS_OP_TRUNC_DIV, TS_OP_TRUNC_MOD}) {
    CHECK_VALUE(compute(op, 7, 0), kUnbounded);
    CHECK_VALUE(compute(op, kMin, -1), kUnbounded);
  }
}

TEST_CASE(shifts) {
  CHECK_VALUE(compute(TS_OP_SHL, 3, 4), 48);
  CHECK_VALUE(compute(TS_OP_SHL, -1, 62), -(int64_t{1} << 62));
  CHECK_VALUE(compute(TS_OP_SHL, 1, 63), kUnbounded);
  CHECK_VALUE(compute(TS_OP_SHL, 1, -1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_SHL, 4, 62), kUnbounded);
  CHECK_VALUE(compute(TS_OP_SHR, -9, 1), -5);
  CHECK_VALUE(compute(TS_OP_SHR, -9, 100), -1);
  CHECK_VALUE(compute(TS_OP_SHR, 9, -1), 0);
}

TEST_CASE(bits_comparisons_and_choice) {
  CHECK_VALUE(compute(TS_OP_AND, 12, 10), 8);
  CHECK_VALUE(compute(TS_OP_OR, 12, 10), 14);
  CHECK_VALUE(compute(TS_OP_XOR, 12, 10), 6);
  CHECK_VALUE(compute(TS_OP_MIN, -1, 1), -1);
  CHECK_VALUE(compute(TS_OP_MAX, -1, 1), 1);
  CHECK_VALUE(compute(TS_OP_LESS, 1, 1), 0);
  CHECK_VALUE(compute(TS_OP_LESS_EQUAL, 1, 1), 1);
  CHECK_VALUE(compute(TS_OP_EQUAL, 1, 2), 0);
  CHECK_VALUE(compute(TS_OP_NOT_EQUAL, 1, 2), 1);
  CHECK_VALUE(compute(TS_OP_NOT, 0), 1);
  CHECK_VALUE(compute(TS_OP_NOT, 7), 0);
  CHECK_VALUE(compute(TS_OP_AND_LESS_EQUAL, 3, 4, 4), 1);
  CHECK_VALUE(compute(TS_OP_AND_LESS_EQUAL, 1, 5, 4), 0);
  CHECK_VALUE(compute(TS_OP_AND_LESS_EQUAL, 2, 4, 5), 0);
  CHECK_VALUE(compute(TS_OP_ADD_MUL, -7, 4, -5), -27);
  CHECK_VALUE(compute(TS_OP_ADD_MUL, 1, kMax, 2), kUnbounded);
  CHECK_VALUE(compute(TS_OP_ADD_MUL, kMax, 1, 1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_AND3, 14, 7, 11), 2);
  CHECK_VALUE(compute(TS_OP_ADD3, 1, -2, 5), 4);
  CHECK_VALUE(compute(TS_OP_ADD3, -1, kMax, 1), kUnbounded);
  CHECK_VALUE(compute(TS_OP_ADD3, kMin, -1, 0), kUnbounded);
  CHECK_VALUE(compute(TS_OP_MIN3, 3, -1, 2), -1);
  CHECK_VALUE(compute(TS_OP_MIN3, -3, -1, -2), -3);
  CHECK_VALUE(compute(TS_OP_SELECT, 9, 4, 5), 4);
  CHECK_VALUE(compute(TS_OP_SELECT, 0, 4, 5), 5);
}

TEST_CASE(wrapping) {
  CHECK_VALUE(compute(TS_OP_WRAP, 0x80, 0, 0, 8, 1), -128);
  CHECK_VALUE(compute(TS_OP_WRAP, 0x180, 0, 0, 8, 0), 0x80);
  CHECK_VALUE(compute(TS_OP_WRAP, -1, 0, 0, 16, 0), 0xffff);
  CHECK_VALUE(compute(TS_OP_WRAP, int64_t{1} << 31, 0, 0, 32, 1), -(int64_t{1} << 31));
  CHECK_VALUE(compute(TS_OP_WRAP, (int64_t{1} << 32) + 5, 0, 0, 32, 0), 5);
}

TEST_CASE(only_the_chosen_side_must_be_bounded) {
  for (const int64_t condition : {0, 1}) {
    BlobBuilder builder(8);
    const int32_t zero = builder.constant(0), four = builder.constant(4);
    const int32_t overflow = builder.node(TS_OP_FLOOR_DIV, four, zero);
    const int32_t chosen = builder.node(TS_OP_SELECT, builder.constant(condition), overflow, four);
    builder.access(0, zero, chosen);
    builder.access(0, zero, builder.node(TS_OP_SELECT, builder.node(TS_OP_BOUNDED, overflow), overflow, four));
    const Parameters parameters = Parameters().add(uint64_t{4096});
    const std::vector<ts_range> ranges = evaluate(builder, parameters.shape());
    REQUIRE(ranges.size() == 2);
    CHECK_EQ((ranges[0].flags & TS_ACCESS_UNBOUNDED) != 0, condition == 1);
    CHECK_EQ(ranges[1].end, 4100u);
  }
}

TEST_CASE(reads_parameters_of_every_width) {
  const Parameters parameters = Parameters()
                                    .add(uint64_t{1000})
                                    .add(int8_t{-2})
                                    .add(uint8_t{254})
                                    .add(int16_t{-3})
                                    .add(int32_t{-4})
                                    .add(int64_t{-5})
                                    .add(uint64_t{1} << 63);
  struct {
    int32_t offset, width, is_signed;
    std::optional<int64_t> expected;
  } cases[] = {{8, 1, 1, -2},  {9, 1, 0, 254},         {8, 1, 0, 254}, {10, 2, 1, -3},         {10, 2, 0, 65533},
               {12, 4, 1, -4}, {12, 4, 0, 4294967292}, {16, 8, 1, -5}, {24, 8, 0, kUnbounded}, {24, 8, 1, kMin}};
  for (const auto& item : cases) {
    BlobBuilder builder(32);
    const int32_t value = builder.node(TS_OP_PARAMETER, item.offset, item.width, item.is_signed);
    const int32_t match = builder.node(TS_OP_EQUAL, value, builder.constant(item.expected.value_or(0)));
    builder.access(0, builder.constant(0), builder.node(TS_OP_ADD, match, builder.constant(1)));
    const std::vector<ts_range> ranges = evaluate(builder, parameters.shape());
    REQUIRE(ranges.size() == 1);
    CHECK_EQ((ranges[0].flags & TS_ACCESS_UNBOUNDED) == 0, item.expected.has_value());
    if (item.expected) CHECK_EQ(ranges[0].end - ranges[0].begin, 2u);
  }
}

TEST_CASE(ranges_of_a_typical_launch) {
  const Parameters parameters = Parameters().add(uint64_t{0x1000}).add(uint64_t{0x9000}).add(int32_t{100});
  const std::vector<ts_range> ranges = evaluate(elementwise(2), parameters.shape(1, 256));
  REQUIRE(ranges.size() == 2);
  CHECK_EQ(ranges[0].begin, 0x1000u);
  CHECK_EQ(ranges[0].end, 0x1000u + 400u);
  CHECK_EQ(int{ranges[0].flags}, TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE);
  CHECK_EQ(int{ranges[1].mode}, int{TS_ACCESS_READ});
  CHECK_EQ(ranges[1].pointer, 0x9000u);
}

TEST_CASE(an_empty_range_is_left_out) {
  const Parameters parameters = Parameters().add(uint64_t{0x1000}).add(int32_t{-3});
  CHECK_EQ(evaluate(elementwise(1), parameters.shape(4, 4)).size(), 0u);
}

TEST_CASE(guards) {
  BlobBuilder builder(8);
  const int32_t zero = builder.constant(0), four = builder.constant(4);
  const int32_t unknown = builder.node(TS_OP_FLOOR_DIV, four, zero);
  const uint8_t all = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;
  builder.access(0, zero, four, TS_ACCESS_WRITE, all, zero);
  builder.access(0, zero, four, TS_ACCESS_WRITE, all, four);
  builder.access(0, zero, four, TS_ACCESS_WRITE, all, unknown);
  builder.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_READ, TS_ACCESS_UNBOUNDED, zero);
  const Parameters parameters = Parameters().add(uint64_t{4096});
  const std::vector<ts_range> ranges = evaluate(builder, parameters.shape());
  REQUIRE(ranges.size() == 2);
  CHECK_EQ(int{ranges[0].flags}, int{all});
  CHECK_EQ(int{ranges[1].flags}, 0);
  CHECK_EQ(ranges[1].end, 4100u);
}

TEST_CASE(an_offset_that_leaves_the_address_space_is_unbounded) {
  BlobBuilder builder(16);
  const int32_t low = builder.constant(-8), four = builder.constant(4);
  builder.access(0, low, four, TS_ACCESS_WRITE, TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE);
  builder.access(8, low, four);
  const Parameters parameters = Parameters().add(uint64_t{4}).add(UINT64_MAX - 1);
  const std::vector<ts_range> ranges = evaluate(builder, parameters.shape());
  REQUIRE(ranges.size() == 2);
  CHECK_EQ(int{ranges[0].flags}, int{TS_ACCESS_UNBOUNDED});
  CHECK_EQ(int{ranges[1].flags}, int{TS_ACCESS_UNBOUNDED});
  CHECK_EQ(ranges[1].begin, UINT64_MAX - 1);
}

TEST_CASE(reports_short_parameters_and_small_arrays) {
  Parameters parameters = Parameters().add(uint64_t{4096}).add(uint64_t{8192}).add(int32_t{5});
  evaluate(elementwise(2), parameters.shape(4, 4), TS_EVALUATE_CAPACITY, 1);
  evaluate(elementwise(2), parameters.shape(4, 4), TS_EVALUATE_OK, 2);
  parameters.bytes.pop_back();
  evaluate(elementwise(2), parameters.shape(4, 4), TS_EVALUATE_PARAMETERS);
}

TEST_CASE(rows_with_gaps_keep_their_promises_to_themselves) {
  const std::vector<ts_range> found = rows({{100, 3}}, kAll);
  REQUIRE(found.size() == 1);
  CHECK_EQ(found[0].begin, 4096u + 64);
  CHECK_EQ(found[0].end, 4096u + 64 + 212);
  CHECK_EQ(int{found[0].flags}, 0);
  CHECK_EQ(int{found[0].row_flags}, int{kAll});
  CHECK_EQ(int{found[0].n_levels}, 1);
  CHECK_EQ(found[0].width, 12u);
  CHECK_EQ(found[0].pitch[0], 100u);
  CHECK_EQ(found[0].count[0], 3u);
}

TEST_CASE(rows_that_meet_are_an_interval) {
  for (const auto& found : {rows({{12, 5}}, kAll), rows({{-12, 5}}, kAll), rows({{4, 13}}, kAll)}) {
    REQUIRE(found.size() == 1);
    CHECK_EQ(found[0].end - found[0].begin, 60u);
    CHECK_EQ(int{found[0].n_levels}, 0);
    CHECK_EQ(int{found[0].flags}, int{kAll});
  }
  CHECK_EQ(rows({{-12, 5}})[0].begin, 4096u + 16);
}

TEST_CASE(levels_in_step_become_one) {
  const std::vector<ts_range> found = rows({{300, 4}, {100, 3}, {1200, 2}});
  REQUIRE(found.size() == 1);
  CHECK_EQ(int{found[0].n_levels}, 1);
  CHECK_EQ(found[0].pitch[0], 100u);
  CHECK_EQ(found[0].count[0], 24u);
  CHECK_EQ(int{rows({{301, 4}, {100, 3}})[0].n_levels}, 2);
}

TEST_CASE(a_level_without_rows_makes_the_access_empty) {
  CHECK_EQ(rows({{100, 0}}).size(), 0u);
  CHECK_EQ(rows({{12, 4}, {100, -1}}).size(), 0u);
  CHECK_EQ(int{rows({{INT64_MIN, 1}})[0].n_levels}, 0);
}

TEST_CASE(rows_beyond_64_bits_are_unbounded) {
  for (const auto& found : {rows({{INT64_MAX, 3}}, kAll), rows({{INT64_MIN, 2}}, kAll), rows({{4, INT64_MAX}}, kAll)}) {
    REQUIRE(found.size() == 1);
    CHECK_EQ(int{found[0].flags}, int{TS_ACCESS_UNBOUNDED});
    CHECK_EQ(int{found[0].n_levels}, 0);
  }
}

TEST_CASE(a_memo_gives_what_an_evaluation_gives) {
  BlobBuilder builder = elementwise(3);
  const std::vector<uint64_t> blob = builder.build();
  ts_memo memo;
  ts_summary_memo_prepare(&memo, blob.data());
  for (int round = 0; round < 60; ++round) {
    const uint64_t base = 4096 + 512 * static_cast<uint64_t>(round);
    const int32_t n = round % 7;
    const Parameters parameters = Parameters().add(base).add(base + 8).add(base + 16).add(n);
    const ts_launch_shape shape = parameters.shape(1 + static_cast<uint32_t>(round) % 3, 2);
    ts_range plain[3], kept[3];
    uint32_t n_plain = 0, n_kept = 0;
    CHECK_EQ(ts_summary_evaluate(blob.data(), &shape, plain, 3, &n_plain), TS_EVALUATE_OK);
    CHECK_EQ(ts_summary_evaluate_memo(blob.data(), &memo, &shape, kept, 3, &n_kept), TS_EVALUATE_OK);
    REQUIRE(n_plain == n_kept);
    for (uint32_t i = 0; i < n_plain; ++i) {
      CHECK_EQ(plain[i].begin, kept[i].begin);
      CHECK_EQ(plain[i].end, kept[i].end);
      CHECK_EQ(int{plain[i].flags}, int{kept[i].flags});
    }
  }
}
