// SPDX-License-Identifier: Apache-2.0
// Allocation of device, host and managed memory, and registration of host memory.
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>

#include "api.h"
#include "arena.h"
#include "device.h"
#include "pool.h"
#include "running.h"
#include "submit.h"
#include "thread_state.h"
#include "vmm.h"

using namespace tessera::sim;

namespace {

constexpr uint64_t kLargeAllocation = 1 << 20;  // from here on aligned like a real one
constexpr uint64_t kPage = 4096;

MemoryPtr in_context(MemoryKind kind, Context& context) {
  auto memory = std::make_shared<Memory>();
  memory->kind = kind;
  memory->context = &context;
  memory->context_generation = context.generation();
  return memory;
}

void map_pages(Memory& memory, size_t size) {
  memory.size = size;
  memory.mapping_size = round_up(size, kPage);
  void* const pages =
      mmap(nullptr, memory.mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(pages != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  memory.begin = memory.mapping_begin = reinterpret_cast<uint64_t>(pages);
}

CUdeviceptr allocate_device(size_t size) {
  Context& context = current_context();
  require(size > 0);
  check_capture_allows_unsafe_call();
  Device& device = context.device();
  const MemoryPtr memory = in_context(MemoryKind::kDevice, context);
  const uint64_t alignment = size >= kLargeAllocation ? kGranularity : kAllocationUnit;
  memory->begin = memory->mapping_begin = device.take(size, alignment);
  memory->size = size;
  memory->mapping_size = round_up(size, kGranularity);
  memory->device = device.index();
  address_map().insert(memory);
  return memory->begin;
}

// The ranges of /proc/self/maps that cover [begin, end) all have `wanted`.
bool pages_allow(uint64_t begin, uint64_t end, bool writable) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  require(maps != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
  uint64_t at = begin;
  char line[512];
  while (at < end && std::fgets(line, sizeof(line), maps) != nullptr) {
    uint64_t from = 0, to = 0;
    char mode[8] = {};
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &from, &to, mode) != 3) continue;
    if (to <= at) continue;
    if (from > at || mode[0] != 'r' || (writable && mode[1] != 'w')) break;
    at = to;
  }
  std::fclose(maps);
  return at >= end;
}

void* allocate_host(size_t size, unsigned flags) {
  Context& context = current_context();
  require((flags & ~static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                          CU_MEMHOSTALLOC_WRITECOMBINED)) == 0);
  if (size == 0) return nullptr;
  check_capture_allows_unsafe_call();
  const MemoryPtr memory = in_context(MemoryKind::kHost, context);
  memory->flags = flags;
  map_pages(*memory, size);
  address_map().insert(memory);
  return reinterpret_cast<void*>(memory->begin);
}

MemoryPtr host_memory_at(const void* pointer) {
  MemoryPtr memory = address_map().find(reinterpret_cast<uint64_t>(pointer));
  require(memory != nullptr && memory->is_host());
  return memory;
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return api([&] {
    const Device& device = current_context().device();
    if (free != nullptr) *free = device.free_bytes();
    if (total != nullptr) *total = device.model().memory_bytes;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return api([&] {
    current_context();
    require(dptr != nullptr);
    *dptr = allocate_device(bytesize);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return api([&] {
    current_context();
    require(dptr != nullptr && pPitch != nullptr && WidthInBytes > 0 && Height > 0);
    require(ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    const size_t pitch = round_up(WidthInBytes, 512);
    *dptr = allocate_device(pitch * Height);
    *pPitch = pitch;
  });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return api([&] {
    if (dptr == 0) return;
    const MemoryPtr memory = address_map().find_start(dptr);
    if (memory == nullptr) {
      if (thread_state().current_or_null() != nullptr) current_context();  // a dead context says so first
      fail(CUDA_ERROR_INVALID_VALUE);
    }
    switch (memory->kind) {
      case MemoryKind::kDevice:
      case MemoryKind::kManaged:
      case MemoryKind::kHost:
        memory->context->check_alive(memory->context_generation);
        memory->context->device().check_fault();
        check_capture_allows_unsafe_call();
        memory->context->synchronize();
        memory->context->device().check_fault();
        release_memory(memory);
        return;
      case MemoryKind::kPool:
        if (memory->graph_owned) return;
        require(!memory->freeing.exchange(true));
        memory->pool->device().check_fault();
        if (memory->pool->device().primary().alive()) memory->pool->device().primary().synchronize();
        release_memory(memory);
        return;
      default:
        fail(CUDA_ERROR_INVALID_VALUE);
    }
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return api([&] {
    current_context();
    const MemoryPtr memory = address_map().find(dptr);
    require(memory != nullptr, CUDA_ERROR_NOT_FOUND);
    if (pbase != nullptr) *pbase = memory->begin;
    if (psize != nullptr) *psize = memory->size;
  });
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return api([&] {
    current_context();
    require(pp != nullptr);
    *pp = allocate_host(bytesize, 0);
  });
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return api([&] {
    current_context();
    require(pp != nullptr);
    *pp = allocate_host(bytesize, Flags);
  });
}

CUresult cuMemFreeHost(void* p) {
  return api([&] {
    if (p == nullptr) return;
    const MemoryPtr memory = address_map().find_start(reinterpret_cast<uint64_t>(p));
    require(memory != nullptr && memory->kind == MemoryKind::kHost);
    memory->context->check_alive(memory->context_generation);
    check_capture_allows_unsafe_call();
    memory->context->synchronize();
    release_memory(memory);
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return api([&] {
    current_context();
    require(pdptr != nullptr && Flags == 0);
    host_memory_at(p);
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return api([&] {
    current_context();
    require(pFlags != nullptr);
    // Under unified addressing all host memory is mapped, and portable unless it says that it is mapped.
    const unsigned flags = host_memory_at(p)->flags;
    const bool told = (flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0;
    *pFlags = (told ? flags : flags & ~static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE)) | CU_MEMHOSTALLOC_DEVICEMAP;
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return api([&] {
    Context& context = current_context();
    require(dptr != nullptr && bytesize > 0);
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    check_capture_allows_unsafe_call();
    const MemoryPtr memory = in_context(MemoryKind::kManaged, context);
    memory->flags = flags;
    memory->device = context.device().index();
    map_pages(*memory, bytesize);
    address_map().insert(memory);
    *dptr = memory->begin;
  });
}

// The registered range is that of the call, byte for byte: neighbours on the same page are other ranges.
CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return api([&] {
    Context& context = current_context();
    require(p != nullptr && bytesize > 0);
    require((Flags & ~static_cast<unsigned>(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                            CU_MEMHOSTREGISTER_READ_ONLY)) == 0);
    check_capture_allows_unsafe_call();
    const auto begin = reinterpret_cast<uint64_t>(p), end = begin + bytesize;
    require(end > begin);
    if (const MemoryPtr known = address_map().find_overlap(begin, end)) {
      fail(known->kind == MemoryKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                  : CUDA_ERROR_INVALID_VALUE);
    }
    require(pages_allow(begin, end, (Flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0));
    const std::lock_guard lock(context.objects_mutex);
    const MemoryPtr memory = in_context(MemoryKind::kRegistered, context);
    memory->begin = begin;
    memory->size = bytesize;
    memory->flags = Flags;
    memory->mapping_begin = begin / kPage * kPage;
    memory->mapping_size = round_up(end, kPage) - memory->mapping_begin;
    address_map().insert(memory, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  });
}

CUresult cuMemHostUnregister(void* p) {
  return api([&] {
    require(p != nullptr);
    const auto address = reinterpret_cast<uint64_t>(p);
    const MemoryPtr memory = address_map().find(address);
    require(memory != nullptr, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    require(memory->kind == MemoryKind::kRegistered && memory->begin == address);
    check_capture_allows_unsafe_call();
    release_memory(memory);
    // Queued work is not waited for: a stream may be held by a word in this very memory.
    require(wait_for_running(), CUDA_ERROR_ILLEGAL_STATE);
  });
}
