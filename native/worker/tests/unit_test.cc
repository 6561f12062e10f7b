// SPDX-License-Identifier: Apache-2.0
// The parts of the worker that need no driver.
#include <random>
#include <set>

#include "attributes.h"
#include "gate.h"
#include "granule_set.h"
#include "image.h"
#include "options.h"
#include "slot.h"
#include "tessera/transport/ring.h"
#include "testing/check.h"

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

namespace tessera::worker {
namespace {

TEST_CASE(granule_sets_agree_with_a_plain_set) {
  std::mt19937 random(3);
  GranuleSet bits(300);
  std::set<uint64_t> plain;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t first = random() % 300, end = first + random() % (301 - first);
    if (random() % 2 == 0) {
      bits.add(first, end);
      for (uint64_t i = first; i < end; ++i) plain.insert(i);
    } else {
      bits.remove(first, end);
      for (uint64_t i = first; i < end; ++i) plain.erase(i);
    }
    const uint64_t from = random() % 300, to = from + random() % (301 - from);
    uint64_t with = from, without = from;
    while (with < to && !plain.contains(with)) ++with;
    while (without < to && plain.contains(without)) ++without;
    REQUIRE(bits.next_with(from, to) == with);
    REQUIRE(bits.next_without(from, to) == without);
    REQUIRE(bits.has_all(from, to) == (without == to));
    REQUIRE(bits.has_none(from, to) == (with == to));
  }
}

TEST_CASE(slots) {
  const Slot slot{8 * uint64_t{TS_GRANULE}, 4 * uint64_t{TS_GRANULE}};
  CHECK(slot.contains(slot.base, slot.end()));
  CHECK(!slot.contains(slot.base - 1, slot.end()));
  CHECK(!slot.contains(slot.base, slot.end() + 1));
  CHECK(!slot.contains(slot.base + 5, slot.base + 5));
  CHECK(!slot.contains(slot.base + 5, slot.base));
  CHECK(!slot.contains(UINT64_MAX - 5, 10));
  const auto touched = slot.touched(slot.base + TS_GRANULE - 1, slot.base + TS_GRANULE + 1);
  CHECK_EQ(touched.first, 0u);
  CHECK_EQ(touched.end, 2u);
  CHECK(!slot.overlaps({slot.end(), TS_GRANULE}));
  CHECK(slot.overlaps({slot.end() - TS_GRANULE, TS_GRANULE}));
}

std::vector<char> fatbin(uint64_t payload, uint32_t entry_header, uint64_t entry_size) {
  std::vector<char> bytes(16 + 64 + 32, 0);
  const auto put = [&bytes](size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(0, uint32_t{0xba55ed50});
  put(6, uint16_t{16});
  put(8, payload);
  put(16, uint16_t{2});
  put(20, entry_header);
  put(24, entry_size);
  put(44, uint32_t{90});
  return bytes;
}

std::vector<char> cubin(uint8_t abi, uint32_t flags, uint64_t sections, uint16_t count) {
  std::vector<char> bytes(128, 0);
  const auto put = [&bytes](size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(0, uint32_t{0x464c457f});
  put(8, abi);
  put(40, sections);
  put(48, flags);
  put(58, uint16_t{64});
  put(60, count);
  return bytes;
}

TEST_CASE(images_that_lie_about_their_size_are_not_given_to_the_driver) {
  CHECK_EQ(image_objection(fatbin(96, 64, 32)), std::string());
  CHECK(!image_objection(fatbin(97, 64, 32)).empty());
  CHECK(!image_objection(fatbin(UINT64_MAX, 64, 32)).empty());
  CHECK(!image_objection(fatbin(96, 64, 33)).empty());
  CHECK(!image_objection(fatbin(96, 64, UINT64_MAX - 20)).empty());
  CHECK(!image_objection(fatbin(96, 8, 32)).empty());
  CHECK(!image_objection(fatbin(95, 64, 32)).empty());
  CHECK_EQ(image_objection(cubin(8, 0x5a04, 64, 1)), std::string());
  CHECK(!image_objection(cubin(8, 0x5a04, 64, 2)).empty());
  CHECK(!image_objection(cubin(8, 0x5a04, UINT64_MAX - 8, 1)).empty());
  const uint32_t wrapper = 0x466243b1;
  CHECK(!image_objection({reinterpret_cast<const char*>(&wrapper), 4}).empty());
  CHECK(!image_objection({}).empty());
  CHECK_EQ(image_objection(std::string_view(".version 7.0")), std::string());
}

TEST_CASE(random_bytes_do_not_break_the_image_checks) {
  std::mt19937 random(8);
  for (int i = 0; i < 20000; ++i) {
    std::vector<char> bytes = i % 2 == 0 ? fatbin(96, 64, 32) : cubin(8, 0x5a04, 64, 1);
    for (int n = 0; n < 4; ++n) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    CHECK(image_objection(bytes).size() < 200);
    CHECK(image_architectures(bytes).size() < 4000);
  }
}

TEST_CASE(architectures) {
  CHECK_EQ(image_architectures(cubin(8, 0x6005a04, 64, 1)), std::string("sm_90"));
  CHECK_EQ(image_architectures(cubin(8, 0x6006402, 64, 1)), std::string("sm_100"));
  CHECK_EQ(image_architectures(cubin(7, 0x500550, 64, 1)), std::string("sm_80"));
  CHECK_EQ(image_architectures(fatbin(96, 64, 32)), std::string("sm_90"));
  CHECK_EQ(image_architectures(std::string_view(".version 8.0\n.target sm_90a, debug\n")), std::string("sm_90a (PTX)"));
  CHECK_EQ(image_architectures(std::string_view("nothing of the kind")), std::string());
}

TEST_CASE(attributes_with_handles_or_addresses_are_refused) {
  const auto objection = [](int id) {
    CUlaunchAttribute attributes[2]{};
    std::memcpy(&attributes[1].id, &id, sizeof id);
    return attribute_objection(std::as_bytes(std::span(attributes)));
  };
  CHECK_EQ(objection(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), std::string());
  CHECK_EQ(objection(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION), std::string());
  CHECK(!objection(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT).empty());
  CHECK(!objection(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).empty());
  CHECK(!objection(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).empty());
  CHECK(!objection(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).empty());
  CHECK(!objection(9999).empty());
  CHECK_EQ(attribute_objection({}), std::string());
}

TEST_CASE(the_gate_closes_for_new_waits_and_clears_when_flags_come) {
  std::vector<ts_lane> lanes(TS_LANES);
  Gate gate;
  StartWaits waits(gate, lanes.data());
  CHECK(waits.announce(3, 7));
  CHECK(waits.outstanding());
  {
    const Closing closing(gate);
    CHECK(!closing.clear());
    CHECK(!waits.announce(4, 1));
    lanes[3].start = 7;
    CHECK(closing.clear());
    CHECK(waits.announce(3, 7));  // has come: no wait at all
    CHECK(closing.clear());
  }
  CHECK(waits.announce(4, 1));
  CHECK(waits.outstanding());
  waits.release_all(0);
  CHECK_EQ(lanes[4].start, 1u);
  CHECK(!waits.outstanding());
  CHECK(waits.grows(4, 1));
  CHECK(!waits.grows(4, 0xfffffff0));
  CHECK(waits.grows(5, 0xfffffff0));
}

TEST_CASE(any_wait_comes_true_within_four_rounds_of_release) {
  std::mt19937 random(4);
  for (int i = 0; i < 1000; ++i) {
    std::vector<ts_lane> lanes(TS_LANES);
    Gate gate;
    StartWaits waits(gate, lanes.data());
    const auto first = static_cast<uint32_t>(random()), second = static_cast<uint32_t>(random());
    CHECK(waits.announce(9, first));
    CHECK(waits.announce(9, second | 1));
    bool first_came = false, second_came = false;
    for (uint32_t round = 0; round < 4; ++round) {
      waits.release_all(round);
      first_came |= reached(lanes[9].start, first);
      second_came |= reached(lanes[9].start, second | 1);
    }
    REQUIRE(first_came && second_came);
  }
}

TEST_CASE(flags_compare_cyclically) {
  CHECK(reached(5, 5));
  CHECK(reached(6, 5));
  CHECK(!reached(4, 5));
  CHECK(reached(3, 0xfffffff0));
  CHECK(!reached(0xfffffff0, 3));
}

std::string usage_error(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tessera-worker");
  try {
    parse_options(static_cast<int>(arguments.size()), arguments.data(), 0);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE(options) {
  const char* good[] = {"w", "--device", "2", "--index", "3", "--socket", "/tmp/s", "--memory-mib", "512"};
  const Options options = parse_options(9, good, 7);
  CHECK_EQ(options.device, 2);
  CHECK_EQ(options.index, 3u);
  CHECK_EQ(options.memory_mib, 512);
  CHECK_EQ(parse_options(7, good, 7).memory_mib, 7);
  CHECK(usage_error({}).find("--device") != std::string::npos);
  CHECK(usage_error({"--device", "0", "--index", "1"}).find("--socket") != std::string::npos);
  CHECK(usage_error({"--device", "x"}).find("'x'") != std::string::npos);
  CHECK(usage_error({"--device", "-1"}).find("--device") != std::string::npos);
  CHECK(usage_error({"--index", "16"}).find("1 to 15") != std::string::npos);
  CHECK(usage_error({"--memory-mib", "99999999999999999999"}).find("--memory-mib") != std::string::npos);
  CHECK(usage_error({"--colour", "red"}).find("--colour") != std::string::npos);
  CHECK(usage_error({"--device"}).find("--device") != std::string::npos);
}

}  // namespace
}  // namespace tessera::worker

TEST_MAIN()
