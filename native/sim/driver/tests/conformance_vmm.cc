// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "conformance.h"

using namespace conformance;

namespace {

constexpr size_t kChunk = 2 << 20;

CUmemAllocationProp device_property(int device, bool shareable) {
  CUmemAllocationProp property = {};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (shareable) property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return property;
}

}  // namespace

SECTION(vmm_reserve) {
  start();
  CUdeviceptr pointer = 0;
  const CUdeviceptr wanted[] = {0x100000000000, 0x200000000000, 0x400000000000, 0x600000000000,
                                0x7e0000000000, 0x7f0000000000, 0x1000,         0x100000001000};
  for (CUdeviceptr hint : wanted) {
    char key[64];
    std::snprintf(key, sizeof(key), "hint %llx", static_cast<unsigned long long>(hint));
    pointer = 0;
    const CUresult code = cuMemAddressReserve(&pointer, size_t{1} << 30, 0, hint, 0);
    line(key, error_name(code) + (code != CUDA_SUCCESS ? "" : pointer == hint ? " as wanted" : " elsewhere"));
  }
  R("taken hint", cuMemAddressReserve(&pointer, kChunk, 0, 0x100000000000, 0));
  number("taken elsewhere", pointer != 0x100000000000);
  R("zero", cuMemAddressReserve(&pointer, 0, 0, 0, 0));
  R("odd size", cuMemAddressReserve(&pointer, kChunk + 4096, 0, 0, 0));
  R("alignment 3", cuMemAddressReserve(&pointer, kChunk, 3, 0, 0));
  R("alignment 1g", cuMemAddressReserve(&pointer, kChunk, size_t{1} << 30, 0, 0));
  number("alignment kept", pointer % (size_t{1} << 30));
  R("flags", cuMemAddressReserve(&pointer, kChunk, 0, 0, 1));
  R("null out", cuMemAddressReserve(nullptr, kChunk, 0, 0, 0));
  R("8 tib", cuMemAddressReserve(&pointer, size_t{8} << 40, 0, 0x300000000000, 0));
  R("reserve two", cuMemAddressReserve(&pointer, 2 * kChunk, 0, 0, 0));
  R("free half", cuMemAddressFree(pointer, kChunk));
  R("free wrong size", cuMemAddressFree(pointer, 4 * kChunk));
  R("free", cuMemAddressFree(pointer, 2 * kChunk));
  R("free twice", cuMemAddressFree(pointer, 2 * kChunk));
}

SECTION(vmm_create) {
  const CUdevice device = start();
  CUmemAllocationProp property = device_property(device, true);
  CUmemGenericAllocationHandle handle = 0;
  size_t granularity = 0;
  R("granularity", cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  number("minimum", static_cast<long long>(granularity));
  R("recommended", cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  number("recommended value", static_cast<long long>(granularity));
  R("odd size", cuMemCreate(&handle, kChunk + 4096, &property, 0));
  R("zero", cuMemCreate(&handle, 0, &property, 0));
  R("flags", cuMemCreate(&handle, kChunk, &property, 1));
  R("null property", cuMemCreate(&handle, kChunk, nullptr, 0));
  R("null out", cuMemCreate(nullptr, kChunk, &property, 0));
  property.location.id = 99;
  R("bad device", cuMemCreate(&handle, kChunk, &property, 0));
  property.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  R("host", cuMemCreate(&handle, kChunk, &property, 0));
  property.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  R("host numa", cuMemCreate(&handle, kChunk, &property, 0));
  R("host numa granularity", cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  number("host numa granularity value", static_cast<long long>(granularity));
  property.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
  R("host numa current", cuMemCreate(&handle, kChunk, &property, 0));
  property = device_property(device, false);
  property.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  R("bad type", cuMemCreate(&handle, kChunk, &property, 0));
  property = device_property(device, true);
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  R("fabric", cuMemCreate(&handle, kChunk, &property, 0));
  property = device_property(device, false);
  R("huge", cuMemCreate(&handle, size_t{1} << 50, &property, 0));
  R("create", cuMemCreate(&handle, kChunk, &property, 0));
  int fd = -1;
  R("export unshareable", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemAllocationProp read = {};
  R("properties", cuMemGetAllocationPropertiesFromHandle(&read, handle));
  number("properties type", read.type);
  number("properties location", read.location.type);
  R("release", cuMemRelease(handle));
  R("release twice", cuMemRelease(handle));
  R("release zero", cuMemRelease(0));
}

SECTION(vmm_map) {
  const CUdevice device = start();
  CUmemAllocationProp property = device_property(device, true);
  CUmemGenericAllocationHandle handle = 0, second = 0;
  R("create", cuMemCreate(&handle, 2 * kChunk, &property, 0));
  R("create second", cuMemCreate(&second, kChunk, &property, 0));
  CUdeviceptr base = 0;
  R("reserve", cuMemAddressReserve(&base, 8 * kChunk, 0, 0, 0));
  R("map larger than handle", cuMemMap(base, 4 * kChunk, 0, handle, 0));
  R("map part", cuMemMap(base, kChunk, 0, handle, 0));
  R("map offset", cuMemMap(base + kChunk, kChunk, kChunk, handle, 0));
  R("map", cuMemMap(base, 2 * kChunk, 0, handle, 0));
  R("map again elsewhere", cuMemMap(base + 4 * kChunk, 2 * kChunk, 0, handle, 0));
  R("map over", cuMemMap(base, 2 * kChunk, 0, second, 0));
  R("map outside", cuMemMap(0x500000000000, kChunk, 0, second, 0));
  R("map unaligned", cuMemMap(base + 2 * kChunk + 4096, kChunk, 0, second, 0));
  R("map flags", cuMemMap(base + 2 * kChunk, kChunk, 0, second, 1));
  R("map second", cuMemMap(base + 2 * kChunk, kChunk, 0, second, 0));
  static char host[64];
  R("copy before access", cuMemcpyHtoD_v2(base, host, 64));
  unsigned long long flags = 99;
  R("get access before", cuMemGetAccess(&flags, &property.location, base));
  number("access before", static_cast<long long>(flags));
  CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  R("set access part", cuMemSetAccess(base, kChunk, &access, 1));
  R("set access unmapped", cuMemSetAccess(base + 6 * kChunk, 2 * kChunk, &access, 1));
  R("set access spanning", cuMemSetAccess(base, 3 * kChunk, &access, 1));
  R("set access zero", cuMemSetAccess(base, 0, &access, 1));
  R("set access no descriptors", cuMemSetAccess(base, 2 * kChunk, nullptr, 0));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  R("set access read", cuMemSetAccess(base + 2 * kChunk, kChunk, &access, 1));
  access.location.id = 99;
  R("set access bad device", cuMemSetAccess(base, 2 * kChunk, &access, 1));
  R("get access", cuMemGetAccess(&flags, &property.location, base));
  number("access", static_cast<long long>(flags));
  R("copy", cuMemcpyHtoD_v2(base, host, 64));
  R("copy across chunks", cuMemcpyDtoD_v2(base, base + kChunk, kChunk));
  R("copy into read-only", cuMemcpyHtoD_v2(base + 2 * kChunk, host, 64));
  CUdeviceptr range = 0;
  size_t size = 0;
  R("range", cuMemGetAddressRange_v2(&range, &size, base + kChunk + 5));
  number("range base", static_cast<long long>(range - base));
  number("range size", static_cast<long long>(size));
  CUmemGenericAllocationHandle retained = 0;
  R("retain", cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + 100)));
  number("retained same", retained == handle);
  R("release retained", cuMemRelease(retained));
  R("retain unmapped", cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + 7 * kChunk)));
  R("retain alloc", cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(device_bytes(64))));
  for (int attribute : {2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}) {
    unsigned long long value[4] = {0, 0, 0, 0};
    const CUresult code = cuPointerGetAttribute(value, static_cast<CUpointer_attribute>(attribute), base + 64);
    if (attribute == 7) value[0] = value[0] != 0;
    if (attribute == 3 || attribute == 11 || attribute == 19) value[0] -= base;
    result_number(("pointer " + std::to_string(attribute)).c_str(), code, static_cast<long long>(value[0]));
  }
  CUipcMemHandle ipc = {};
  R("ipc", cuIpcGetMemHandle(&ipc, base));
  R("mem free", cuMemFree_v2(base));
  R("address free mapped", cuMemAddressFree(base, 8 * kChunk));
  R("unmap part", cuMemUnmap(base, kChunk));
  R("unmap interior", cuMemUnmap(base + kChunk, kChunk));
  R("release mapped", cuMemRelease(handle));
  R("copy after release", cuMemcpyHtoD_v2(base, host, 64));
  R("unmap spanning", cuMemUnmap(base, 3 * kChunk));
  R("unmap again", cuMemUnmap(base, 2 * kChunk));
  R("unmap elsewhere", cuMemUnmap(base + 4 * kChunk, 2 * kChunk));
  R("unmap nothing", cuMemUnmap(base + 6 * kChunk, kChunk));
  R("address free", cuMemAddressFree(base, 8 * kChunk));
}

SECTION(vmm_share) {
  const CUdevice device = start();
  CUmemAllocationProp property = device_property(device, true);
  CUmemGenericAllocationHandle handle = 0, imported = 0;
  R("create", cuMemCreate(&handle, kChunk, &property, 0));
  int fd = -1;
  R("export", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  R("export flags", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  R("import", cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  number("imported same handle", imported == handle);
  R("close fd", close(fd) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  R("import closed", cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  int pipes[2] = {-1, -1};
  if (pipe(pipes) != 0) return;
  R("import foreign",
    cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(pipes[0])),
                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  R("import fabric", cuMemImportFromShareableHandle(&imported, nullptr, CU_MEM_HANDLE_TYPE_FABRIC));
}
