// SPDX-License-Identifier: Apache-2.0
#include "tessera/memory/arena.h"

#include <algorithm>
#include <iterator>

namespace tessera::memory {

void Arena::add_chunk(Range chunk) {
  chunks_.emplace(chunk.begin, chunk.end);
  mapped_ += chunk.size();
  insert_free(chunk.begin, chunk.end);
}

Range Arena::remove_chunk(uint64_t begin) {
  const auto chunk = chunks_.find(begin);
  const Range range{chunk->first, chunk->second};
  erase_free(range.begin, range.end);
  blocks_.erase(range.begin);
  chunks_.erase(chunk);
  mapped_ -= range.size();
  return range;
}

bool Arena::chunk_is_free(uint64_t begin) const {
  const auto chunk = chunks_.find(begin);
  if (chunk == chunks_.end()) return false;
  const auto block = blocks_.find(begin);
  return block->second.requested == 0 && block->second.end == chunk->second;
}

std::vector<Range> Arena::free_chunks() const {
  std::vector<Range> result;
  for (const auto& [begin, end] : chunks_) {
    if (chunk_is_free(begin)) result.push_back({begin, end});
  }
  return result;
}

std::optional<Range> Arena::chunk_of(uint64_t address) const {
  auto it = chunks_.upper_bound(address);
  if (it == chunks_.begin()) return std::nullopt;
  --it;
  if (address >= it->second) return std::nullopt;
  return Range{it->first, it->second};
}

std::optional<uint64_t> Arena::allocate(uint64_t size) {
  if (size == 0 || size > UINT64_MAX - kAlignment) return std::nullopt;
  const uint64_t padded = (size + kAlignment - 1) / kAlignment * kAlignment;
  const auto fit = free_.lower_bound({padded, 0});
  if (fit == free_.end()) return std::nullopt;
  const auto [block_size, begin] = *fit;
  free_.erase(fit);
  blocks_[begin] = Block{begin + padded, size};
  if (block_size > padded) {
    blocks_.emplace(begin + padded, Block{begin + block_size, 0});
    free_.insert({block_size - padded, begin + padded});
  }
  used_ += size;
  occupied_ += padded;
  ++changes_;
  return begin;
}

std::optional<Range> Arena::free(uint64_t address) {
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.requested == 0) return std::nullopt;
  const Range freed{address, address + it->second.requested};
  used_ -= it->second.requested;
  const uint64_t end = it->second.end;
  occupied_ -= end - address;
  ++changes_;
  blocks_.erase(it);
  insert_free(address, end);
  return freed;
}

bool Arena::resize(uint64_t address, uint64_t size) {
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.requested == 0 || size == 0 || size > it->second.end - address) return false;
  used_ += size - it->second.requested;
  it->second.requested = size;
  ++changes_;
  return true;
}

void Arena::insert_free(uint64_t begin, uint64_t end) {
  const Range chunk = *chunk_of(begin);
  auto next = blocks_.find(end);
  if (end < chunk.end && next != blocks_.end() && next->second.requested == 0) {
    erase_free(next->first, next->second.end);
    end = next->second.end;
    blocks_.erase(next);
  }
  auto at = blocks_.lower_bound(begin);
  if (begin > chunk.begin && at != blocks_.begin()) {
    auto before = std::prev(at);
    if (before->second.end == begin && before->second.requested == 0) {
      erase_free(before->first, before->second.end);
      begin = before->first;
      blocks_.erase(before);
    }
  }
  blocks_.emplace(begin, Block{end, 0});
  free_.insert({end - begin, begin});
}

std::optional<Range> Arena::find(uint64_t address) const {
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return std::nullopt;
  --it;
  if (it->second.requested == 0 || address >= it->first + it->second.requested) return std::nullopt;
  return Range{it->first, it->first + it->second.requested};
}

std::optional<Range> Arena::find_ending_at(uint64_t address) const {
  auto it = blocks_.lower_bound(address);
  if (it == blocks_.begin()) return std::nullopt;
  --it;
  if (it->second.requested == 0 || it->first + it->second.requested != address) return std::nullopt;
  return Range{it->first, address};
}

std::optional<Range> Arena::find_next(uint64_t address) const {
  auto it = blocks_.upper_bound(address);
  while (it != blocks_.end() && it->second.requested == 0) ++it;
  if (it == blocks_.end()) return std::nullopt;
  return Range{it->first, it->first + it->second.requested};
}

void Arena::intersect(Range range, std::vector<Range>& out) const {
  auto it = blocks_.upper_bound(range.begin);
  if (it != blocks_.begin()) --it;
  for (; it != blocks_.end() && it->first < range.end; ++it) {
    if (it->second.requested == 0) continue;
    const Range piece{std::max(it->first, range.begin), std::min(it->first + it->second.requested, range.end)};
    if (piece.begin < piece.end) out.push_back(piece);
  }
}

}  // namespace tessera::memory
