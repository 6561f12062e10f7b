// SPDX-License-Identifier: Apache-2.0
#include "mapped_memory.h"

#include <algorithm>
#include <iterator>

#include "tessera/protocol/channel.h"

namespace tessera::shim {
namespace {

constexpr uint64_t kGap = uint64_t{1} << 30;  // kept free between reservations: they are no neighbours by accident

bool is_whole(Range range) { return range.begin % TS_GRANULE == 0 && range.end % TS_GRANULE == 0; }

uint64_t round_up(uint64_t address, uint64_t alignment) { return (address + alignment - 1) / alignment * alignment; }

/// What becomes of the access of the device that has the memory; true where nothing is said of it.
bool keeps_access(const CUmemAccessDesc* access, size_t count, CUdevice device, bool before) {
  bool result = before;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id != device) continue;
    result = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return result;
}

bool lets_others_in(const CUmemAccessDesc* access, size_t count) {
  return std::any_of(access, access + count, [](const CUmemAccessDesc& one) {
    return one.location.type != CU_MEM_LOCATION_TYPE_DEVICE && one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  });
}

}  // namespace

bool MappedMemory::fits(Range range) const {
  if (range.begin < slot_.begin || range.end > slot_.end || range.begin >= range.end) return false;
  const auto after = reservations_.lower_bound(range.begin);
  if (after != reservations_.end() && after->first < range.end + kGap) return false;
  return after == reservations_.begin() || std::prev(after)->second + kGap <= range.begin;
}

uint64_t MappedMemory::propose(uint64_t bytes, uint64_t alignment, uint64_t floor, uint64_t refused) const {
  if (bytes == 0 || bytes > slot_.size()) return 0;
  alignment = std::max<uint64_t>(alignment, TS_GRANULE);
  // From the middle up: the memory that is served from the slot grows from its begin.
  uint64_t at =
      round_up(std::max({slot_.begin + slot_.size() / 2, floor, refused == 0 ? 0 : refused + kGap}), alignment);
  while (at < slot_.end && bytes <= slot_.end - at) {
    if (fits({at, at + bytes})) return at;
    auto next = reservations_.upper_bound(at + bytes + kGap - 1);
    if (next == reservations_.begin()) return 0;
    at = round_up(std::max(at + 1, std::prev(next)->second + kGap), alignment);
  }
  // Then what is left below the lowest, down to the floor.
  if (refused != 0) return 0;
  const uint64_t top = std::min(lowest(), slot_.begin + slot_.size() / 2);
  if (top < floor || top - floor < bytes + 2 * kGap) return 0;
  at = (top - kGap - bytes) / alignment * alignment;
  return at >= floor + kGap && fits({at, at + bytes}) ? at : 0;
}

void MappedMemory::reserve(Range range) {
  if (range.begin >= slot_.begin && range.end <= slot_.end) reservations_[range.begin] = range.end;
}

std::optional<Range> MappedMemory::forget_reservation(uint64_t begin, uint64_t size) {
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second - begin != size) return std::nullopt;
  reservations_.erase(found);
  return Range{begin, begin + size};
}

void MappedMemory::created(CUmemGenericAllocationHandle handle, const Handle& properties) {
  handles_[handle] = properties;
}

void MappedMemory::retained(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found != handles_.end()) ++found->second.references;
}

void MappedMemory::released(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  if (found->second.references != 0) --found->second.references;
  if (found->second.references == 0 && found->second.places.empty()) handles_.erase(found);
}

const MappedMemory::Handle* MappedMemory::handle(CUmemGenericAllocationHandle handle) const {
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : &found->second;
}

std::vector<Range> MappedMemory::places_of(const Handle& handle) const {
  std::vector<Range> places;
  places.reserve(handle.places.size());
  for (const uint64_t begin : handle.places) places.push_back({begin, pieces_.at(begin).end});
  return places;
}

std::vector<Range> MappedMemory::share(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return {};
  found->second.shared = true;
  for (const uint64_t begin : found->second.places) fix(begin);
  return places_of(found->second);
}

std::vector<Range> MappedMemory::share_if_mapped(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.places.empty()) return {};
  for (const uint64_t begin : found->second.places) fix(begin);
  return places_of(found->second);
}

template <class Change>
void MappedMemory::change(Piece& piece, Change&& change) {
  const bool before = piece.stays_home();
  change(piece);
  if (!piece.in_slot || piece.stays_home() == before) return;
  if (before)
    --home_pieces_;
  else
    ++home_pieces_;
  ++changes_;
}

void MappedMemory::fix(uint64_t begin) {
  change(pieces_.at(begin), [](Piece& piece) { piece.fixed = true; });
}

void MappedMemory::map(Range range, uint64_t offset, CUmemGenericAllocationHandle handle) {
  const auto known = handles_.find(handle);
  const bool in_slot = range.begin >= slot_.begin && range.end <= slot_.end;
  if (known == handles_.end() && !in_slot) return;
  Piece piece;
  piece.end = range.end;
  piece.in_slot = in_slot;
  piece.fixed = true;
  if (known != handles_.end()) {
    Handle& backing = known->second;
    piece.handle = handle;
    piece.fixed = backing.shared || !backing.places.empty() || offset != 0 || !is_whole(range) ||
                  (backing.given_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0 ||
                  range.end == slot_.end;  // what lies behind is no part of its run
    backing.places.insert(range.begin);
  }
  pieces_[range.begin] = piece;
  if (!in_slot) return;
  ++home_pieces_;  // no device may reach it yet
  mapped_ += range.size();
  add_to_runs(range);
}

std::optional<std::vector<Range>> MappedMemory::begin_unmap(Range range) {
  bool whole = true;
  std::vector<Range> survivors;
  for_each_piece(range, [&](uint64_t begin, Piece& piece) {
    whole = whole && begin >= range.begin && piece.end <= range.end;
    const Handle* backing = handle(piece.handle);
    const bool dies = backing != nullptr && backing->references == 0 && backing->places.size() == 1;
    if (piece.in_slot && !dies) survivors.push_back({begin, piece.end});
  });
  if (!whole) return std::nullopt;
  keep_home(range);
  return survivors;
}

std::vector<Range> MappedMemory::unmap(Range range) {
  std::vector<Range> gone;
  for (auto piece = pieces_.lower_bound(range.begin); piece != pieces_.end() && piece->first < range.end;) {
    const auto [begin, content] = *piece;
    piece = pieces_.erase(piece);
    if (const auto backing = handles_.find(content.handle); backing != handles_.end()) {
      backing->second.places.erase(begin);
      if (backing->second.places.empty() && backing->second.references == 0) handles_.erase(backing);
    }
    if (!content.in_slot) continue;
    if (content.stays_home()) --home_pieces_;
    mapped_ -= content.end - begin;
    remove_from_runs({begin, content.end});
    gone.push_back({begin, content.end});
  }
  return gone;
}

std::vector<Range> MappedMemory::begin_access(Range range, const CUmemAccessDesc* access, size_t count) {
  std::vector<Range> homeward;
  const bool others = lets_others_in(access, count);
  for_each_piece(range, [&](uint64_t begin, Piece& piece) {
    const bool before = piece.stays_home();
    const auto backing = handles_.find(piece.handle);
    piece.was_accessible = piece.accessible;
    change(piece, [&](Piece& changed) {
      changed.fixed = changed.fixed || others || begin < range.begin || piece.end > range.end;
      changed.accessible = changed.accessible && backing != handles_.end() &&
                           keeps_access(access, count, backing->second.device, changed.accessible);
    });
    if (piece.in_slot && !before && piece.stays_home()) homeward.push_back({begin, piece.end});
  });
  return homeward;
}

void MappedMemory::end_access(Range range, const CUmemAccessDesc* access, size_t count, bool done) {
  for_each_piece(range, [&](uint64_t, Piece& piece) {
    const auto backing = handles_.find(piece.handle);
    change(piece, [&](Piece& changed) {
      changed.accessible = changed.was_accessible;
      if (!done) return;
      changed.accessible =
          backing != handles_.end() && keeps_access(access, count, backing->second.device, changed.was_accessible);
    });
  });
}

void MappedMemory::keep_home(Range range) {
  for_each_piece(range, [&](uint64_t begin, Piece&) { fix(begin); });
}

MappedMemory::Pieces::const_iterator MappedMemory::holding(uint64_t address) const {
  auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return pieces_.end();
  --after;
  return address < after->second.end ? after : pieces_.end();
}

template <class Visit>
void MappedMemory::for_each_piece(Range range, Visit&& visit) {
  auto piece = pieces_.upper_bound(range.begin);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > range.begin) --piece;
  for (; piece != pieces_.end() && piece->first < range.end; ++piece) visit(piece->first, piece->second);
}

void MappedMemory::add_to_runs(Range range) {
  ++changes_;
  auto after = runs_.lower_bound(range.begin);
  if (after != runs_.end() && after->first == range.end) {
    range.end = after->second;
    after = runs_.erase(after);
  }
  if (after != runs_.begin() && std::prev(after)->second == range.begin) {
    std::prev(after)->second = range.end;
    return;
  }
  runs_[range.begin] = range.end;
}

void MappedMemory::remove_from_runs(Range range) {
  ++changes_;
  const auto run = std::prev(runs_.upper_bound(range.begin));
  const Range whole{run->first, run->second};
  runs_.erase(run);
  if (whole.begin < range.begin) runs_[whole.begin] = range.begin;
  if (range.end < whole.end) runs_[range.end] = whole.end;
}

std::optional<Range> MappedMemory::find(uint64_t address) const {
  const auto after = runs_.upper_bound(address);
  if (after == runs_.begin() || std::prev(after)->second <= address) return std::nullopt;
  return Range{std::prev(after)->first, std::prev(after)->second};
}

std::optional<Range> MappedMemory::find_ending_at(uint64_t address) const {
  const auto after = runs_.lower_bound(address);
  if (after == runs_.begin() || std::prev(after)->second != address) return std::nullopt;
  return Range{std::prev(after)->first, address};
}

std::optional<Range> MappedMemory::find_next(uint64_t address) const {
  const auto after = runs_.upper_bound(address);
  if (after == runs_.end()) return std::nullopt;
  return Range{after->first, after->second};
}

void MappedMemory::intersect(Range range, std::vector<Range>& out) const {
  auto run = runs_.upper_bound(range.begin);
  if (run != runs_.begin() && std::prev(run)->second > range.begin) --run;
  for (; run != runs_.end() && run->first < range.end; ++run) {
    out.push_back({std::max(run->first, range.begin), std::min(run->second, range.end)});
  }
}

std::optional<Range> MappedMemory::piece_of(uint64_t address) const {
  const auto piece = holding(address);
  if (piece == pieces_.end() || !piece->second.in_slot) return std::nullopt;
  return Range{piece->first, piece->second.end};
}

const MappedMemory::Handle* MappedMemory::handle_at(uint64_t address) const {
  const auto piece = holding(address);
  return piece == pieces_.end() ? nullptr : handle(piece->second.handle);
}

bool MappedMemory::stays_home(Range range) const {
  if (home_pieces_ == 0) return false;
  auto piece = pieces_.upper_bound(range.begin);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > range.begin) --piece;
  for (; piece != pieces_.end() && piece->first < range.end; ++piece) {
    if (piece->second.in_slot && piece->second.stays_home()) return true;
  }
  return false;
}

}  // namespace tessera::shim
