// SPDX-License-Identifier: Apache-2.0
#include "vmm.h"

#include <sys/mman.h>

#include <iterator>
#include <map>

#include "device.h"
#include "pool.h"
#include "running.h"

namespace tessera::sim {
namespace {

struct Reservations {
  std::mutex mutex;                     // held across a whole VMM call: they exclude each other
  std::map<uint64_t, uint64_t> ranges;  // begin -> size
};

Reservations& reservations() {
  static auto* const one = new Reservations;
  return *one;
}

void* map_nothing(uint64_t address, uint64_t size, int flags) {
  return mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
              -1, 0);
}

uint64_t reserve_at(uint64_t wanted, uint64_t size) {
  void* const got = map_nothing(wanted, size, MAP_FIXED_NOREPLACE);
  if (got == MAP_FAILED) return 0;
  if (reinterpret_cast<uint64_t>(got) == wanted) return wanted;
  munmap(got, size);
  return 0;
}

uint64_t reserve_anywhere(uint64_t size, uint64_t alignment) {
  const uint64_t room = size + alignment;
  require(room > size, CUDA_ERROR_OUT_OF_MEMORY);
  void* const got = map_nothing(0, room, 0);
  require(got != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto begin = reinterpret_cast<uint64_t>(got);
  const uint64_t at = (begin + alignment - 1) / alignment * alignment;
  if (at > begin) munmap(got, at - begin);
  const uint64_t tail = begin + room - (at + size);
  if (tail > 0) munmap(reinterpret_cast<void*>(at + size), tail);
  return at;
}

bool is_reserved(const Reservations& all, uint64_t address, uint64_t size) {
  auto after = all.ranges.upper_bound(address);
  if (after == all.ranges.begin()) return false;
  const auto range = std::prev(after);
  return address + size >= address && address + size <= range->first + range->second;
}

// The mappings inside [address, address + size); fails where one lies only partly inside.
std::vector<MemoryPtr> whole_mappings(uint64_t address, uint64_t size) {
  const uint64_t end = address + size;
  auto inside = address_map().overlapping(address, end);
  for (const MemoryPtr& memory : inside) require(memory->begin >= address && memory->end() <= end);
  return inside;
}

int protection(const Memory& memory) {
  int bits = PROT_NONE;
  for (const auto& access : memory.access) {
    if (access.load() != Access::kNone) bits |= PROT_READ;
    if (access.load() == Access::kReadWrite) bits |= PROT_WRITE;
  }
  return bits;
}

// Out of the map first, so that no operation starts on it; then those that run end; then the pages go.
void unmap_all(const std::vector<MemoryPtr>& mappings) {
  for (const MemoryPtr& memory : mappings) address_map().erase(memory);
  if (!wait_for_running()) {
    for (const MemoryPtr& memory : mappings) address_map().insert(memory);
    fail(CUDA_ERROR_ILLEGAL_STATE);
  }
  for (const MemoryPtr& memory : mappings) map_nothing(memory->begin, memory->size, MAP_FIXED);
}

// Pages that a running operation may still touch are lost rather than pulled away.
void unmap_pages(const Memory& memory) {
  if (wait_for_running()) munmap(reinterpret_cast<void*>(memory.mapping_begin), memory.mapping_size);
}

void set_access_of(Memory& memory, const CUmemAccessDesc& descriptor) {
  const auto access = static_cast<Access>(descriptor.flags);
  if (descriptor.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    memory.access[static_cast<size_t>(descriptor.location.id)].store(access, std::memory_order_release);
  }
}

void check_descriptor(const CUmemAccessDesc& descriptor) {
  require(descriptor.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || descriptor.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
          descriptor.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (descriptor.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    require(descriptor.location.id >= 0 && descriptor.location.id < static_cast<int>(devices().size()));
  } else {
    require(descriptor.location.type == CU_MEM_LOCATION_TYPE_HOST ||
            descriptor.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
  }
}

}  // namespace

uint64_t vmm_reserve(uint64_t size, uint64_t alignment, uint64_t wanted) {
  require(size > 0 && size % kGranularity == 0);
  require((alignment & (alignment - 1)) == 0 || alignment == 0);
  require(wanted % kGranularity == 0);
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  uint64_t at = wanted != 0 && (alignment == 0 || wanted % alignment == 0) ? reserve_at(wanted, size) : 0;
  if (at == 0) at = reserve_anywhere(size, alignment > kGranularity ? alignment : kGranularity);
  all.ranges.emplace(at, size);
  return at;
}

void vmm_free_reservation(uint64_t address, uint64_t size) {
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.ranges.find(address);
  require(found != all.ranges.end() && found->second == size);
  require(address_map().find_overlap(address, address + size) == nullptr);
  all.ranges.erase(found);
  munmap(reinterpret_cast<void*>(address), size);
}

void vmm_map(uint64_t address, uint64_t size, PhysicalMemory& physical) {
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  require(size > 0 && address % kGranularity == 0 && is_reserved(all, address, size));
  require(size == physical.size(), CUDA_ERROR_NOT_SUPPORTED);  // as the real driver: whole handles only
  auto memory = std::make_shared<Memory>();
  memory->kind = MemoryKind::kMapped;
  memory->begin = memory->mapping_begin = address;
  memory->size = memory->mapping_size = size;
  memory->device = physical.device();
  memory->physical = Ref<PhysicalMemory>::share(&physical);
  address_map().insert(memory);
  void* const got = mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical.file(), 0);
  if (got == MAP_FAILED) {
    address_map().erase(memory);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
}

void vmm_unmap(uint64_t address, uint64_t size) {
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  require(size > 0 && address % kGranularity == 0 && size % kGranularity == 0 && is_reserved(all, address, size));
  const auto mappings = whole_mappings(address, size);
  if (mappings.empty()) return;
  unmap_all(mappings);
}

void vmm_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc* descriptors, size_t count) {
  require(size > 0 && count > 0 && descriptors != nullptr);
  for (size_t i = 0; i < count; ++i) check_descriptor(descriptors[i]);
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  require(address_map().cover(address, size, [](const Memory& memory) { return memory.kind == MemoryKind::kMapped; }));
  for (const MemoryPtr& memory : whole_mappings(address, size)) {
    for (size_t i = 0; i < count; ++i) set_access_of(*memory, descriptors[i]);
    require(mprotect(reinterpret_cast<void*>(memory->begin), memory->size, protection(*memory)) == 0,
            CUDA_ERROR_OUT_OF_MEMORY);
  }
}

std::pair<uint64_t, uint64_t> vmm_reservation_of(uint64_t address) {
  Reservations& all = reservations();
  const std::lock_guard lock(all.mutex);
  auto after = all.ranges.upper_bound(address);
  if (after == all.ranges.begin()) return {0, 0};
  const auto range = std::prev(after);
  if (address >= range->first + range->second) return {0, 0};
  return {range->first, range->second};
}

void release_memory(const MemoryPtr& memory) {
  if (memory->kind == MemoryKind::kMapped) {
    unmap_all({memory});
    return;
  }
  if (!address_map().erase(memory)) return;
  switch (memory->kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kGlobal:
      devices()[static_cast<size_t>(memory->device)]->give_back(memory->begin, memory->size);
      break;
    case MemoryKind::kPool:
      devices()[static_cast<size_t>(memory->device)]->give_back(memory->begin, memory->size);
      memory->pool->released(memory->size);
      break;
    case MemoryKind::kHost:
    case MemoryKind::kManaged:
    case MemoryKind::kImported:
      unmap_pages(*memory);
      break;
    case MemoryKind::kMapped:
    case MemoryKind::kRegistered:
      break;
  }
}

}  // namespace tessera::sim
