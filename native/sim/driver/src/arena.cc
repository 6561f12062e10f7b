// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "api.h"
#include "report.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kSlot = 512 * kGiB;  // address distance between devices
constexpr uint64_t kFirstBase = 0x7e0000000000;
constexpr uint64_t kGap = kAllocationUnit;
constexpr uint64_t kReturnThreshold = 128 << 10;  // smaller frees keep their pages

void* map_at(uint64_t address, uint64_t span, int file) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = mmap(wanted, span, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_NORESERVE | (address != 0 ? MAP_FIXED_NOREPLACE : 0), file, 0);
  if (got == MAP_FAILED) return nullptr;
  if (address != 0 && got != wanted) {  // an old kernel that takes the flag for a hint
    munmap(got, span);
    return nullptr;
  }
  return got;
}

}  // namespace

Arena::Arena(int physical_ordinal, uint64_t device_bytes) {
  file_ = memfd_create(("tessera-sim-device-" + std::to_string(physical_ordinal)).c_str(), MFD_CLOEXEC);
  if (file_ < 0) throw std::bad_alloc();
  const uint64_t wanted = kFirstBase - static_cast<uint64_t>(physical_ordinal) * kSlot;
  uint64_t span = std::clamp(round_up(4 * device_bytes, kGiB), 64 * kGiB, kSlot);
  void* memory = nullptr;
  // Tools like valgrind leave neither the wanted place nor that much room.
  for (; memory == nullptr && span >= kGiB / 4; span /= 2) {
    if (ftruncate(file_, static_cast<off_t>(span)) != 0) continue;
    memory = map_at(wanted, span, file_);
    if (memory == nullptr) memory = map_at(0, span, file_);
    if (memory != nullptr) break;
  }
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, span, MADV_DONTDUMP);
  base_ = reinterpret_cast<uint64_t>(memory);
  span_ = span;
  insert_free(base_, base_ + span_);
}

void Arena::insert_free(uint64_t begin, uint64_t end) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    erase_free(next);
  }
  next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second == begin) {
      begin = previous->first;
      erase_free(previous);
    }
  }
  free_.emplace(begin, end);
  free_by_size_.emplace(end - begin, begin);
}

void Arena::erase_free(std::map<uint64_t, uint64_t>::iterator range) {
  free_by_size_.erase({range->second - range->first, range->first});
  free_.erase(range);
}

uint64_t Arena::allocate(uint64_t size, uint64_t alignment) {
  const uint64_t need = round_up(size, kAllocationUnit) + kGap;
  const std::lock_guard lock(mutex_);
  for (auto candidate = free_by_size_.lower_bound({need, 0}); candidate != free_by_size_.end(); ++candidate) {
    const uint64_t begin = candidate->second, end = begin + candidate->first;
    const uint64_t at = round_up(begin, alignment);
    if (at + need > end) continue;
    erase_free(free_.find(begin));
    if (at > begin) insert_free(begin, at);
    if (at + need < end) insert_free(at + need, end);
    return at;
  }
  return 0;
}

void Arena::free(uint64_t address, uint64_t size) {
  const uint64_t end = address + round_up(size, kAllocationUnit) + kGap;
  if (size >= kReturnThreshold) {
    const uint64_t page = 4096;
    const uint64_t first = round_up(address - base_, page), last = (end - base_) / page * page;
    if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(last - first)) != 0) {
      diagnose("freed device memory could not be given back to the system");
    }
  }
  const std::lock_guard lock(mutex_);
  insert_free(address, end);
}

}  // namespace tessera::sim
