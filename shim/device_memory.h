// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "mapped_memory.h"
#include "tessera/memory/arena.h"

namespace tessera::shim {

/// The program's device memory, served from its slot of addresses: exportable
/// physical chunks, mapped where workers can map theirs. Each home device has
/// its own part of the slot. Guarded by the world's lock.
class DeviceMemory {
 public:
  static constexpr uint32_t kParts = 16;  // home devices at most
  using ReleaseHook = std::function<void(Range chunk)>;

  /// `on_release` is told of a chunk before it is unmapped.
  void start(uint64_t base, uint64_t size, uint64_t chunk_bytes, ReleaseHook on_release);
  bool started() const { return size_ != 0; }

  /// Memory on the current context's device. CUDA_ERROR_NOT_SUPPORTED: this
  /// device or context cannot be served from the slot, ask the driver instead.
  CUresult allocate(uint64_t bytes, CUdeviceptr* address);
  /// As allocate, but the block's former users in `stream` come before its new
  /// ones, which run in the same stream (StreamState::id).
  CUresult allocate_ordered(uint64_t bytes, uint64_t stream, CUdeviceptr* address);

  /// Frees at once: nothing uses the memory any more. Returns what was freed.
  std::optional<Range> free(CUdeviceptr address);
  /// Frees once `stream` has come this far; `stream` itself may reuse the block
  /// at once. Takes the event over. None when `address` is no allocation.
  std::optional<Range> free_ordered(CUdeviceptr address, uint64_t stream, CUevent freed);
  bool has_deferred() const { return !deferred_.empty(); }
  /// Frees at the next `free_deferred`: now the device could not be waited for.
  std::optional<Range> defer_free(CUdeviceptr address);
  /// After a synchronization of everything.
  void free_deferred();
  /// Ends the wait of every ordered free, after a synchronization of everything.
  void settle();

  /// Whether the address is one of those that are served from here. What is left of the slot the driver may use for its
  /// own: on a real one the globals of modules lie right behind the last reservation.
  bool in_slot(uint64_t address) const { return address - base_ < parts_bytes_.load(std::memory_order_acquire); }

  /// What the program maps itself: the questions below are answered of it, too, with a run for an allocation.
  MappedMemory& mapped() { return mapped_; }
  const MappedMemory& mapped() const { return mapped_; }
  /// Where a reservation of the program's may be tried; see MappedMemory::propose.
  uint64_t propose_addresses(uint64_t bytes, uint64_t alignment, uint64_t refused) const {
    return mapped_.propose(bytes, alignment, base_ + parts_bytes_.load(std::memory_order_relaxed), refused);
  }
  /// After cuMemUnmap, and before it is forgotten what lay there: `on_release` is told of each piece.
  void unmapped(Range range);

  std::optional<Range> find(uint64_t address) const;
  std::optional<Range> find_ending_at(uint64_t address) const;
  std::optional<Range> find_next(uint64_t address) const;
  void intersect(Range range, std::vector<Range>& out) const;
  std::optional<Range> chunk_of(uint64_t address) const;
  /// The context that allocated, and a number that no other allocation ever has.
  struct Owner {
    CUcontext context = nullptr;
    uint64_t id = 0;
    bool ordered = false;  // it came from the device's memory pool, as the program sees it
  };
  std::optional<Owner> owner_of(uint64_t address) const;
  /// The device whose memory lies there; -1: not in the slot.
  CUdevice device_of(uint64_t address) const;
  /// Addresses allocated in `context`; all of them when it is null.
  std::vector<CUdeviceptr> owned_by(CUcontext context) const;

  /// What the default memory pool of a device would say of the memory that the slot serves in its place.
  struct PoolUse {
    uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;  // bytes
    void take(uint64_t bytes);
    void settle(uint64_t threshold);
  };
  /// `threshold`: the bytes that the pool keeps reserved. Null when nothing of the device was ever served.
  PoolUse* pool_use(CUdevice device, uint64_t threshold);
  /// Gives chunks that nothing uses back to the driver.
  void trim(CUdevice device);
  /// Bytes of the device that are mapped, and free memory as the program sees it.
  uint64_t unused_bytes(CUdevice device);
  /// Whether [address, address + bytes) begins in the slot and is not within one allocation.
  bool overruns(uint64_t address, uint64_t bytes) const;

  /// Lets `accessor` reach the memory of `owner`, now and later, as cuMemAlloc's memory can be reached by peers.
  CUresult grant(CUdevice owner, CUdevice accessor);

  /// Others may reach the chunk that holds `address`: it is to stay home, until it is unmapped. Of what the program
  /// mapped itself, that is the granule.
  void expose(uint64_t address);
  /// Others may reach all of `range`, which begins in a chunk or in what the program mapped.
  void expose(Range range);
  /// Whether `expose` has something to do there. Any thread.
  bool may_move(uint64_t address) const { return address - base_ < size_; }
  bool is_exposed(Range range) const;

  /// Another number after every change of what is allocated where, and of what is exposed.
  uint64_t generation() const;

  /// A file descriptor for the physical memory of a chunk, or the driver's error.
  CUresult export_chunk(uint64_t begin, int* fd) const;

  uint64_t mapped_bytes() const;
  uint64_t used_bytes() const;

 private:
  struct Pending {
    Range range;
    uint64_t stream;
    CUevent freed;
    bool ordered;
  };
  struct Part {
    CUdevice device = -1;
    bool unsupported = false;
    bool rdma = false;
    uint64_t begin = 0, end = 0, next = 0;
    memory::Arena arena;
    std::vector<Pending> pending;  // oldest first
    std::set<CUdevice> peers;      // that may reach it too
    std::vector<Range> holes;      // addresses of unmapped chunks, for reuse
    PoolUse pool;
  };

  Part* current_part();
  CUresult reserve(Part& part);
  CUresult grow(Part& part, uint64_t bytes);
  CUresult map_chunk(Part& part, Range chunk);
  static CUresult set_access(const Part& part, Range chunk);
  uint64_t take_addresses(Part& part, uint64_t bytes);
  void release_free_chunks(Part& part, bool all);
  void harvest(Part& part);
  std::optional<uint64_t> reuse_ordered(Part& part, uint64_t bytes, uint64_t stream);
  CUresult place(uint64_t bytes, uint64_t* address);
  CUresult finish(uint64_t address, bool ordered, CUdeviceptr* out);
  CUresult export_mapped(uint64_t begin, int* fd) const;
  Part* part_of(uint64_t address);
  const Part* part_of(uint64_t address) const;

  uint64_t base_ = 0, size_ = 0, chunk_bytes_ = 0;
  std::atomic<uint64_t> parts_bytes_{0};  // addresses given to devices so far, from the slot's first on
  ReleaseHook on_release_;
  std::map<uint32_t, Part> parts_;                            // by device ordinal
  std::map<uint64_t, CUmemGenericAllocationHandle> handles_;  // by chunk begin
  std::map<uint64_t, Owner> owners_;                          // by allocation begin
  MappedMemory mapped_;
  std::vector<CUdeviceptr> deferred_;
  std::vector<Range> exposed_;            // chunks, and granules
  uint64_t exposures_ = 0;                // changes of them
  uint64_t next_id_ = uint64_t{1} << 48;  // the driver numbers its own allocations from 1
};

}  // namespace tessera::shim
