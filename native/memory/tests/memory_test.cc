// SPDX-License-Identifier: Apache-2.0
// Interval map, directory and arena against plain byte-by-byte models.
#include <map>
#include <random>
#include <vector>

#include "tessera/memory/arena.h"
#include "tessera/memory/directory.h"
#include "tessera/memory/interval_map.h"
#include "testing/check.h"

namespace {

using tessera::memory::Arena;
using tessera::memory::Directory;
using tessera::memory::IntervalMap;
using tessera::memory::Range;
using tessera::memory::Replicas;
using tessera::memory::Touch;

TEST_CASE(interval_map_agrees_with_a_byte_array) {
  std::mt19937 random(7);
  constexpr uint64_t kSize = 64;
  IntervalMap<int> map;
  std::vector<int> model(kSize, 0);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t begin = random() % kSize, end = begin + random() % (kSize - begin + 1);
    const int value = static_cast<int>(random() % 3);
    map.set(begin, end, value);
    for (uint64_t i = begin; i < end; ++i) model[i] = value;
    uint64_t at = 0;
    map.for_each(0, kSize, [&](uint64_t from, uint64_t to, int piece) {
      CHECK_EQ(from, at);
      for (uint64_t i = from; i < to; ++i) CHECK_EQ(model[i], piece);
      at = to;
    });
    CHECK_EQ(at, kSize);
    // Canonical: as many intervals as there are runs of one value that is not the default.
    size_t runs = 0;
    for (uint64_t i = 0; i < kSize; ++i) runs += model[i] != 0 && (i == 0 || model[i - 1] != model[i]);
    CHECK_EQ(map.size(), runs);
  }
}

TEST_CASE(directory_agrees_with_a_byte_array) {
  std::mt19937 random(11);
  constexpr uint64_t kSize = 48;
  Directory directory;
  std::vector<uint16_t> model(kSize, 1);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t begin = random() % kSize, end = begin + random() % (kSize - begin + 1);
    const uint32_t device = random() % 3;
    const Touch touch{static_cast<uint16_t>(device), static_cast<uint16_t>(device == 0 ? 0xffff : device), 0};
    switch (random() % 3) {
      case 0:
        directory.written({begin, end}, device, device == 0 ? Touch{} : touch);
        for (uint64_t i = begin; i < end; ++i) model[i] = static_cast<uint16_t>(1u << device);
        break;
      case 1:
        directory.copied({begin, end}, device, device == 0 ? Touch{} : touch);
        for (uint64_t i = begin; i < end; ++i) model[i] |= static_cast<uint16_t>(1u << device);
        break;
      default:
        directory.forget({begin, end});
        for (uint64_t i = begin; i < end; ++i) model[i] = 1;
    }
    bool all_home = true;
    directory.for_each(Range{0, kSize}, [&](Range piece, const Replicas& replicas) {
      for (uint64_t i = piece.begin; i < piece.end; ++i) CHECK_EQ(model[i], replicas.valid);
    });
    for (const uint16_t valid : model) all_home = all_home && valid == 1;
    if (!all_home) CHECK(!directory.quiet());
  }
}

TEST_CASE(settled_touches_make_the_directory_quiet) {
  Directory directory;
  directory.written({0, 16}, 1, Touch{1, 4, 9});
  directory.written({0, 16}, 0, Touch{1, 4, 9});
  CHECK(!directory.quiet());
  directory.settle([](const Touch& touch) { return touch.serial <= 8; });
  CHECK(!directory.quiet());
  directory.settle([](const Touch& touch) { return touch.serial <= 9; });
  CHECK(directory.quiet());
}

TEST_CASE(a_lost_device_reports_only_what_it_alone_held) {
  Directory directory;
  directory.copied({0, 10}, 1, Touch{1, 0, 1});
  directory.written({10, 14}, 1, Touch{1, 0, 2});
  directory.written({20, 25}, 2, Touch{2, 0, 2});
  CHECK_EQ(directory.lost(1), uint64_t{4});
  directory.for_each(Range{0, 14}, [](Range, const Replicas& replicas) { CHECK(replicas == Replicas{}); });
  CHECK(!directory.quiet());
  CHECK_EQ(directory.lost(2), uint64_t{5});
  CHECK(directory.quiet());
}

TEST_CASE(arena_agrees_with_a_model) {
  std::mt19937 random(3);
  Arena arena;
  arena.add_chunk({0x10000, 0x20000});
  arena.add_chunk({0x20000, 0x30000});  // adjacent: no block may span the two
  std::map<uint64_t, uint64_t> live;
  uint64_t used = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      const uint64_t size = 1 + random() % 9000;
      const auto address = arena.allocate(size);
      if (!address) continue;
      CHECK_EQ(*address % Arena::kAlignment, uint64_t{0});
      CHECK_EQ(*address / 0x10000, (*address + size - 1) / 0x10000);
      auto next = live.lower_bound(*address);
      if (next != live.end()) CHECK(*address + size <= next->first);
      if (next != live.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= *address);
      live[*address] = size;
      used += size;
    } else {
      const auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
      const auto freed = arena.free(it->first);
      REQUIRE(freed.has_value());
      CHECK_EQ(freed->size(), it->second);
      used -= it->second;
      live.erase(it);
    }
    CHECK_EQ(arena.used_bytes(), used);
    const uint64_t probe = 0x10000 + random() % 0x20000;
    auto after = live.upper_bound(probe);
    const bool inside = after != live.begin() && probe < std::prev(after)->first + std::prev(after)->second;
    CHECK_EQ(arena.find(probe).has_value(), inside);
  }
  for (const auto& [address, size] : live) CHECK(arena.free(address).has_value());
  CHECK(!arena.free(0x10000).has_value());
  CHECK_EQ(arena.free_chunks().size(), size_t{2});
  CHECK_EQ(arena.remove_chunk(0x10000).size(), uint64_t{0x10000});
  CHECK_EQ(arena.mapped_bytes(), uint64_t{0x10000});
}

TEST_CASE(arena_finds_neighbours_and_intersections) {
  Arena arena;
  arena.add_chunk({0x10000, 0x20000});
  const uint64_t a = *arena.allocate(512), b = *arena.allocate(100), c = *arena.allocate(512);
  CHECK_EQ(a + 512, b);
  CHECK(arena.find_ending_at(b).value() == (Range{a, a + 512}));
  CHECK(!arena.find_ending_at(c).has_value());  // b's padding lies between
  std::vector<Range> pieces;
  arena.intersect({a + 500, c + 1}, pieces);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0] == (Range{a + 500, a + 512}));
  CHECK(pieces[1] == (Range{b, b + 100}));
  CHECK(pieces[2] == (Range{c, c + 1}));
  CHECK(arena.resize(b, 512));
  CHECK(!arena.resize(b, 513));
  CHECK(arena.find_ending_at(c).value() == (Range{b, b + 512}));
  CHECK_EQ(arena.used_bytes(), uint64_t{3 * 512});
  CHECK(!arena.allocate(0).has_value());
  CHECK(!arena.allocate(UINT64_MAX).has_value());
}

}  // namespace

TEST_MAIN()
