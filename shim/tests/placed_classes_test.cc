// SPDX-License-Identifier: Apache-2.0
// Where launches go that are placed apart: by the table alone, however often it changes and whoever looks.
#include "placed_classes.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "claims.h"
#include "session.h"
#include "testing/check.h"

using namespace tessera::shim;

namespace {

constexpr uint32_t kKernel = 5;
ts_placement_table table{};
std::vector<ts_class> told;
size_t rows_left = 1000;

ts_term term(uint32_t quantity, uint64_t least, uint64_t most = UINT64_MAX) { return {quantity, 0, least, most}; }

ts_choice choice(uint32_t kernel, uint16_t device, std::vector<ts_term> terms) {
  ts_choice made{};
  made.kernel_id = kernel;
  made.device = device;
  made.n_terms = static_cast<uint16_t>(terms.size());
  std::copy(terms.begin(), terms.end(), made.terms);
  return made;
}

/// As the controller writes it.
void write(uint8_t entry, const std::vector<ts_choice>& choices) {
  std::atomic_ref(table.sequence).fetch_add(1);
  std::copy(choices.begin(), choices.end(), table.choices);
  table.n_choices = static_cast<uint32_t>(choices.size());
  table.device[kKernel] = entry;
  std::atomic_ref(table.sequence).fetch_add(1);
}

/// A kernel of a pointer, a number of 4 bytes, one of 2, and a struct of 12.
const FunctionEntry& function() {
  static FunctionEntry* entry = [] {
    auto* made = new FunctionEntry;
    made->parameters = {{0, 8}, {8, 4}, {12, 2}, {16, 12}};
    made->parameter_size = 28;
    return made;
  }();
  return *entry;
}

struct Launch {
  LaunchRequest request;
  uint64_t pointer = 1;
  uint32_t number = 0;
  uint16_t small = 0;
  uint8_t structure[12] = {};
  void* parameters[4] = {&pointer, &number, &small, structure};

  explicit Launch(uint32_t blocks, uint32_t value = 0) : number(value) {
    request.grid[0] = blocks;
    request.block[0] = 128;
    request.kernel_parameters = parameters;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

uint32_t device_of(PlacedClasses& classes, const Launch& launch) {
  return classes.place(launch.request, function(), table.device[kKernel]).device;
}

constexpr uint8_t kApart = TS_PLACED_BY_CLASS;

TEST_CASE(the_first_choice_that_fits_decides) {
  write(2 | kApart, {choice(kKernel - 1, 9, {}), choice(kKernel, 1, {term(TS_BLOCKS, 64)}),
                     choice(kKernel, 3, {term(TS_BLOCKS, 8), term(TS_THREADS, 0, 127)}),
                     choice(kKernel, 0, {term(TS_BLOCKS, 8)}), choice(kKernel + 1, 9, {})});
  PlacedClasses classes(kKernel);
  CHECK_EQ(device_of(classes, Launch(64)), 1u);
  CHECK_EQ(device_of(classes, Launch(8)), 0u);
  CHECK_EQ(device_of(classes, Launch(7)), 2u);
  Launch narrow(8);
  narrow.request.block[0] = 64;
  CHECK_EQ(device_of(classes, narrow), 3u);
  narrow.request.grid[1] = 8;
  CHECK_EQ(device_of(classes, narrow), 1u);
}

TEST_CASE(a_class_is_decided_once_for_each_state_of_the_table) {
  write(kApart, {choice(kKernel, 1, {term(TS_BLOCKS, 64)})});
  PlacedClasses classes(kKernel);
  CHECK_EQ(device_of(classes, Launch(64)), 1u);
  table.choices[0].device = 2;  // not said
  CHECK_EQ(device_of(classes, Launch(64)), 1u);
  CHECK_EQ(device_of(classes, Launch(65)), 2u);
  write(kApart, {choice(kKernel, 2, {term(TS_BLOCKS, 64)})});
  CHECK_EQ(device_of(classes, Launch(64)), 2u);
  write(3, {});
  CHECK_EQ(device_of(classes, Launch(64)), 3u);
}

TEST_CASE(arguments_tell_apart_where_the_table_names_them) {
  write(kApart, {choice(kKernel, 1, {term(TS_ARGUMENT + 1, 100, 200)}),
                 choice(kKernel, 2, {term(TS_ARGUMENT + 2, 7, 7)}), choice(kKernel, 3, {term(TS_ARGUMENT + 3, 0)}),
                 choice(kKernel, 3, {term(TS_ARGUMENT + 9, 0)}), choice(kKernel, 3, {term(TS_CALL_M, 0)})});
  // Two of the arguments named are none: launches of this kernel are of no class, and placed all the same.
  PlacedClasses none(kKernel);
  CHECK_EQ(device_of(none, Launch(1, 150)), 1u);
  CHECK_EQ(device_of(none, Launch(1, 201)), 0u);
  write(kApart,
        {choice(kKernel, 1, {term(TS_ARGUMENT + 1, 100, 200)}), choice(kKernel, 2, {term(TS_ARGUMENT + 2, 7, 7)})});
  PlacedClasses classes(kKernel);
  CHECK_EQ(device_of(classes, Launch(1, 150)), 1u);
  CHECK_EQ(device_of(classes, Launch(1, 99)), 0u);
  Launch seven(1, 99);
  seven.small = 7;
  CHECK_EQ(device_of(classes, seven), 2u);
  const size_t before = told.size();
  Launch other_pointer(1, 99);
  other_pointer.pointer = 77;
  CHECK_EQ(device_of(classes, other_pointer), 0u);
  CHECK_EQ(told.size(), before);  // not named: no class of its own
}

TEST_CASE(arguments_are_found_in_a_buffer_too) {
  write(kApart, {choice(kKernel, 1, {term(TS_ARGUMENT + 1, 100)})});
  PlacedClasses classes(kKernel);
  uint8_t buffer[28] = {};
  buffer[8] = 100;
  size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  Launch launch(1);
  launch.request.kernel_parameters = nullptr;
  launch.request.extra = extra;
  CHECK_EQ(device_of(classes, launch), 1u);
  buffer[8] = 99;
  CHECK_EQ(device_of(classes, launch), 0u);
  size = 10;  // it ends within the argument
  CHECK_EQ(device_of(classes, launch), 0u);
  launch.request.extra = nullptr;  // no arguments at all: the driver will complain
  CHECK_EQ(device_of(classes, launch), 0u);
}

TEST_CASE(while_the_table_changes_what_was_decided_stays) {
  write(1 | kApart, {choice(kKernel, 2, {term(TS_BLOCKS, 64)})});
  PlacedClasses classes(kKernel);
  CHECK_EQ(device_of(classes, Launch(64)), 2u);
  ++table.sequence;  // its writer has ended in the midst of it
  table.n_choices = 0;
  CHECK_EQ(device_of(classes, Launch(64)), 2u);
  CHECK_EQ(device_of(classes, Launch(65)), 1u);  // as the entry says
  ++table.sequence;
  CHECK_EQ(device_of(classes, Launch(64)), 1u);
}

TEST_CASE(more_classes_than_are_kept_go_where_they_should) {
  write(kApart, {choice(kKernel, 1, {term(TS_BLOCKS, 0, 500)})});
  PlacedClasses classes(kKernel);
  rows_left = 100;
  const size_t before = told.size();
  for (int round = 0; round < 2; ++round) {
    for (uint32_t blocks = 1; blocks <= 1000; ++blocks) {
      CHECK_EQ(device_of(classes, Launch(blocks)), blocks <= 500 ? 1u : 0u);
    }
  }
  CHECK_EQ(told.size() - before, 100u);
  rows_left = 1000;
}

TEST_CASE(the_controller_hears_what_a_class_is) {
  write(kApart, {choice(kKernel, 1, {term(TS_ARGUMENT + 1, 100)})});
  PlacedClasses classes(kKernel);
  told.clear();
  Launch launch(3, 7);
  launch.request.dynamic_shared = 48;
  const PlacedClasses::Place place = classes.place(launch.request, function(), kApart);
  REQUIRE(told.size() == 1 && place.tally != nullptr);
  CHECK_EQ(told[0].kernel_id, kKernel);
  const std::vector<std::pair<uint32_t, uint64_t>> expected = {{TS_GRID_X, 3},    {TS_GRID_Y, 1},      {TS_GRID_Z, 1},
                                                               {TS_BLOCK_X, 128}, {TS_BLOCK_Y, 1},     {TS_BLOCK_Z, 1},
                                                               {TS_SHARED, 48},   {TS_ARGUMENT + 1, 7}};
  REQUIRE(told[0].n_values == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_EQ(told[0].values[i].quantity, expected[i].first);
    CHECK_EQ(told[0].values[i].value, expected[i].second);
  }
  place.tally->count(1, 0);
  CHECK(classes.place(launch.request, function(), kApart).tally == place.tally);
}

class Sizes final : public Quantities {
 public:
  explicit Sizes(uint64_t m) : m_(m) {}
  std::optional<uint64_t> value(uint32_t quantity) const override {
    if (quantity < TS_CALL_M || quantity > TS_CALL_BATCHES) return std::nullopt;
    return quantity == TS_CALL_M ? m_ : 1;
  }

 private:
  uint64_t m_;
};

TEST_CASE(calls_of_a_library_go_by_their_sizes) {
  write(kApart, {choice(kKernel, 1, {term(TS_CALL_M, 64)}), choice(kKernel, 2, {term(TS_BLOCKS, 0)})});
  PlacedClasses classes(kKernel);
  told.clear();
  CHECK_EQ(classes.place_call(Sizes(64), kApart).device, 1u);
  CHECK_EQ(classes.place_call(Sizes(1), kApart).device, 0u);
  REQUIRE(told.size() == 2);
  CHECK_EQ(told[0].n_values, 4u);
  CHECK_EQ(told[0].values[0].quantity, uint32_t{TS_CALL_M});
  CHECK_EQ(told[0].values[0].value, uint64_t{64});
}

// The real writer is another process. To a sanitizer for threads what is read here, and thrown away, is a race.
#ifndef __SANITIZE_THREAD__
TEST_CASE(who_looks_while_it_is_written_sees_one_state) {
  // In an even state all choices say 1, in an odd one all say 2.
  const auto state = [](uint64_t number) {
    const auto device = static_cast<uint16_t>(1 + number % 2);
    write(static_cast<uint8_t>(device | kApart), {choice(kKernel, device, {term(TS_BLOCKS, 64 + number % 3)}),
                                                  choice(kKernel, device, {term(TS_BLOCKS, 64)})});
  };
  table.sequence = 0;
  state(0);
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> wrong{0}, seen{0};
  PlacedClasses classes(kKernel);
  const auto look = [&] {
    for (uint32_t i = 0; !ended; ++i) {
      const Launch launch(i % 90 + 1);
      const LaunchQuantities quantities(launch.request, function());
      const auto chosen = choose(table, kKernel, quantities);
      // Sequence 2 is state 0, 4 is state 1.
      if (chosen && chosen->device != 1 + (chosen->sequence / 2 + 1) % 2) ++wrong;
      if (chosen) ++seen;
      const uint32_t device = classes.place(launch.request, function(), kApart).device;
      if (device > 2) ++wrong;
    }
  };
  std::thread one(look), two(look);
  for (uint64_t i = 1; i < 200000; ++i) state(i);
  ended = true;
  one.join();
  two.join();
  CHECK_EQ(wrong.load(), uint64_t{0});
  CHECK(seen.load() > 0);
  const uint32_t last = 1 + 199999 % 2;
  for (uint32_t blocks = 1; blocks <= 90; ++blocks) CHECK_EQ(device_of(classes, Launch(blocks)), last);
}
#endif

}  // namespace

namespace tessera::shim {

ts_placement_table& placement_table() { return table; }

ts_kernel_counters* counters_of_class(uint32_t kernel_id, const ClassKey& key, uint32_t* slot) {
  static std::deque<ts_kernel_counters> rows;
  if (rows_left == 0) return nullptr;
  --rows_left;
  *slot = static_cast<uint32_t>(rows.size());
  ts_class said{};
  said.kernel_id = kernel_id;
  said.n_values = key.write(said.values);
  told.push_back(said);
  return &rows.emplace_back();
}

void count_untracked_launch() {}

}  // namespace tessera::shim

TEST_MAIN()
