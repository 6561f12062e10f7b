// SPDX-License-Identifier: Apache-2.0
// The unified address space of the process: every range that some driver call
// made known, by address. Kernels, copies and pointer queries all ask here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "object.h"

namespace tessera::sim {

class Context;
class Pool;
class PhysicalMemory;

constexpr int kMaxDevices = 16;

enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc
  kPool,        // cuMemAllocAsync and kin
  kMapped,      // one cuMemMap
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kManaged,     // cuMemAllocManaged
  kGlobal,      // a module variable
  kImported,    // cuIpcOpenMemHandle
};

enum class Access : uint8_t { kNone = 0, kRead = 1, kReadWrite = 3 };

struct Memory {
  Memory();
  ~Memory();
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t begin = 0, size = 0;  // as asked for
  int device = -1;               // visible index; -1: host
  uint64_t id = 0;               // CU_POINTER_ATTRIBUTE_BUFFER_ID
  unsigned flags = 0;            // of the host or managed call
  Context* context = nullptr;    // null for memory that belongs to no context
  uint64_t context_generation = 0;
  std::array<std::atomic<Access>, kMaxDevices> access = {};  // kPool, kMapped
  uint64_t mapping_begin = 0, mapping_size = 0;
  Ref<Pool> pool;
  Ref<PhysicalMemory> physical;
  uint64_t physical_offset = 0;
  std::atomic<bool> synchronous_operations{false};  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  std::atomic<bool> graph_owned{false};             // of a graph's allocation node: frees leave it to the graph
  std::atomic<bool> freeing{false};                 // a cuMemFreeAsync is under way

  uint64_t end() const { return begin + size; }
  bool is_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
  /// The bytes that a kernel may touch: allocations are rounded up as on hardware.
  uint64_t device_end() const;
  /// What `device` may do here, where `peers` is the mask of devices whose memory the context has enabled.
  Access access_by(int accessing_device, uint32_t peers) const;
};

using MemoryPtr = std::shared_ptr<Memory>;

class AddressMap {
 public:
  /// Assigns the buffer id and makes the range known. Fails with `overlap` when it meets a known one.
  void insert(const MemoryPtr& memory, CUresult overlap = CUDA_ERROR_INVALID_VALUE);
  /// False when it is not there any more.
  bool erase(const MemoryPtr& memory);

  /// The range that holds `address`, or null. A zero-sized range holds its first address.
  MemoryPtr find(uint64_t address) const;
  /// Calls `visit` under the lock with the range whose device extent holds `address`, if there is one.
  template <class Visit>
  void locate(uint64_t address, Visit&& visit) const {
    const std::shared_lock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return;
    const Memory& candidate = *std::prev(after)->second;
    if (address < candidate.device_end()) visit(candidate);
  }
  /// The range that begins at `address`, or null.
  MemoryPtr find_start(uint64_t address) const;
  /// Any range that meets [begin, end).
  MemoryPtr find_overlap(uint64_t begin, uint64_t end) const;
  std::vector<MemoryPtr> overlapping(uint64_t begin, uint64_t end) const;
  /// Calls `visit` for the ranges that cover [begin, begin + size) without a hole; false where there is a hole.
  bool cover(uint64_t begin, uint64_t size, const std::function<bool(const Memory&)>& visit) const;
  std::vector<MemoryPtr> select(const std::function<bool(const Memory&)>& wanted) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, MemoryPtr> ranges_;
  std::atomic<uint64_t> next_id_{1};
};

/// The one address space of the process.
AddressMap& address_map();

}  // namespace tessera::sim
