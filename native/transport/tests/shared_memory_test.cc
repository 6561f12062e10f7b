// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/shared_memory.h"

#include <signal.h>
#include <sys/mman.h>

#include <cstring>

#include "support.h"

namespace tessera::transport {
namespace {

TEST_CASE(two_mappings_share_their_bytes) {
  const SharedMemory memory = SharedMemory::create("test", 8192);
  CHECK_EQ(memory.size(), 8192u);
  const SharedMemory other = SharedMemory::map(memory.fd().duplicate(), 8192);
  memory.as<char>()[8191] = 'x';
  CHECK_EQ(other.as<char>()[8191], 'x');
  CHECK_EQ(other.as<char>()[0], '\0');
}

TEST_CASE(nobody_can_resize_it) {
  const SharedMemory memory = SharedMemory::create("test", 8192);
  CHECK(ftruncate(memory.fd().get(), 4096) != 0);
  CHECK(ftruncate(memory.fd().get(), 16384) != 0);
}

TEST_CASE(unsealed_or_short_memory_is_refused) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(unsealed.get(), 8192) == 0);
  CHECK_EQ(status_of([&] { SharedMemory::map(std::move(unsealed), 8192); }), Status::kCorrupt);
  const SharedMemory memory = SharedMemory::create("test", 4096);
  CHECK_EQ(status_of([&] { SharedMemory::map(memory.fd().duplicate(), 4097); }), Status::kCorrupt);
  CHECK_EQ(status_of([&] { SharedMemory::map(UniqueFd(dup(0)), 1); }), Status::kCorrupt);
}

TEST_CASE(constant_bytes_cannot_be_changed) {
  const char text[] = "kernel image";
  const UniqueFd fd = make_constant("image", text, sizeof text);
  CHECK(write(fd.get(), "x", 1) != 1);
  CHECK(ftruncate(fd.get(), 0) != 0);
  CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0) == MAP_FAILED);
  const std::vector<char> back = read_whole(fd, sizeof text);
  CHECK(std::memcmp(back.data(), text, sizeof text) == 0);
  CHECK_EQ(status_of([&] { read_whole(fd, sizeof text + 1); }), Status::kCorrupt);
  CHECK_EQ(status_of([&] { read_whole(fd, size_t{1} << 60); }), Status::kCorrupt);
}

TEST_CASE(nothing_leaks) {
  const int before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    SharedMemory memory = SharedMemory::create("test", 4096);
    SharedMemory moved = std::move(memory);
    CHECK(!memory);  // NOLINT(bugprone-use-after-move): what the move leaves is tested
    memory = std::move(moved);
    CHECK(memory.as<char>()[0] == 0);
  }
  CHECK_EQ(open_descriptors(), before);
  CHECK_EQ(status_of([] { SharedMemory::create("test", size_t{1} << 62); }), Status::kRefused);
  CHECK_EQ(open_descriptors(), before);
}

TEST_CASE(an_ended_process_is_seen) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const UniqueFd process = open_process(child);
  REQUIRE(process);
  CHECK(!process_ended(process));
  kill(child, SIGKILL);
  for (int i = 0; i < 1000 && !process_ended(process); ++i) usleep(1000);
  CHECK(process_ended(process));
  CHECK(!process_ended(UniqueFd()));
  CHECK(!open_process(0));
}

}  // namespace
}  // namespace tessera::transport

TEST_MAIN()
