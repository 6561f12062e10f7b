// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "arena.h"
#include "pool.h"
#include "vmm.h"

namespace tessera::sim {

Memory::Memory() = default;
Memory::~Memory() = default;

uint64_t Memory::device_end() const {
  const bool rounded = kind == MemoryKind::kDevice || kind == MemoryKind::kPool || kind == MemoryKind::kImported;
  return begin + (rounded ? round_up(size, kAllocationUnit) : size);
}

Access Memory::access_by(int accessing_device, uint32_t peers) const {
  switch (kind) {
    case MemoryKind::kHost:
    case MemoryKind::kManaged:
      return Access::kReadWrite;
    case MemoryKind::kRegistered:
      return (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ? Access::kRead : Access::kReadWrite;
    case MemoryKind::kPool:
    case MemoryKind::kMapped:
      return access[static_cast<size_t>(accessing_device)].load(std::memory_order_acquire);
    case MemoryKind::kDevice:
    case MemoryKind::kGlobal:
    case MemoryKind::kImported:
      break;
  }
  const bool reachable = device == accessing_device || (peers >> static_cast<unsigned>(device) & 1u) != 0;
  return reachable ? Access::kReadWrite : Access::kNone;
}

void AddressMap::insert(const MemoryPtr& memory, CUresult overlap) {
  const std::unique_lock lock(mutex_);
  const uint64_t begin = memory->begin, end = std::max(memory->end(), begin + 1);
  const auto next = ranges_.lower_bound(begin);
  require(next == ranges_.end() || next->first >= end, overlap);
  if (next != ranges_.begin()) require(std::prev(next)->second->end() <= begin, overlap);
  memory->id = next_id_.fetch_add(1, std::memory_order_relaxed);
  ranges_.emplace_hint(next, begin, memory);
}

bool AddressMap::erase(const MemoryPtr& memory) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(memory->begin);
  if (found == ranges_.end() || found->second != memory) return false;
  ranges_.erase(found);
  return true;
}

MemoryPtr AddressMap::find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const MemoryPtr& candidate = std::prev(after)->second;
  return address < candidate->end() || address == candidate->begin ? candidate : nullptr;
}

MemoryPtr AddressMap::find_start(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const auto found = ranges_.find(address);
  return found == ranges_.end() ? nullptr : found->second;
}

MemoryPtr AddressMap::find_overlap(uint64_t begin, uint64_t end) const {
  const std::shared_lock lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < end) return next->second;
  if (next != ranges_.begin() && std::prev(next)->second->end() > begin) return std::prev(next)->second;
  return nullptr;
}

std::vector<MemoryPtr> AddressMap::overlapping(uint64_t begin, uint64_t end) const {
  const std::shared_lock lock(mutex_);
  std::vector<MemoryPtr> found;
  auto range = ranges_.lower_bound(begin);
  if (range != ranges_.begin() && std::prev(range)->second->end() > begin) --range;
  for (; range != ranges_.end() && range->first < end; ++range) found.push_back(range->second);
  return found;
}

bool AddressMap::cover(uint64_t begin, uint64_t size, const std::function<bool(const Memory&)>& visit) const {
  const std::shared_lock lock(mutex_);
  uint64_t at = begin;
  const uint64_t end = begin + size;
  if (end < begin) return false;
  auto range = ranges_.upper_bound(at);
  if (range == ranges_.begin()) return false;
  for (--range; at < end; ++range) {
    if (range == ranges_.end() || range->first > at || range->second->end() <= at) return false;
    if (!visit(*range->second)) return false;
    at = range->second->end();
  }
  return true;
}

std::vector<MemoryPtr> AddressMap::select(const std::function<bool(const Memory&)>& wanted) const {
  const std::shared_lock lock(mutex_);
  std::vector<MemoryPtr> found;
  for (const auto& entry : ranges_) {
    if (wanted(*entry.second)) found.push_back(entry.second);
  }
  return found;
}

AddressMap& address_map() {
  static auto* const one = new AddressMap;
  return *one;
}

}  // namespace tessera::sim
