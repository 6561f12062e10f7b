// SPDX-License-Identifier: Apache-2.0
// What the driver says of an address. Of memory in the slot it knows the mapped
// chunk; the program asks for the allocation, as if cuMemAlloc had made it.
#include "driver.h"
#include "imported_memory.h"
#include "order.h"

using namespace tessera::shim;

namespace {

constexpr uint64_t kDriverBlock = 2u << 20;  // cuMemAlloc takes memory from the device in blocks of this size

bool is_slot(CUdeviceptr address) { return runtime().active() && world().memory.in_slot(address); }

struct Place {
  tessera::memory::Range allocation;
  DeviceMemory::Owner owner;
  CUdevice device;
};

std::optional<Place> place_of(CUdeviceptr address) {
  const std::lock_guard lock(world().mutex);
  const auto allocation = world().memory.find(address);
  const auto owner = world().memory.owner_of(address);
  if (!allocation || !owner) return std::nullopt;
  return Place{*allocation, *owner, world().memory.device_of(address)};
}

template <class T>
bool put(void* data, T value) {
  *static_cast<T*>(data) = value;
  return true;
}

CUmemoryPool default_pool_of(CUdevice device) {
  CUmemoryPool pool = nullptr;
  driver().cuDeviceGetDefaultMemPool(&pool, device);
  return pool;
}

unsigned char is_rdma_capable(CUdevice device) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device);
  return value != 0 ? 1 : 0;
}

/// What differs between memory of cuMemAlloc and a mapped piece of the slot.
/// False: the driver's answer is right as it stands.
bool correct(void* data, CUpointer_attribute attribute, const Place& place) {
  const auto& [allocation, owner, device] = place;
  const uint64_t block = allocation.begin / kDriverBlock * kDriverBlock;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, owner.ordered ? nullptr : owner.context);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(data, owner.id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(data, allocation.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data, allocation.size());
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned char>(data, owner.ordered ? 0 : 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned char>(data, owner.ordered ? 0 : is_rdma_capable(device));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, owner.ordered ? default_pool_of(device) : nullptr);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return !owner.ordered && put<uint64_t>(data, block);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return !owner.ordered &&
             put<size_t>(data, (allocation.end - block + kDriverBlock - 1) / kDriverBlock * kDriverBlock);
    default:
      return false;
  }
}

bool correct_imported(void* data, CUpointer_attribute attribute, const tessera::memory::Range& range) {
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return put<CUdeviceptr>(data, range.begin);
  return attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE && put<size_t>(data, range.size());
}

/// Memory that the program created itself may have more types of handles than it asked for.
void correct_mapped(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (attribute != CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES || !runtime().active()) return;
  const std::lock_guard lock(world().mutex);
  const MappedMemory::Handle* handle = world().memory.mapped().handle_at(address);
  if (handle == nullptr) return;
  auto& types = *static_cast<unsigned long long*>(data);
  types &= ~static_cast<unsigned long long>(handle->given_types & ~handle->asked_types);
}

}  // namespace

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  const CUresult result = driver().cuMemGetAddressRange_v2(&begin, &bytes, address);
  if (result != CUDA_SUCCESS) return after_call(result);
  tessera::memory::Range range = imported_range(address).value_or(tessera::memory::Range{begin, begin + bytes});
  if (is_slot(address)) {
    const auto place = place_of(address);
    if (!place) return after_call(CUDA_ERROR_NOT_FOUND);
    range = place->allocation;
  }
  if (base != nullptr) *base = range.begin;
  if (size != nullptr) *size = range.size();
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                                            CUdeviceptr address) {
  const auto place = is_slot(address) ? place_of(address) : std::nullopt;
  const bool nothing_there = is_slot(address) && !place;
  const CUresult result = driver().cuPointerGetAttribute(data, attribute, nothing_there ? kNowhere : address);
  if (result == CUDA_SUCCESS && place) correct(data, attribute, *place);
  if (result == CUDA_SUCCESS && !place) {
    correct_mapped(data, attribute, address);
    if (const auto range = imported_range(address)) correct_imported(data, attribute, *range);
  }
  return after_call(result);
}

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                                             void** data, CUdeviceptr address) {
  const auto place = is_slot(address) ? place_of(address) : std::nullopt;
  const bool nothing_there = is_slot(address) && !place;
  const CUresult result = driver().cuPointerGetAttributes(count, attributes, data, nothing_there ? kNowhere : address);
  if (result != CUDA_SUCCESS) return after_call(result);
  const auto range = place ? std::nullopt : imported_range(address);
  for (unsigned int i = 0; i < count; ++i) {
    if (place) correct(data[i], attributes[i], *place);
    if (!place) correct_mapped(data[i], attributes[i], address);
    if (range) correct_imported(data[i], attributes[i], *range);
  }
  return after_call(result);
}
