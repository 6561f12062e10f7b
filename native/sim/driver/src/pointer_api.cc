// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "api.h"
#include "device.h"
#include "pool.h"
#include "thread_state.h"
#include "vmm.h"

using namespace tessera::sim;

namespace {

template <class T>
void put(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
}

int ordinal_of(const Memory& memory) {
  if (memory.device >= 0) return memory.device;
  return memory.context != nullptr ? memory.context->device().index() : CU_DEVICE_CPU;
}

void* context_of(const Memory& memory) {
  return memory.context != nullptr ? to_handle<CUcontext>(memory.context) : nullptr;
}

unsigned long long handle_types_of(const Memory& memory) {
  if (memory.physical) return memory.physical->properties().requestedHandleTypes;
  if (memory.pool) return memory.pool->handle_types();
  return 0;
}

CUmemoryPool pool_of(const Memory& memory) {
  return memory.pool ? to_handle<CUmemoryPool>(memory.pool.get()) : nullptr;
}

std::pair<uint64_t, uint64_t> range_of(const Memory& memory) {
  if (memory.kind == MemoryKind::kMapped) return vmm_reservation_of(memory.begin);
  return {memory.begin, memory.size};
}

unsigned access_of(const Memory& memory) {
  const Context* context = thread_state().current_or_null();
  const int device = context != nullptr ? context->device().index() : ordinal_of(memory);
  if (device < 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return static_cast<unsigned>(memory.access_by(device, context != nullptr ? context->peers.load() : 0));
}

// One byte or word of the size that the attribute's documentation names.
void read_attribute(const Memory& memory, CUpointer_attribute attribute, CUdeviceptr pointer, void* data) {
  const bool host_visible = memory.is_host() || memory.kind == MemoryKind::kManaged;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, context_of(memory));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, static_cast<unsigned>(memory.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      require(host_visible);
      return put(data, pointer);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return put(data, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS{});
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(data, static_cast<unsigned>(memory.kind == MemoryKind::kManaged || memory.synchronous_operations));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(memory.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, static_cast<unsigned>(memory.kind == MemoryKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, ordinal_of(memory));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, static_cast<unsigned>(memory.kind == MemoryKind::kDevice));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, range_of(memory).first);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, range_of(memory).second);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, handle_types_of(memory));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, access_of(memory));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, pool_of(memory));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, memory.mapping_size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, memory.mapping_begin);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, static_cast<unsigned long long>(memory.id));
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(data, 0u);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// What cuPointerGetAttributes leaves for memory that the driver does not know.
void read_unknown(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, static_cast<int>(CU_DEVICE_INVALID));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return put(data, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS{});
    default:
      require(attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE);
      return put(data, uint64_t{0});
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return api([&] {
    require(data != nullptr);
    const MemoryPtr memory = address_map().find(ptr);
    require(memory != nullptr);
    read_attribute(*memory, attribute, ptr, data);
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  return api([&] {
    require(numAttributes > 0 && attributes != nullptr && data != nullptr);
    const MemoryPtr memory = address_map().find(ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
      require(data[i] != nullptr);
      if (memory == nullptr || (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER && !memory->is_host() &&
                                memory->kind != MemoryKind::kManaged)) {
        read_unknown(attributes[i], data[i]);
      } else {
        read_attribute(*memory, attributes[i], ptr, data[i]);
      }
    }
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return api([&] {
    require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    const MemoryPtr memory = address_map().find(ptr);
    require(memory != nullptr);
    memory->synchronous_operations.store(*static_cast<const unsigned*>(value) != 0);
  });
}
