// SPDX-License-Identifier: Apache-2.0
#include "api.h"
#include "device.h"
#include "vmm.h"

using namespace tessera::sim;

namespace {

CUmemGenericAllocationHandle handle_of(PhysicalMemory* physical) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(to_handle<void*>(physical));
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return api([&] {
    require(ptr != nullptr && flags == 0);
    *ptr = vmm_reserve(size, alignment, addr);
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return api([&] { vmm_free_reservation(ptr, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  return api([&] {
    require(handle != nullptr && prop != nullptr && flags == 0);
    *handle = handle_of(PhysicalMemory::create(size, *prop).detach());
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return api([&] { physical_of(handle).drop_handle(); });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return api([&] {
    require(flags == 0);
    PhysicalMemory& physical = physical_of(handle);
    require(offset == 0, CUDA_ERROR_NOT_SUPPORTED);
    vmm_map(ptr, size, physical);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return api([&] { vmm_unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return api([&] { vmm_set_access(ptr, size, desc, count); });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return api([&] {
    require(flags != nullptr && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    const Device& device = device_of(location->id);
    const MemoryPtr memory = address_map().find(ptr);
    require(memory != nullptr);
    *flags = static_cast<unsigned long long>(memory->access_by(device.index(), 0));
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  return api([&] {
    require(shareableHandle != nullptr && flags == 0);
    require(handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    *static_cast<int*>(shareableHandle) = physical_of(handle).export_file();
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return api([&] {
    require(handle != nullptr && shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    *handle = handle_of(PhysicalMemory::import(static_cast<int>(reinterpret_cast<intptr_t>(osHandle))).detach());
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return api([&] {
    require(granularity != nullptr && prop != nullptr);
    require(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    require(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) device_of(prop->location.id);
    *granularity = kGranularity;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  return api([&] {
    require(prop != nullptr);
    *prop = physical_of(handle).properties();
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return api([&] {
    require(handle != nullptr);
    const MemoryPtr memory = address_map().find(reinterpret_cast<uint64_t>(addr));
    require(memory != nullptr && memory->kind == MemoryKind::kMapped);
    memory->physical->add_handle();
    *handle = handle_of(memory->physical.get());
  });
}
