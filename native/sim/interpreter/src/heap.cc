// SPDX-License-Identifier: Apache-2.0
#include "heap.h"

namespace tessera::sim {

u64 Heap::allocate(u64 bytes) {
  if (bytes == 0 || bytes > kBytes) return 0;
  bytes = (bytes + 15) / 16 * 16;
  const std::lock_guard lock(mutex_);
  for (auto entry = free_.begin(); entry != free_.end(); ++entry) {
    if (entry->second < bytes) continue;
    const u64 begin = entry->first, rest = entry->second - bytes;
    free_.erase(entry);
    if (rest != 0) free_[begin + bytes] = rest;
    used_[begin] = bytes;
    return begin;
  }
  return 0;
}

bool Heap::release(u64 address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  auto entry = free_.emplace(found->first, found->second).first;
  used_.erase(found);
  if (const auto next = std::next(entry); next != free_.end() && entry->first + entry->second == next->first) {
    entry->second += next->second;
    free_.erase(next);
  }
  if (entry != free_.begin()) {
    const auto before = std::prev(entry);
    if (before->first + before->second == entry->first) {
      before->second += entry->second;
      free_.erase(entry);
    }
  }
  return true;
}

}  // namespace tessera::sim
