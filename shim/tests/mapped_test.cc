// SPDX-License-Identifier: Apache-2.0
// The account of what a program maps itself, against a model of granules; and that it costs by the mapping.
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "mapped_memory.h"
#include "tessera/protocol/channel.h"
#include "testing/check.h"

using namespace tessera::shim;

namespace {

constexpr uint64_t kBase = uint64_t{0x5200} << 32, kSize = uint64_t{1} << 41;
constexpr unsigned kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

MappedMemory::Handle exportable() {
  MappedMemory::Handle handle;
  handle.device = 0;
  handle.given_types = kFile;
  return handle;
}

CUmemAccessDesc access(CUmemAccess_flags flags, CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
  CUmemAccessDesc description{};
  description.location.type = type;
  description.flags = flags;
  return description;
}

void allow(MappedMemory& memory, Range range, const CUmemAccessDesc& description) {
  memory.begin_access(range, &description, 1);
  memory.end_access(range, &description, 1, true);
}

TEST_CASE(runs_and_pieces_agree_with_a_model) {
  constexpr uint64_t kGranules = 24;
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same orders each time
  MappedMemory memory;
  memory.start(kBase, kSize);
  std::vector<int> model(kGranules, -1);        // number of the piece; -1: nothing
  std::vector<bool> usable(kGranules * 20000);  // by number
  const auto at = [](uint64_t granule) { return kBase + granule * TS_GRANULE; };
  int last = -1;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t first = random() % kGranules, end = std::min(kGranules, first + 1 + random() % 4);
    bool free = true;
    for (uint64_t i = first; i < end; ++i) free = free && model[i] < 0;
    if (free) {
      const CUmemGenericAllocationHandle handle = CUmemGenericAllocationHandle{1} + static_cast<unsigned>(++last);
      memory.created(handle, exportable());
      memory.map({at(first), at(end)}, 0, handle);
      usable[static_cast<size_t>(last)] = random() % 2 != 0;
      if (usable[static_cast<size_t>(last)]) {
        allow(memory, {at(first), at(end)}, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
      }
      for (uint64_t i = first; i < end; ++i) model[i] = last;
    } else if (model[first] >= 0) {
      uint64_t from = first, to = first;
      while (from > 0 && model[from - 1] == model[first]) --from;
      while (to < kGranules && model[to] == model[first]) ++to;
      if (to - from > 1) CHECK(!memory.begin_unmap({at(from), at(to - 1)}));
      const auto survivors = memory.begin_unmap({at(from), at(to)});
      CHECK(survivors && survivors->size() == 1);  // the handle is held
      CHECK_EQ(memory.unmap({at(from), at(to)}).size(), size_t{1});
      for (uint64_t i = from; i < to; ++i) model[i] = -1;
    }
    const uint64_t asked = random() % kGranules;
    uint64_t from = asked, to = asked;
    while (model[asked] >= 0 && from > 0 && model[from - 1] >= 0) --from;
    while (to < kGranules && model[to] >= 0) ++to;
    const auto run = memory.find(at(asked) + 17);
    CHECK_EQ(run.has_value(), model[asked] >= 0);
    if (run) CHECK(*run == (Range{at(from), at(to)}));
    CHECK_EQ(memory.piece_of(at(asked)).has_value(), model[asked] >= 0);
    if (model[asked] >= 0) {
      CHECK_EQ(memory.stays_home({at(asked), at(asked) + 1}), !usable[static_cast<size_t>(model[asked])]);
      CHECK(memory.find_ending_at(at(to)).has_value());
    }
    std::vector<Range> pieces;
    memory.intersect({at(0), at(kGranules)}, pieces);
    uint64_t mapped = 0, covered = 0;
    for (const int piece : model) mapped += piece >= 0 ? TS_GRANULE : 0;
    for (const Range& piece : pieces) covered += piece.size();
    CHECK_EQ(covered, mapped);
    CHECK_EQ(memory.mapped_bytes(), mapped);
  }
}

TEST_CASE(what_others_reach_stays_home) {
  MappedMemory memory;
  memory.start(kBase, kSize);
  const Range one{kBase, kBase + TS_GRANULE}, two{kBase + 8 * TS_GRANULE, kBase + 9 * TS_GRANULE};
  const auto fresh = [&](CUmemGenericAllocationHandle handle, Range range) {
    memory.created(handle, exportable());
    memory.map(range, 0, handle);
    allow(memory, range, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK(!memory.stays_home(range));
  };
  fresh(1, one);
  CHECK_EQ(memory.share_if_mapped(1).size(), size_t{1});  // an alias is about to come
  memory.map(two, 0, 1);
  allow(memory, two, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CHECK(memory.stays_home(one) && memory.stays_home(two));
  memory.released(1);
  CHECK_EQ(memory.begin_unmap(one).value_or(std::vector<Range>{}).size(), size_t{1});  // lives on in the other
  memory.unmap(one);
  const auto rest = memory.begin_unmap(two);  // the memory goes with it
  CHECK(rest && rest->empty());
  memory.unmap(two);
  CHECK(memory.handle(1) == nullptr);

  fresh(2, one);
  CHECK_EQ(memory.share(2).size(), size_t{1});
  CHECK(memory.stays_home(one));
  memory.unmap(one);
  fresh(3, one);
  const CUmemAccessDesc read = access(CU_MEM_ACCESS_FLAGS_PROT_READ);
  CHECK_EQ(memory.begin_access(one, &read, 1).size(), size_t{1});
  memory.end_access(one, &read, 1, false);  // the driver refused
  CHECK(!memory.stays_home(one));
  allow(memory, one, read);
  CHECK(memory.stays_home(one));
  allow(memory, one, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CHECK(!memory.stays_home(one));
  allow(memory, one, access(CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_LOCATION_TYPE_HOST));
  CHECK(memory.stays_home(one));
  memory.unmap(one);
  memory.map(one, 0, 99);  // of no known handle
  allow(memory, one, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CHECK(memory.stays_home(one));
}

TEST_CASE(reservations_keep_apart_until_the_slot_is_full) {
  MappedMemory memory;
  memory.start(kBase, kSize);
  const uint64_t bytes = uint64_t{112} << 30, floor = kBase + (uint64_t{300} << 30);
  std::vector<Range> given;
  while (const uint64_t at = memory.propose(bytes, 0, floor, 0)) {
    const Range range{at, at + bytes};
    CHECK(at % TS_GRANULE == 0 && at >= floor && range.end <= kBase + kSize);
    for (const Range& other : given) CHECK(!range.overlaps({other.begin - TS_GRANULE, other.end + TS_GRANULE}));
    memory.reserve(range);
    given.push_back(range);
  }
  CHECK(given.size() >= 13);
  CHECK(memory.forget_reservation(given[3].begin, bytes).has_value());
  CHECK_EQ(memory.propose(bytes, 0, floor, 0), given[3].begin);
  CHECK_EQ(memory.propose(kSize + 1, 0, floor, 0), uint64_t{0});
}

TEST_CASE(a_block_of_112_gib_costs_as_much_as_one_of_2_mib) {
  const auto time = [](uint64_t bytes) {
    MappedMemory memory;
    memory.start(kBase, kSize);
    const Range range{kBase, kBase + bytes};
    const auto began = std::chrono::steady_clock::now();
    for (int turn = 0; turn < 1000; ++turn) {
      memory.created(1, exportable());
      memory.map(range, 0, 1);
      allow(memory, range, access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
      CHECK(memory.find(range.end - 1).has_value());
      memory.begin_unmap(range);
      memory.unmap(range);
    }
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count() / 1000;
  };
  const double small = time(TS_GRANULE), large = time(uint64_t{112} << 30);
  std::printf("       %.0f ns for 2 MiB, %.0f ns for 112 GiB\n", small, large);
  CHECK(large < 20 * small + 10000);
}

}  // namespace

TEST_MAIN()
