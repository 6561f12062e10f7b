// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory management. The calls go to the driver as they are, but for two things: addresses
// for which nothing was wished come from the slot, where workers can map theirs, and memory is made so that it can be
// exported to workers. Whatever lets others at the memory behind the directory keeps it home (MappedMemory).
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "driver.h"
#include "imported_memory.h"
#include "order.h"
#include "session.h"
#include "tessera/protocol/channel.h"

using namespace tessera::shim;

namespace {

constexpr unsigned kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::atomic<int64_t> last_release{
    0};  // when workers were last told to let memory of the program go, on the steady clock

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

bool follows() { return runtime().active() && world().memory.started(); }

Range range_of(CUdeviceptr address, size_t size) { return {address, address + size}; }
bool is_range(CUdeviceptr address, size_t size) { return size != 0 && address + size > address; }

void report_memory() { report_arena(world().memory.mapped_bytes(), world().memory.used_bytes()); }

bool is_of_device(const CUmemAllocationProp& properties) {
  return properties.type == CU_MEM_ALLOCATION_TYPE_PINNED && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         properties.allocFlags.usage == 0;
}

/// Whether the memory may be asked for as exportable although the program did not.
bool can_be_widened(const CUmemAllocationProp& properties) {
  int able = 0;
  return is_of_device(properties) && properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         properties.allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE &&
         driver().cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                       properties.location.id) == CUDA_SUCCESS &&
         able != 0;
}

/// Memory that the program has just given back may still be mapped by workers, for as long as a message takes.
template <class Create>
CUresult with_patience(Create&& create) {
  constexpr auto kPatience = std::chrono::seconds(1);
  CUresult result = create();
  while (result == CUDA_ERROR_OUT_OF_MEMORY &&
         now() - last_release.load() < std::chrono::steady_clock::duration(kPatience).count()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = create();
  }
  return result;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp& asked,
                unsigned long long flags) {
  CUmemAllocationProp given = asked;
  const auto attempt = [&] { return with_patience([&] { return driver().cuMemCreate(handle, size, &given, flags); }); };
  if (can_be_widened(asked)) given.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(kFile);
  CUresult result = attempt();
  if (result != CUDA_SUCCESS && given.requestedHandleTypes != asked.requestedHandleTypes) {
    given = asked;
    result = attempt();
  }
  if (result != CUDA_SUCCESS || !is_of_device(asked)) return result;
  MappedMemory::Handle made;
  made.device = asked.location.id;
  made.asked_types = static_cast<unsigned>(asked.requestedHandleTypes);
  made.given_types = static_cast<unsigned>(given.requestedHandleTypes);
  const std::lock_guard lock(world().mutex);
  world().memory.mapped().created(*handle, made);
  return result;
}

/// Addresses of the slot. False: the driver is to choose.
bool reserve_in_slot(CUdeviceptr* address, size_t size, size_t alignment) {
  constexpr int kAttempts = 4;  // the driver has things of its own there
  if (size == 0 || size % TS_GRANULE != 0 || (alignment & (alignment - 1)) != 0) return false;
  uint64_t wanted = 0;
  for (int i = 0; i < kAttempts; ++i) {
    {
      const std::lock_guard lock(world().mutex);
      wanted = world().memory.propose_addresses(size, alignment, wanted);
    }
    if (wanted == 0 || driver().cuMemAddressReserve(address, size, alignment, wanted, 0) != CUDA_SUCCESS) return false;
    if (*address == wanted) return true;
    driver().cuMemAddressFree(*address, size);
  }
  return false;
}

/// Makes a call that may let others at the handle's memory.
template <class Call>
CUresult share(CUmemGenericAllocationHandle handle, Call&& call) {
  std::vector<Range> places;
  {
    // First: whatever becomes of the call, a launch after it finds the memory staying home.
    const std::lock_guard lock(world().mutex);
    places = world().memory.mapped().share(handle);
  }
  const CUresult home = bring_to_rest(places);
  return after_call(home == CUDA_SUCCESS ? call() : home);
}

/// Whether only the shim wanted the memory to have a handle of this type.
bool was_not_asked_for(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type) {
  const std::lock_guard lock(world().mutex);
  const MappedMemory::Handle* known = world().memory.mapped().handle(handle);
  return known != nullptr && (known->given_types & ~known->asked_types & static_cast<unsigned>(type)) != 0;
}

CUresult unmap(CUdeviceptr address, size_t size) {
  const Range range = range_of(address, size);
  std::vector<Range> kept;
  {
    const std::lock_guard lock(world().mutex);
    const auto survivors = world().memory.mapped().begin_unmap(range);
    if (survivors) kept = *survivors;
  }
  if (const CUresult home = bring_to_rest(kept); home != CUDA_SUCCESS) return home;
  const CUresult result = driver().cuMemUnmap(address, size);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(world().mutex);
  last_release.store(now());
  world().memory.unmapped(range);
  world().rest();
  report_memory();
  return CUDA_SUCCESS;
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment,
                                                          CUdeviceptr wish, unsigned long long flags) {
  if (!follows() || address == nullptr || flags != 0) {
    return after_call(driver().cuMemAddressReserve(address, size, alignment, wish, flags));
  }
  CUresult result = CUDA_SUCCESS;
  if (wish != 0 || !reserve_in_slot(address, size, alignment)) {
    result = driver().cuMemAddressReserve(address, size, alignment, wish, flags);
  }
  if (result != CUDA_SUCCESS) return after_call(result);
  const std::lock_guard lock(world().mutex);
  world().memory.mapped().reserve(range_of(*address, size));
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t size) {
  if (!follows()) return after_call(driver().cuMemAddressFree(address, size));
  std::optional<Range> known;
  {
    // First: as soon as it is free another thread may be given it.
    const std::lock_guard lock(world().mutex);
    known = world().memory.mapped().forget_reservation(address, size);
  }
  const CUresult result = driver().cuMemAddressFree(address, size);
  if (result == CUDA_SUCCESS || !known) return after_call(result);
  const std::lock_guard lock(world().mutex);
  world().memory.mapped().reserve(*known);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                                  const CUmemAllocationProp* properties, unsigned long long flags) {
  if (!follows() || handle == nullptr || properties == nullptr) {
    return after_call(driver().cuMemCreate(handle, size, properties, flags));
  }
  return after_call(create(handle, size, *properties, flags));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (follows()) {
    const std::lock_guard lock(world().mutex);
    world().memory.mapped().released(handle);  // first: the handle's number may come again at once
  }
  return after_call(driver().cuMemRelease(handle));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (!follows()) return after_call(driver().cuMemRetainAllocationHandle(handle, address));
  // Memory of cuMemAlloc has no such handle, and the driver says so of any address that it did not map.
  if (world().memory.in_slot(reinterpret_cast<CUdeviceptr>(address))) {
    address = reinterpret_cast<void*>(kNowhere);  // NOLINT(performance-no-int-to-ptr)
  }
  const CUresult result = driver().cuMemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS) {
    const std::lock_guard lock(world().mutex);
    world().memory.mapped().retained(*handle);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                                               CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (!follows() || !is_range(address, size)) {
    return after_call(driver().cuMemMap(address, size, offset, handle, flags));
  }
  std::vector<Range> aliases;
  {
    const std::lock_guard lock(world().mutex);
    aliases = world().memory.mapped().share_if_mapped(handle);
  }
  if (const CUresult home = bring_to_rest(aliases); home != CUDA_SUCCESS) return after_call(home);
  const CUresult result = driver().cuMemMap(address, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return after_call(result);
  const std::lock_guard lock(world().mutex);
  world().memory.unmapped(range_of(address, size));  // where something went unseen
  world().memory.mapped().map(range_of(address, size), offset, handle);
  report_memory();
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size) {
  if (!follows() || !is_range(address, size)) return after_call(driver().cuMemUnmap(address, size));
  return after_call(unmap(address, size));
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access,
                                                     size_t count) {
  if (!follows() || !is_range(address, size) || access == nullptr) {
    return after_call(driver().cuMemSetAccess(address, size, access, count));
  }
  const Range range = range_of(address, size);
  MappedMemory& mapped = world().memory.mapped();
  std::vector<Range> homeward;
  {
    const std::lock_guard lock(world().mutex);
    homeward = mapped.begin_access(range, access, count);
  }
  CUresult result = bring_to_rest(homeward);
  if (result == CUDA_SUCCESS) result = driver().cuMemSetAccess(address, size, access, count);
  const std::lock_guard lock(world().mutex);
  mapped.end_access(range, access, count, result == CUDA_SUCCESS);
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                                             CUmemGenericAllocationHandle handle) {
  const CUresult result = driver().cuMemGetAllocationPropertiesFromHandle(properties, handle);
  if (result == CUDA_SUCCESS && follows()) {
    const std::lock_guard lock(world().mutex);
    if (const MappedMemory::Handle* known = world().memory.mapped().handle(handle)) {
      properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(known->asked_types);
    }
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                                                   CUmemAllocationHandleType type,
                                                                   unsigned long long flags) {
  if (!follows()) return after_call(driver().cuMemExportToShareableHandle(shareable, handle, type, flags));
  if (was_not_asked_for(handle, type)) return after_call(CUDA_ERROR_INVALID_VALUE);
  return share(handle, [&] { return driver().cuMemExportToShareableHandle(shareable, handle, type, flags); });
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                                     void* shareable, CUmemAllocationHandleType type) {
  const CUresult result = driver().cuMemImportFromShareableHandle(handle, shareable, type);
  if (result == CUDA_SUCCESS && follows()) {
    const std::lock_guard lock(world().mutex);
    world().memory.mapped().retained(*handle);  // known only where this process exported it itself
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle multicast,
                                                         size_t multicast_offset, CUmemGenericAllocationHandle memory,
                                                         size_t memory_offset, size_t size, unsigned long long flags) {
  const auto call = [&] {
    return driver().cuMulticastBindMem(multicast, multicast_offset, memory, memory_offset, size, flags);
  };
  return follows() ? share(memory, call) : after_call(call());
}
