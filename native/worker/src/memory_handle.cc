// SPDX-License-Identifier: Apache-2.0
#include "memory_handle.h"

#include <cstdio>

namespace tessera::worker {

MemoryHandle MemoryHandle::create(const Device& device, uint64_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device.handle();
  CUmemGenericAllocationHandle handle = 0;
  device.driver().check(device.driver().cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  return MemoryHandle(&device.driver(), handle);
}

MemoryHandle MemoryHandle::import(const Device& device, int fd) {
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the descriptor itself in the pointer argument.
  void* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));  // NOLINT(performance-no-int-to-ptr)
  device.driver().check(
      device.driver().cuMemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle");
  return MemoryHandle(&device.driver(), handle);
}

void MemoryHandle::map(const Device& device, uint64_t address, uint64_t bytes) const {
  const Driver& driver = device.driver();
  driver.check(driver.cuMemMap(address, bytes, 0, handle_, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device.handle();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult granted = driver.cuMemSetAccess(address, bytes, &access, 1);
  if (granted == CUDA_SUCCESS) return;
  driver.note(driver.cuMemUnmap(address, bytes), "cuMemUnmap");
  driver.fail(granted, "cuMemSetAccess");
}

Reservation::Reservation(const Device& device, uint64_t address, uint64_t bytes) {
  const Driver& driver = device.driver();
  CUdeviceptr got = 0;
  const CUresult code = driver.cuMemAddressReserve(&got, bytes, TS_GRANULE, address, 0);
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "0x%llx + 0x%llx", static_cast<unsigned long long>(address),
                static_cast<unsigned long long>(bytes));
  if (code != CUDA_SUCCESS) driver.fail(code, std::string("cannot reserve the addresses ") + wanted);
  driver_ = &driver;
  address_ = got;
  bytes_ = bytes;
  if (address != 0 && got != address) {
    driver.note(driver.cuMemAddressFree(got, bytes), "cuMemAddressFree");
    driver_ = nullptr;
    throw DriverError(CUDA_ERROR_OUT_OF_MEMORY, std::string("the addresses ") + wanted + " are taken in this process");
  }
}

}  // namespace tessera::worker
