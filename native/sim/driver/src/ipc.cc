// SPDX-License-Identifier: Apache-2.0
// Legacy IPC of cuMemAlloc memory. The handle says which process holds which
// file; the importer opens it through /proc and maps the same bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "api.h"
#include "arena.h"
#include "device.h"
#include "thread_state.h"
#include "vmm.h"

using namespace tessera::sim;

namespace {

constexpr uint32_t kMagic = 0x7e551bc0;

struct SharedAllocation {
  uint32_t magic;
  int32_t process;
  int32_t file;
  uint32_t reserved;
  uint64_t offset, size;
  uint8_t device[16];
};
static_assert(sizeof(SharedAllocation) <= sizeof(CUipcMemHandle));

Device& device_with(const uint8_t (&uuid)[16]) {
  for (Device* device : devices()) {
    if (std::memcmp(device->machine().uuid, uuid, sizeof(uuid)) == 0) return *device;
  }
  fail(CUDA_ERROR_INVALID_DEVICE);
}

uint64_t map_shared(const SharedAllocation& shared, uint64_t size) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared.process, shared.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  require(file >= 0);
  void* const pages =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(shared.offset / 4096 * 4096));
  close(file);
  require(pages != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
  return reinterpret_cast<uint64_t>(pages);
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return api([&] {
    current_context();
    require(pHandle != nullptr);
    const MemoryPtr memory = address_map().find(dptr);
    require(memory != nullptr && memory->kind == MemoryKind::kDevice);
    Device& device = device_of(memory->device);
    SharedAllocation shared = {};
    shared.magic = kMagic;
    shared.process = getpid();
    shared.file = device.arena().file();
    shared.offset = memory->begin - device.arena().base();
    shared.size = memory->size;
    std::memcpy(shared.device, device.machine().uuid, sizeof(shared.device));
    *pHandle = {};
    std::memcpy(pHandle->reserved, &shared, sizeof(shared));
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return api([&] {
    Context& context = current_context();
    require(pdptr != nullptr && Flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    SharedAllocation shared = {};
    std::memcpy(&shared, handle.reserved, sizeof(shared));
    require(shared.magic == kMagic);
    require(shared.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    const Device& device = device_with(shared.device);
    auto memory = std::make_shared<Memory>();
    const uint64_t lead = shared.offset % 4096;
    memory->kind = MemoryKind::kImported;
    memory->mapping_size = round_up(lead + shared.size, 4096);
    memory->mapping_begin = map_shared(shared, memory->mapping_size);
    memory->begin = memory->mapping_begin + lead;
    memory->size = shared.size;
    memory->device = device.index();
    memory->context = &context;
    memory->context_generation = context.generation();
    if (&device != &context.device()) context.peers.fetch_or(1u << static_cast<unsigned>(device.index()));
    address_map().insert(memory);
    *pdptr = memory->begin;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return api([&] {
    current_context();
    const MemoryPtr memory = address_map().find_start(dptr);
    require(memory != nullptr && memory->kind == MemoryKind::kImported);
    release_memory(memory);
  });
}
