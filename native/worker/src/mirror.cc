// SPDX-License-Identifier: Apache-2.0
#include "mirror.h"

#include <vector>

namespace tessera::worker {

Mirror::Mirror(const Device& device, StatusPage& status, const Slot& slot)
    : device_(device),
      status_(status),
      slot_(slot),
      addresses_(device, slot.base, slot.size),
      mapped_(slot.granules()) {}

Mirror::~Mirror() {
  const Driver& driver = device_.driver();
  for (const auto& [first, block] : blocks_) {
    driver.note(driver.cuMemUnmap(slot_.address_of(first), block.count * TS_GRANULE), "cuMemUnmap");
  }
  clear_scratch();
  status_.give_back(held_ * TS_GRANULE);
}

void Mirror::abandon() {
  blocks_.clear();
  scratch_granules_ = 0;
  addresses_.abandon();
  scratch_.abandon();
}

Mirror::Blocks::iterator Mirror::block_of(uint64_t granule) {
  auto after = blocks_.upper_bound(granule);
  if (after == blocks_.begin()) return blocks_.end();
  --after;
  return granule < after->first + after->second.count ? after : blocks_.end();
}

bool Mirror::is_mapped(uint64_t begin, uint64_t end) const {
  if (!slot_.contains(begin, end)) return false;
  const auto [first, stop] = slot_.touched(begin, end);
  return mapped_.has_all(first, stop);
}

bool Mirror::map(const Chunks& chunks, uint64_t begin, uint64_t end, uint64_t* mapped) {
  const auto [first, stop] = slot_.touched(begin, end);
  for (uint64_t granule = mapped_.next_without(first, stop); granule < stop;
       granule = mapped_.next_without(granule, stop)) {
    uint64_t run_end = mapped_.next_with(granule, chunks.chunk_end(granule, stop));
    if (const auto block = block_of(granule); block != blocks_.end()) {
      granule = revive(block, granule, run_end);
      continue;
    }
    // The run may not grow into a block whose evicted part begins behind it.
    if (const auto next = blocks_.lower_bound(granule); next != blocks_.end()) run_end = std::min(run_end, next->first);
    if (!map_run(granule, std::min(run_end, granule + kMaxBlock), mapped)) return false;
  }
  return true;
}

/// The evicted granules of [first, end) that lie in `block` count as mapped again. Returns where they end.
uint64_t Mirror::revive(Blocks::iterator block, uint64_t first, uint64_t end) {
  const uint64_t stop = std::min(end, block->first + block->second.count);
  mapped_.add(first, stop);
  block->second.evicted -= stop - first;
  if (block->second.evicted == 0) --partial_blocks_;
  return stop;
}

bool Mirror::map_run(uint64_t first, uint64_t end, uint64_t* mapped) {
  const uint64_t bytes = (end - first) * TS_GRANULE;
  if (!status_.reserve(bytes)) return false;
  try {
    MemoryHandle::create(device_, bytes).map(device_, slot_.address_of(first), bytes);
  } catch (...) {
    status_.give_back(bytes);
    throw;
  }
  blocks_[first] = {end - first, 0};
  held_ += end - first;
  mapped_.add(first, end);
  *mapped += bytes;
  return true;
}

void Mirror::evict(uint64_t first, uint64_t end) {
  for (uint64_t granule = mapped_.next_with(first, end); granule < end; granule = mapped_.next_with(granule, end)) {
    const auto block = block_of(granule);
    const uint64_t stop = mapped_.next_without(granule, std::min(end, block->first + block->second.count));
    mapped_.remove(granule, stop);
    if (block->second.evicted == 0) ++partial_blocks_;
    block->second.evicted += stop - granule;
    if (block->second.evicted == block->second.count) {
      --partial_blocks_;
      unmap(block);
    }
    granule = stop;
  }
}

void Mirror::unmap(Blocks::iterator block) {
  const auto [first, content] = *block;
  blocks_.erase(block);
  held_ -= content.count;
  status_.give_back(content.count * TS_GRANULE);
  const Driver& driver = device_.driver();
  driver.check(driver.cuMemUnmap(slot_.address_of(first), content.count * TS_GRANULE), "cuMemUnmap");
}

void Mirror::compact(CUstream stream, const std::function<void()>& wait) {
  if (!scratch_) scratch_ = Reservation(device_, 0, kMaxBlock * TS_GRANULE);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.evicted != 0) split(block, stream, wait);
    block = next;
  }
}

/// Moves the granules in use of `block` to memory of their own, at the same addresses. The physical memory for them is
/// taken beside the block's; the budget counts only what stays.
void Mirror::split(Blocks::iterator block, CUstream stream, const std::function<void()>& wait) {
  const Driver& driver = device_.driver();
  const auto [first, content] = *block;
  std::vector<std::pair<uint64_t, MemoryHandle>> moved;
  for (uint64_t granule = mapped_.next_with(first, first + content.count); granule < first + content.count;
       granule = mapped_.next_with(granule + 1, first + content.count)) {
    const uint64_t at = scratch_.address() + scratch_granules_ * TS_GRANULE;
    moved.emplace_back(granule, MemoryHandle::create(device_, TS_GRANULE));
    moved.back().second.map(device_, at, TS_GRANULE);
    ++scratch_granules_;
    driver.check(driver.cuMemcpyDtoDAsync_v2(at, slot_.address_of(granule), TS_GRANULE, stream), "cuMemcpyDtoDAsync");
  }
  wait();
  clear_scratch();
  --partial_blocks_;
  blocks_.erase(block);
  driver.check(driver.cuMemUnmap(slot_.address_of(first), content.count * TS_GRANULE), "cuMemUnmap");
  for (const auto& [granule, memory] : moved) {
    memory.map(device_, slot_.address_of(granule), TS_GRANULE);
    blocks_[granule] = {1, 0};
  }
  held_ -= content.evicted;
  status_.give_back(content.evicted * TS_GRANULE);
}

void Mirror::clear_scratch() {
  const Driver& driver = device_.driver();
  for (; scratch_granules_ > 0; --scratch_granules_) {
    const uint64_t at = scratch_.address() + (scratch_granules_ - 1) * TS_GRANULE;
    driver.note(driver.cuMemUnmap(at, TS_GRANULE), "cuMemUnmap");
  }
}

}  // namespace tessera::worker
