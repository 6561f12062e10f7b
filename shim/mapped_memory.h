// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tessera/memory/directory.h"

namespace tessera::shim {

using memory::Range;

/// What the program reserves, creates and maps by the driver's virtual memory calls. All of it stays the driver's: this
/// is the account of what lies where, so that launches on it can move. Costs are of reservations, handles and mappings,
/// never of bytes. Guarded by the world's lock.
class MappedMemory {
 public:
  void start(uint64_t base, uint64_t size) { slot_ = {base, base + size}; }

  // Reservations.

  /// Where a reservation of so many bytes may be tried, none of it below `floor` and above `refused` where that is not
  /// 0; 0: the slot has no room.
  uint64_t propose(uint64_t bytes, uint64_t alignment, uint64_t floor, uint64_t refused) const;
  /// The driver has granted these addresses. Those outside the slot are of no interest.
  void reserve(Range range);
  /// The reservation is about to be freed; what was noted of it, for `reserve` if it is not freed after all.
  std::optional<Range> forget_reservation(uint64_t begin, uint64_t size);
  /// The lowest reserved address of the slot, or the slot's end.
  uint64_t lowest() const { return reservations_.empty() ? slot_.end : reservations_.begin()->first; }

  // Handles.

  struct Handle {
    CUdevice device = -1;
    unsigned asked_types = 0;  // of shareable handles, as the program asked for
    unsigned given_types = 0;  // what the driver was asked for in its place
    uint32_t references = 1;   // that the program holds
    bool shared = false;       // may be reached by others than this process's calls
    std::set<uint64_t> places{};
  };
  /// Memory of one device that this process alone holds; other handles are not to be told of.
  void created(CUmemGenericAllocationHandle handle, const Handle& properties);
  /// The program holds it once more.
  void retained(CUmemGenericAllocationHandle handle);
  /// The program is about to give one reference back.
  void released(CUmemGenericAllocationHandle handle);
  const Handle* handle(CUmemGenericAllocationHandle handle) const;
  /// From now on others may reach the memory: wherever it is mapped, it stays home. Returns where that is.
  std::vector<Range> share(CUmemGenericAllocationHandle handle);

  // Mappings.

  /// The handle is about to be mapped. If it is mapped already, it stays home from now on: returns where that is.
  std::vector<Range> share_if_mapped(CUmemGenericAllocationHandle handle);
  /// It is mapped. Others than whole handles that are known stay home.
  void map(Range range, uint64_t offset, CUmemGenericAllocationHandle handle);
  /// `range` is about to be unmapped: what it holds stays home from now on. Returns the pieces whose memory may live on
  /// without them. Nothing: these are no whole mappings, and the driver will refuse.
  std::optional<std::vector<Range>> begin_unmap(Range range);
  /// It is unmapped. Returns the pieces of the slot that are gone.
  std::vector<Range> unmap(Range range);

  /// What home's device may do in `range` is about to change. Where it will no longer read and write, or others than
  /// devices of this process are let in, the pieces stay home from now on; returns those that did not before.
  std::vector<Range> begin_access(Range range, const CUmemAccessDesc* access, size_t count);
  /// It has changed; or, where `done` is false, it has not.
  void end_access(Range range, const CUmemAccessDesc* access, size_t count, bool done);

  /// All pieces that `range` touches stay home until they are unmapped.
  void keep_home(Range range);

  // Questions. A run is a stretch of neighbouring pieces of the slot: what a program takes for one allocation may lie
  // in several, and only holes surely bound it.

  std::optional<Range> find(uint64_t address) const;
  std::optional<Range> find_ending_at(uint64_t address) const;
  std::optional<Range> find_next(uint64_t address) const;
  void intersect(Range range, std::vector<Range>& out) const;
  template <class Visit>
  void for_each_run(Visit&& visit) const {
    for (const auto& [begin, end] : runs_) visit(Range{begin, end});
  }
  /// The mapping of the slot that holds the address.
  std::optional<Range> piece_of(uint64_t address) const;
  /// The handle that is mapped there, in the slot or not; null: none that is known.
  const Handle* handle_at(uint64_t address) const;
  bool stays_home(Range range) const;

  /// Another number after every change of what the questions above are answered with.
  uint64_t changes() const { return changes_; }
  uint64_t mapped_bytes() const { return mapped_; }

 private:
  struct Piece {
    uint64_t end = 0;
    CUmemGenericAllocationHandle handle = 0;  // 0: none that is known
    bool in_slot = false;
    bool fixed = false;       // stays home until it is unmapped
    bool accessible = false;  // home's device may read and write there
    bool was_accessible = false;
    bool stays_home() const { return fixed || !accessible; }
  };
  using Pieces = std::map<uint64_t, Piece>;

  template <class Change>
  void change(Piece& piece, Change&& change);
  void fix(uint64_t begin);
  Pieces::const_iterator holding(uint64_t address) const;
  template <class Visit>
  void for_each_piece(Range range, Visit&& visit);
  std::vector<Range> places_of(const Handle& handle) const;
  void add_to_runs(Range range);
  void remove_from_runs(Range range);
  bool fits(Range range) const;

  Range slot_;
  std::map<uint64_t, uint64_t> reservations_;  // of the slot, begin -> end
  std::map<CUmemGenericAllocationHandle, Handle> handles_;
  Pieces pieces_;                      // by begin; of the slot, and of known handles elsewhere
  std::map<uint64_t, uint64_t> runs_;  // begin -> end
  uint64_t home_pieces_ = 0;           // of the slot, that stay home
  uint64_t mapped_ = 0, changes_ = 0;
};

}  // namespace tessera::shim
