// SPDX-License-Identifier: Apache-2.0
#include "chunks.h"

namespace tessera::worker {

Chunks::Chunks(const Device& device, const Slot& slot)
    : device_(device),
      slot_(slot),
      alias_(device, 0, slot.size),
      live_(slot.granules()),
      releasing_(slot.granules()),
      starts_(slot.granules()) {}

Chunks::~Chunks() {
  const Driver& driver = device_.driver();
  for (const auto& [address, size] : sizes_) driver.note(driver.cuMemUnmap(alias(address), size), "cuMemUnmap");
}

void Chunks::abandon() {
  sizes_.clear();
  alias_.abandon();
}

std::string Chunks::objection(uint64_t address, uint64_t size) const {
  if (size == 0 || size > slot_.size || !slot_.contains(address, address + size)) return "lies outside the slot";
  if (!slot_.aligned(address, address + size)) return "is not made of whole granules";
  const auto [first, end] = slot_.touched(address, address + size);
  if (!live_.has_none(first, end)) return "overlaps another one";
  return "";
}

bool Chunks::releasing(uint64_t address, uint64_t size) const {
  const auto [first, end] = slot_.touched(address, address + size);
  return !releasing_.has_none(first, end);
}

void Chunks::add(uint64_t address, uint64_t size, const MemoryHandle& memory) {
  memory.map(device_, alias(address), size);
  const auto [first, end] = slot_.touched(address, address + size);
  sizes_[address] = size;
  live_.add(first, end);
  starts_.add(first, first + 1);
}

bool Chunks::cover(uint64_t begin, uint64_t end) const {
  if (!slot_.contains(begin, end)) return false;
  const auto [first, stop] = slot_.touched(begin, end);
  return live_.has_all(first, stop);
}

bool Chunks::are_whole(uint64_t begin, uint64_t end) const {
  if (!cover(begin, end) || !slot_.aligned(begin, end)) return false;
  const auto [first, stop] = slot_.touched(begin, end);
  const bool ends_with_chunk = stop == slot_.granules() || starts_.has(stop) || !live_.has(stop);
  return starts_.has(first) && ends_with_chunk;
}

void Chunks::begin_release(uint64_t begin, uint64_t end) {
  const auto [first, stop] = slot_.touched(begin, end);
  live_.remove(first, stop);
  releasing_.add(first, stop);
}

void Chunks::finish_release(uint64_t begin, uint64_t end) {
  const auto [first, stop] = slot_.touched(begin, end);
  for (auto chunk = sizes_.lower_bound(begin); chunk != sizes_.end() && chunk->first < end;) {
    device_.driver().check(device_.driver().cuMemUnmap(alias(chunk->first), chunk->second), "cuMemUnmap");
    chunk = sizes_.erase(chunk);
  }
  releasing_.remove(first, stop);
  starts_.remove(first, stop);
}

}  // namespace tessera::worker
