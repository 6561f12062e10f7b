// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "conformance.h"

using namespace conformance;

namespace {

void pointer_attributes(const char* what, CUdeviceptr pointer) {
  for (int attribute = 1; attribute <= 21; ++attribute) {
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;
    unsigned long long value[4] = {0xdddddddddddddddd, 0xdddddddddddddddd, 0, 0};
    const CUresult code = cuPointerGetAttribute(value, static_cast<CUpointer_attribute>(attribute), pointer);
    std::string text = error_name(code);
    if (code == CUDA_SUCCESS) {
      const unsigned long long low = value[0];
      switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
          text = low == 0 ? "null" : "set";
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
          text = low == pointer ? "itself" : low == 0 ? "null" : low < pointer ? "below" : "above";
          break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
          text = low == 0 ? "0" : "id";
          break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
          text = std::to_string(low);
          break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
          text = std::to_string(low & 0xff);
          break;
        default:
          text = std::to_string(static_cast<int>(low));
      }
    }
    line((std::string(what) + " " + std::to_string(attribute)).c_str(), text);
  }
}

}  // namespace

SECTION(mem_alloc) {
  start();
  CUdeviceptr pointer = 0;
  R("zero", cuMemAlloc_v2(&pointer, 0));
  R("null out", cuMemAlloc_v2(nullptr, 16));
  R("huge", cuMemAlloc_v2(&pointer, size_t{1} << 50));
  R("alloc 100", cuMemAlloc_v2(&pointer, 100));
  number("alignment 512", pointer % 512);
  CUdeviceptr second = 0;
  cuMemAlloc_v2(&second, 100);
  number("distance", static_cast<long long>(second - pointer));
  CUdeviceptr base = 0;
  size_t size = 0;
  R("range interior", cuMemGetAddressRange_v2(&base, &size, pointer + 50));
  number("range base", base == pointer);
  number("range size", static_cast<long long>(size));
  R("range null outs", cuMemGetAddressRange_v2(nullptr, nullptr, pointer));
  R("range unknown", cuMemGetAddressRange_v2(&base, &size, 0x1234));
  R("range past end", cuMemGetAddressRange_v2(&base, &size, pointer + 100));
  R("free interior", cuMemFree_v2(pointer + 4));
  R("free null", cuMemFree_v2(0));
  R("free", cuMemFree_v2(pointer));
  R("free twice", cuMemFree_v2(pointer));
  size_t pitch = 0;
  R("pitch", cuMemAllocPitch_v2(&pointer, &pitch, 100, 10, 4));
  number("pitch value", static_cast<long long>(pitch));
  R("pitch element 3", cuMemAllocPitch_v2(&pointer, &pitch, 100, 10, 3));
  R("pitch zero width", cuMemAllocPitch_v2(&pointer, &pitch, 0, 10, 4));
  size_t free_bytes = 0, total = 0;
  R("info", cuMemGetInfo_v2(&free_bytes, &total));
  R("info null", cuMemGetInfo_v2(nullptr, &total));
  R("managed", cuMemAllocManaged(&pointer, 100, CU_MEM_ATTACH_GLOBAL));
  R("managed zero", cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
  R("managed flags", cuMemAllocManaged(&pointer, 100, 0));
  R("managed single", cuMemAllocManaged(&pointer, 100, CU_MEM_ATTACH_SINGLE));
}

SECTION(host_alloc) {
  start();
  void* pointer = reinterpret_cast<void*>(8);
  R("zero", cuMemHostAlloc(&pointer, 0, 0));
  number("zero null", pointer == nullptr);
  R("zero v2", cuMemAllocHost_v2(&pointer, 0));
  R("alloc", cuMemHostAlloc(&pointer, 100, 0));
  unsigned flags = 99;
  R("flags", cuMemHostGetFlags(&flags, pointer));
  number("flags value", flags);
  R("flags interior", cuMemHostGetFlags(&flags, static_cast<char*>(pointer) + 10));
  R("flags past", cuMemHostGetFlags(&flags, static_cast<char*>(pointer) + 100));
  CUdeviceptr device = 0;
  R("device pointer", cuMemHostGetDevicePointer_v2(&device, pointer, 0));
  number("device same", device == reinterpret_cast<CUdeviceptr>(pointer));
  R("device pointer interior", cuMemHostGetDevicePointer_v2(&device, static_cast<char*>(pointer) + 10, 0));
  number("device interior", device == reinterpret_cast<CUdeviceptr>(pointer) + 10);
  R("device pointer flags", cuMemHostGetDevicePointer_v2(&device, pointer, 1));
  void* combined = nullptr;
  R("all flags", cuMemHostAlloc(&combined, 100, 7));
  cuMemHostGetFlags(&flags, combined);
  number("all flags value", flags);
  R("portable", cuMemHostAlloc(&combined, 100, CU_MEMHOSTALLOC_PORTABLE));
  cuMemHostGetFlags(&flags, combined);
  number("portable value", flags);
  R("bad flags", cuMemHostAlloc(&combined, 100, 0x100));
  R("free interior", cuMemFreeHost(static_cast<char*>(pointer) + 8));
  R("free", cuMemFreeHost(pointer));
  R("free twice", cuMemFreeHost(pointer));
  R("free null", cuMemFreeHost(nullptr));
  R("free device pointer", cuMemFree_v2(reinterpret_cast<CUdeviceptr>(combined)));
  static char local[64];
  R("free unknown", cuMemFreeHost(local));
  R("flags unknown", cuMemHostGetFlags(&flags, local));
  R("device pointer unknown", cuMemHostGetDevicePointer_v2(&device, local, 0));
}

SECTION(host_register) {
  start();
  static const size_t kPage = 4096;
  char* memory =
      static_cast<char*>(mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  unsigned flags = 99;
  R("four bytes", cuMemHostRegister_v2(memory + 100, 4, 0));
  R("flags at", cuMemHostGetFlags(&flags, memory + 100));
  number("flags value", flags);
  R("flags before", cuMemHostGetFlags(&flags, memory + 99));
  R("flags page start", cuMemHostGetFlags(&flags, memory));
  R("flags after", cuMemHostGetFlags(&flags, memory + 104));
  CUdeviceptr device = 0;
  R("device pointer", cuMemHostGetDevicePointer_v2(&device, memory + 100, 0));
  number("device same", device == reinterpret_cast<CUdeviceptr>(memory + 100));
  R("device pointer before", cuMemHostGetDevicePointer_v2(&device, memory + 96, 0));
  R("same page, other bytes", cuMemHostRegister_v2(memory + 200, 80, 0));
  R("adjacent", cuMemHostRegister_v2(memory + 280, 20, 0));
  R("same again", cuMemHostRegister_v2(memory + 100, 4, 0));
  R("overlap head", cuMemHostRegister_v2(memory + 90, 12, 0));
  R("overlap tail", cuMemHostRegister_v2(memory + 103, 12, 0));
  R("covering", cuMemHostRegister_v2(memory, kPage, 0));
  R("inside", cuMemHostRegister_v2(memory + 210, 4, 0));
  R("unregister interior", cuMemHostUnregister(memory + 210));
  R("unregister unknown", cuMemHostUnregister(memory + 3000));
  R("unregister", cuMemHostUnregister(memory + 100));
  R("unregister twice", cuMemHostUnregister(memory + 100));
  R("unregister null", cuMemHostUnregister(nullptr));
  R("zero size", cuMemHostRegister_v2(memory + 8 * kPage, 0, 0));
  R("null", cuMemHostRegister_v2(nullptr, 16, 0));
  R("portable mapped", cuMemHostRegister_v2(memory + 10 * kPage, 2 * kPage, 3));
  cuMemHostGetFlags(&flags, memory + 10 * kPage);
  number("portable mapped flags", flags);
  R("plain", cuMemHostRegister_v2(memory + 16 * kPage, kPage, 0));
  cuMemHostGetFlags(&flags, memory + 16 * kPage);
  number("plain flags", flags);
  R("read only flag", cuMemHostRegister_v2(memory + 20 * kPage, kPage, CU_MEMHOSTREGISTER_READ_ONLY));
  R("io memory flag", cuMemHostRegister_v2(memory + 24 * kPage, kPage, CU_MEMHOSTREGISTER_IOMEMORY));
  R("bad flags", cuMemHostRegister_v2(memory + 28 * kPage, kPage, 0x100));
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, kPage, 0);
  R("register host alloc", cuMemHostRegister_v2(pinned, kPage, 0));
  R("unregister host alloc", cuMemHostUnregister(pinned));
  R("register device memory", cuMemHostRegister_v2(reinterpret_cast<void*>(device_bytes(kPage)), kPage, 0));
  munmap(memory + 40 * kPage, kPage);
  R("register unmapped", cuMemHostRegister_v2(memory + 40 * kPage, kPage, 0));
  mprotect(memory + 44 * kPage, kPage, PROT_READ);
  R("register read-only page", cuMemHostRegister_v2(memory + 44 * kPage, kPage, 0));
  R("register v1", cuMemHostRegister(memory + 48 * kPage, kPage, 0));
  R("free host of registered", cuMemFreeHost(memory + 48 * kPage));
}

SECTION(pointers) {
  start();
  pointer_attributes("device", device_bytes(1000));
  pointer_attributes("device interior", device_bytes(1000) + 8);
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, 1000, 0);
  pointer_attributes("host", reinterpret_cast<CUdeviceptr>(pinned));
  static char memory[8192];
  cuMemHostRegister_v2(memory + 64, 1000, 0);
  pointer_attributes("registered", reinterpret_cast<CUdeviceptr>(memory + 64));
  pointer_attributes("unknown", reinterpret_cast<CUdeviceptr>(&current));
  CUdeviceptr managed = 0;
  cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL);
  pointer_attributes("managed", managed);
  CUstream stream = new_stream();
  CUdeviceptr pooled = 0;
  cuMemAllocAsync(&pooled, 1000, stream);
  pointer_attributes("pool", pooled);
  CUmodule module = load(kBasicPtx);
  CUdeviceptr global = 0;
  size_t size = 0;
  R("module global", cuModuleGetGlobal_v2(&global, &size, module, "counter"));
  number("module global size", static_cast<long long>(size));
  pointer_attributes("global", global);
  R("null data", cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, global));
  unsigned value = 0;
  R("attribute 99", cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(99), global));
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED};
  unsigned type = 77;
  int ordinal = 77;
  unsigned is_managed = 0;
  void* data[] = {&type, &ordinal, &is_managed};
  R("attributes unknown pointer", cuPointerGetAttributes(3, wanted, data, reinterpret_cast<CUdeviceptr>(&current)));
  number("attributes unknown type", type);
  number("attributes unknown ordinal", ordinal);
  R("attributes", cuPointerGetAttributes(3, wanted, data, global));
  number("attributes type", type);
  R("attributes none", cuPointerGetAttributes(0, wanted, data, global));
  unsigned on = 1;
  R("set sync memops", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device_bytes(64)));
  R("set unknown", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_bytes(64)));
}

SECTION(copies) {
  start();
  CUdeviceptr a = device_bytes(1024), b = device_bytes(1024);
  static char host[4096];
  CUstream stream = new_stream();
  R("zero", cuMemcpyHtoD_v2(a, host, 0));
  R("zero null", cuMemcpyHtoD_v2(0, nullptr, 0));
  R("null source", cuMemcpyHtoD_v2(a, nullptr, 16));
  R("null destination", cuMemcpyHtoD_v2(0, host, 16));
  R("past end", cuMemcpyHtoD_v2(a, host, 4 << 20));
  const CUdeviceptr odd = device_bytes(100);
  R("one past", cuMemcpyHtoD_v2(odd, host, 101));
  R("513", cuMemcpyHtoD_v2(odd, host, 513));
  R("unknown device", cuMemcpyDtoH_v2(host, 0x123456, 16));
  R("host as device source", cuMemcpyDtoH_v2(host, reinterpret_cast<CUdeviceptr>(host + 64), 16));
  R("device as host source", cuMemcpyHtoD_v2(a, reinterpret_cast<void*>(b), 16));
  R("dtod", cuMemcpyDtoD_v2(a, b, 512));
  R("dtod host", cuMemcpyDtoD_v2(a, reinterpret_cast<CUdeviceptr>(host), 512));
  R("generic host host", cuMemcpy(reinterpret_cast<CUdeviceptr>(host), reinterpret_cast<CUdeviceptr>(host + 1024), 64));
  R("generic host device", cuMemcpy(a, reinterpret_cast<CUdeviceptr>(host), 64));
  R("generic unknown", cuMemcpy(a, 0, 64));
  R("async", cuMemcpyHtoDAsync_v2(a, host, 64, stream));
  R("async past end", cuMemcpyHtoDAsync_v2(a, host, 4 << 20, stream));
  R("peer same", cuMemcpyPeer(a, nullptr, b, nullptr, 16));
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = a;
  copy.dstPitch = 32;
  copy.WidthInBytes = 16;
  copy.Height = 8;
  R("2d", cuMemcpy2D_v2(&copy));
  copy.dstPitch = 8;
  R("2d pitch small", cuMemcpy2D_v2(&copy));
  copy.dstPitch = 0;
  R("2d pitch zero", cuMemcpy2D_v2(&copy));
  copy.dstPitch = 32;
  copy.Height = 0;
  R("2d height zero", cuMemcpy2D_v2(&copy));
  copy.Height = 8;
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(host);
  R("2d unified", cuMemcpy2D_v2(&copy));
  copy.dstPitch = 4096;
  copy.Height = 4096;
  copy.srcPitch = 0;
  R("2d past end", cuMemcpy2D_v2(&copy));
  R("2d null", cuMemcpy2D_v2(nullptr));
  R("memset d8", cuMemsetD8_v2(a, 1, 16));
  R("memset d16 misaligned", cuMemsetD16_v2(a + 1, 1, 16));
  R("memset d32 misaligned", cuMemsetD32_v2(a + 2, 1, 16));
  R("memset past end", cuMemsetD8_v2(a, 1, 4 << 20));
  R("memset zero", cuMemsetD8_v2(a, 1, 0));
  R("memset null", cuMemsetD8_v2(0, 1, 16));
  R("memset host", cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(host), 1, 16));
  R("memset 2d", cuMemsetD2D8_v2(a, 32, 1, 16, 8));
  R("memset 2d pitch small", cuMemsetD2D8_v2(a, 8, 1, 16, 8));
}

SECTION(pools) {
  const CUdevice device = start();
  CUmemoryPool pool = nullptr, current_pool = nullptr;
  R("default", cuDeviceGetDefaultMemPool(&pool, device));
  R("current", cuDeviceGetMemPool(&current_pool, device));
  number("same", pool == current_pool);
  for (int attribute = 1; attribute <= 12; ++attribute) {
    uint64_t value = 0;
    const CUresult code = cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), &value);
    result_number(std::to_string(attribute).c_str(), code, static_cast<long long>(value));
  }
  CUstream stream = new_stream();
  CUdeviceptr pointer = 0;
  R("alloc zero", cuMemAllocAsync(&pointer, 0, stream));
  number("alloc zero null", pointer == 0);
  R("alloc", cuMemAllocAsync(&pointer, 1000, stream));
  for (int attribute = 5; attribute <= 8; ++attribute) {
    uint64_t value = 0;
    const CUresult code = cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), &value);
    result_number(("after " + std::to_string(attribute)).c_str(), code, static_cast<long long>(value));
  }
  R("free sync of pool memory", cuMemFree_v2(pointer));
  R("alloc 2", cuMemAllocAsync(&pointer, 1000, stream));
  R("free", cuMemFreeAsync(pointer, stream));
  R("free twice", cuMemFreeAsync(pointer, stream));
  R("free null", cuMemFreeAsync(0, stream));
  R("free alloc memory", cuMemFreeAsync(device_bytes(64), stream));
  R("huge", cuMemAllocAsync(&pointer, size_t{1} << 50, stream));
  R("trim", cuMemPoolTrimTo(pool, 0));
  R("destroy default", cuMemPoolDestroy(pool));
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool own = nullptr;
  R("create", cuMemPoolCreate(&own, &properties));
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool shared = nullptr;
  R("create shareable", cuMemPoolCreate(&shared, &properties));
  int fd = -1;
  R("export", cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  R("export unshareable", cuMemPoolExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  properties.location.id = 99;
  R("create bad device", cuMemPoolCreate(&shared, &properties));
  R("alloc from pool", cuMemAllocFromPoolAsync(&pointer, 1000, own, stream));
  uint64_t threshold = 1 << 20;
  R("set threshold", cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  R("set reserved current", cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &threshold));
  CUmemAccess_flags flags = static_cast<CUmemAccess_flags>(9);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  R("get access", cuMemPoolGetAccess(&flags, own, &location));
  number("access", flags);
  R("set current", cuDeviceSetMemPool(device, own));
  R("destroy", cuMemPoolDestroy(own));
  R("current after destroy", cuDeviceGetMemPool(&current_pool, device));
  number("back to default", current_pool == pool);
  R("free after pool destroy", cuMemFreeAsync(pointer, stream));
}

SECTION(ipc) {
  start();
  CUipcMemHandle handle = {};
  R("alloc memory", cuIpcGetMemHandle(&handle, device_bytes(64)));
  CUdeviceptr pointer = 0;
  R("open own", cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  R("host memory", cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&handle)));
  R("interior", cuIpcGetMemHandle(&handle, device_bytes(64) + 8));
  R("close unknown", cuIpcCloseMemHandle(device_bytes(64)));
  CUevent event = nullptr;
  cuEventCreate(&event, CU_EVENT_DEFAULT);
  CUipcEventHandle event_handle = {};
  R("event without flag", cuIpcGetEventHandle(&event_handle, event));
  R("event interprocess only", cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  R("event", cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
}
