// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "conformance.h"

using namespace conformance;

SECTION(uninitialised) {
  int count = -1;
  R("device count", cuDeviceGetCount(&count));
  CUdevice device = -1;
  R("device get", cuDeviceGet(&device, 0));
  CUcontext context = nullptr;
  R("ctx get current", cuCtxGetCurrent(&context));
  CUdeviceptr pointer = 0;
  R("mem alloc", cuMemAlloc_v2(&pointer, 16));
  int version = 0;
  R("driver version", cuDriverGetVersion(&version));
  R("driver version null", cuDriverGetVersion(nullptr));
  R("init flags", cuInit(1));
  R("stream sync", cuStreamSynchronize(nullptr));
}

SECTION(error_text) {
  for (int code = 0; code <= 1100; ++code) {
    const char* name = nullptr;
    const char* text = nullptr;
    if (cuGetErrorName(static_cast<CUresult>(code), &name) != CUDA_SUCCESS || name == nullptr) continue;
    const CUresult got = cuGetErrorString(static_cast<CUresult>(code), &text);
    line(std::to_string(code).c_str(), std::string(name) + " | " + (text ? text : "null") + " | " + error_name(got));
  }
  const char* name = "unchanged";
  R("unknown name", cuGetErrorName(static_cast<CUresult>(12345), &name));
  line("unknown name value", name == nullptr ? "null" : name);
}

SECTION(device_attributes) {
  const CUdevice device = start();
  for (int attribute = 0; attribute <= CU_DEVICE_ATTRIBUTE_MAX + 4; ++attribute) {
    int value = -12345;
    const CUresult code = cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
    result_number(std::to_string(attribute).c_str(), code, value);
  }
  R("null out", cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  int value = 0;
  R("bad device", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
}

SECTION(device_queries) {
  const CUdevice device = start();
  char name[256] = {};
  R("name", cuDeviceGetName(name, sizeof(name), device));
  char tiny[4] = {};
  R("name tiny", cuDeviceGetName(tiny, sizeof(tiny), device));
  line("name tiny text", tiny);
  R("get negative", cuDeviceGet(nullptr, 0));
  CUdevice other = -1;
  R("get 99", cuDeviceGet(&other, 99));
  char bus[32] = {};
  R("pci bus", cuDeviceGetPCIBusId(bus, sizeof(bus), device));
  R("pci bus tiny", cuDeviceGetPCIBusId(bus, 4, device));
  R("by pci bus", cuDeviceGetByPCIBusId(&other, "zzzz"));
  char luid[8];
  unsigned mask = 0;
  R("luid", cuDeviceGetLuid(luid, &mask, device));
  size_t width = 0;
  R("texture1d", cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, device));
  number("texture1d width", static_cast<long long>(width));
  CUdevprop properties = {};
  R("properties", cuDeviceGetProperties(&properties, device));
  number("properties.sharedMemPerBlock", properties.sharedMemPerBlock);
  number("properties.memPitch", properties.memPitch);
  number("properties.textureAlign", properties.textureAlign);
  int support = -1;
  R("affinity", cuDeviceGetExecAffinitySupport(&support, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device));
  number("affinity support", support);
  int access = -1;
  R("access self", cuDeviceCanAccessPeer(&access, device, device));
  number("access self value", access);
  int p2p = -1;
  R("p2p self", cuDeviceGetP2PAttribute(&p2p, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device));
  R("flush rdma", cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                             CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  const void* table = nullptr;
  CUuuid id = {};
  R("export table", cuGetExportTable(&table, &id));
  CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
  R("loading mode", cuModuleGetLoadingMode(&mode));
  number("loading mode value", mode);
  R("profiler start", cuProfilerStart());
  R("profiler stop", cuProfilerStop());
}

SECTION(contexts) {
  R("init", cuInit(0));
  CUcontext current = reinterpret_cast<CUcontext>(8);
  R("current before", cuCtxGetCurrent(&current));
  number("current is null", current == nullptr);
  CUdevice device = 0;
  R("device before", cuCtxGetDevice(&device));
  unsigned flags = 99;
  int active = 99;
  R("primary state", cuDevicePrimaryCtxGetState(0, &flags, &active));
  number("primary flags", flags);
  number("primary active", active);
  R("primary release unretained", cuDevicePrimaryCtxRelease_v2(0));
  R("primary flags bad", cuDevicePrimaryCtxSetFlags_v2(0, 0xffff));
  R("primary flags sched", cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
  CUcontext primary = nullptr;
  R("primary retain", cuDevicePrimaryCtxRetain(&primary, 0));
  R("primary state 2", cuDevicePrimaryCtxGetState(0, &flags, &active));
  number("primary flags 2", flags);
  number("primary active 2", active);
  R("primary flags active", cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_SPIN));
  R("set current", cuCtxSetCurrent(primary));
  R("flags", cuCtxGetFlags(&flags));
  number("flags value", flags);
  unsigned version = 0;
  R("api version", cuCtxGetApiVersion(primary, &version));
  number("api version value", version);
  unsigned long long id = 0;
  R("id", cuCtxGetId(primary, &id));
  int least = 9, greatest = 9;
  R("priorities", cuCtxGetStreamPriorityRange(&least, &greatest));
  number("least", least);
  number("greatest", greatest);
  for (int limit = 0; limit < 10; ++limit) {
    size_t value = 0;
    const CUresult code = cuCtxGetLimit(&value, static_cast<CUlimit>(limit));
    result_number(("limit " + std::to_string(limit)).c_str(), code, static_cast<long long>(value));
  }
  R("limit stack", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  size_t stack = 0;
  cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE);
  number("limit stack value", static_cast<long long>(stack));
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_EQUAL;
  R("cache config", cuCtxGetCacheConfig(&cache));
  number("cache value", cache);
  CUsharedconfig shared = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  R("shared config", cuCtxGetSharedMemConfig(&shared));
  number("shared value", shared);
  CUcontext created = nullptr;
  R("create", cuCtxCreate_v2(&created, 0, 0));
  cuCtxGetCurrent(&current);
  number("created is current", current == created);
  R("create v4 null params", cuCtxCreate_v4(&created, nullptr, 0, 0));
  R("create bad device", cuCtxCreate_v2(&created, 0, 99));
  R("create bad flags", cuCtxCreate_v2(&created, 0xf0000000u, 0));
  CUcontext popped = nullptr;
  R("pop", cuCtxPopCurrent_v2(&popped));
  R("pop null out", cuCtxPopCurrent_v2(nullptr));
  cuCtxGetCurrent(&current);
  number("primary current again", current == primary);
  R("destroy primary", cuCtxDestroy_v2(primary));
  R("destroy null", cuCtxDestroy_v2(nullptr));
  R("push null", cuCtxPushCurrent_v2(nullptr));
  R("set null", cuCtxSetCurrent(nullptr));
  R("pop empty", cuCtxPopCurrent_v2(&popped));
  R("sync without", cuCtxSynchronize());
  R("set current again", cuCtxSetCurrent(primary));
  R("primary reset", cuDevicePrimaryCtxReset_v2(0));
  R("primary state 3", cuDevicePrimaryCtxGetState(0, &flags, &active));
  number("primary active 3", active);
  CUdeviceptr pointer = 0;
  R("alloc after reset", cuMemAlloc_v2(&pointer, 16));
  R("sync after reset", cuCtxSynchronize());
  R("current after reset", cuCtxGetCurrent(&current));
  R("device after reset", cuCtxGetDevice(&device));
}

SECTION(destroyed_context) {
  R("init", cuInit(0));
  CUcontext context = nullptr;
  R("create", cuCtxCreate_v2(&context, 0, 0));
  const CUdeviceptr pointer = device_bytes(64);
  CUstream stream = new_stream();
  R("destroy", cuCtxDestroy_v2(context));
  CUcontext current = nullptr;
  R("get current", cuCtxGetCurrent(&current));
  number("current null", current == nullptr);
  R("set destroyed", cuCtxSetCurrent(context));
  R("free", cuMemFree_v2(pointer));
  R("stream query", cuStreamQuery(stream));
}

// A thread without a current context: which calls go by the handle alone?
SECTION(no_context_thread) {
  const CUdevice device = start();
  CUmodule module = load(kBasicPtx);
  CUfunction add = function(module, "add_one");
  CUstream stream = new_stream();
  CUevent event = nullptr;
  R("event create", cuEventCreate(&event, 0));
  CUdeviceptr data = device_bytes(4096);
  static uint32_t host[1024];
  CUlibrary library = nullptr;
  R("library", cuLibraryLoadData(&library, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  R("kernel", cuLibraryGetKernel(&kernel, library, "add_one"));
  std::thread([&] {
    void* arguments[] = {&data};
    R("launch function", cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
    R("launch kernel",
      cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
    R("launch null stream", cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    R("event record", cuEventRecord(event, stream));
    R("event query", cuEventSynchronize(event));
    R("stream wait event", cuStreamWaitEvent(stream, event, 0));
    R("stream query", (cuStreamSynchronize(stream), cuStreamQuery(stream)));
    R("stream sync", cuStreamSynchronize(stream));
    R("stream sync null", cuStreamSynchronize(nullptr));
    R("copy async", cuMemcpyHtoDAsync_v2(data, host, 64, stream));
    R("copy sync", cuMemcpyHtoD_v2(data, host, 64));
    R("copy dtoh sync", cuMemcpyDtoH_v2(host, data, 64));
    R("memcpy generic", cuMemcpy(data, data + 64, 64));
    R("memset async", cuMemsetD8Async(data, 0, 64, stream));
    R("memset", cuMemsetD8_v2(data, 0, 64));
    CUdeviceptr other = 0;
    R("alloc", cuMemAlloc_v2(&other, 64));
    R("alloc async", cuMemAllocAsync(&other, 64, stream));
    R("free async", cuMemFreeAsync(other, stream));
    void* pinned = nullptr;
    R("host alloc", cuMemHostAlloc(&pinned, 64, 0));
    R("register", cuMemHostRegister_v2(host, sizeof(host), 0));
    R("unregister", cuMemHostUnregister(host));
    size_t free_bytes = 0, total = 0;
    R("mem info", cuMemGetInfo_v2(&free_bytes, &total));
    CUmemorytype type = static_cast<CUmemorytype>(0);
    R("pointer attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data));
    CUdeviceptr base = 0;
    size_t size = 0;
    R("address range", cuMemGetAddressRange_v2(&base, &size, data));
    CUmemAllocationProp property = {};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemGenericAllocationHandle handle = 0;
    R("mem create", cuMemCreate(&handle, 2 << 20, &property, 0));
    CUdeviceptr reserved = 0;
    R("reserve", cuMemAddressReserve(&reserved, 2 << 20, 0, 0, 0));
    R("map", cuMemMap(reserved, 2 << 20, 0, handle, 0));
    CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    R("set access", cuMemSetAccess(reserved, 2 << 20, &access, 1));
    R("unmap", cuMemUnmap(reserved, 2 << 20));
    R("release", cuMemRelease(handle));
    R("address free", cuMemAddressFree(reserved, 2 << 20));
    CUstream made = nullptr;
    R("stream create", cuStreamCreate(&made, 0));
    CUevent another = nullptr;
    R("event create 2", cuEventCreate(&another, 0));
    CUfunction found = nullptr;
    R("module get function", cuModuleGetFunction(&found, module, "add_one"));
    CUmodule loaded = nullptr;
    R("module load", cuModuleLoadData(&loaded, kBasicPtx));
    R("kernel get function", cuKernelGetFunction(&found, kernel));
    CUlibrary second = nullptr;
    R("library load", cuLibraryLoadData(&second, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    int value = 0;
    R("function attribute", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, add));
    R("kernel attribute", cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device));
    R("write value", cuStreamWriteValue32_v2(stream, data, 5, 0));
    R("wait value", cuStreamWaitValue32_v2(stream, data, 5, 0));
    R("host func", cuLaunchHostFunc(stream, [](void*) {}, nullptr));
    CUstreamCaptureStatus status = static_cast<CUstreamCaptureStatus>(0);
    R("is capturing", cuStreamIsCapturing(stream, &status));
    CUcontext context = nullptr;
    R("stream ctx", cuStreamGetCtx(stream, &context));
    R("begin capture", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUgraph graph = nullptr;
    R("end capture", cuStreamEndCapture(stream, &graph));
    R("ctx sync", cuCtxSynchronize());
    CUdevice current = 0;
    R("ctx device", cuCtxGetDevice(&current));
    CUmemoryPool pool = nullptr;
    R("default pool", cuDeviceGetDefaultMemPool(&pool, device));
    R("event destroy", cuEventDestroy_v2(event));
    R("stream destroy", cuStreamDestroy_v2(stream));
    R("free", cuMemFree_v2(data));
    R("module unload", cuModuleUnload(module));
  }).join();
}

SECTION(fork_after_init) {
  start();
  CUdeviceptr data = device_bytes(64);
  CUstream stream = new_stream();
  std::fflush(stdout);
  if (fork() == 0) {
    CUcontext context = nullptr;
    R("get current", cuCtxGetCurrent(&context));
    int count = 0;
    R("count", cuDeviceGetCount(&count));
    R("alloc", cuMemAlloc_v2(&data, 64));
    R("stream sync", cuStreamSynchronize(stream));
    R("ctx sync", cuCtxSynchronize());
    R("init", cuInit(0));
    R("count 2", cuDeviceGetCount(&count));
    int version = 0;
    R("version", cuDriverGetVersion(&version));
    void* entry = nullptr;
    R("proc", cuGetProcAddress("cuInit", &entry, 2000, 0));
    std::fflush(stdout);
    std::_Exit(0);
  }
  int status = 0;
  wait(&status);
  number("child", status);
}

SECTION(proc_address) {
  CUdriverProcAddressQueryResult found = static_cast<CUdriverProcAddressQueryResult>(99);
  void* entry = reinterpret_cast<void*>(8);
  R("unknown v1", cuGetProcAddress("cuNoSuchThing", &entry, 13000, 0));
  number("unknown v1 null", entry == nullptr);
  entry = reinterpret_cast<void*>(8);
  R("unknown v2", cuGetProcAddress_v2("cuNoSuchThing", &entry, 13000, 0, &found));
  number("unknown v2 null", entry == nullptr);
  number("unknown status", found);
  R("too old", cuGetProcAddress_v2("cuMemAllocAsync", &entry, 10000, 0, &found));
  number("too old null", entry == nullptr);
  number("too old status", found);
  R("newer than driver", cuGetProcAddress_v2("cuMemAlloc", &entry, 99000, 0, &found));
  number("newer status", found);
  R("next minor", cuGetProcAddress_v2("cuMemAlloc", &entry, 13010, 0, &found));
  R("next major", cuGetProcAddress_v2("cuMemAlloc", &entry, 14000, 0, &found));
  R("null status", cuGetProcAddress_v2("cuMemAlloc", &entry, 12000, 0, nullptr));
  R("suffixed", cuGetProcAddress_v2("cuMemAlloc_v2", &entry, 12000, 0, &found));
  R("bad flags", cuGetProcAddress_v2("cuMemAlloc", &entry, 12000, 8, &found));
  R("both flags", cuGetProcAddress_v2("cuMemAlloc", &entry, 12000, 3, &found));
  R("version 0", cuGetProcAddress_v2("cuMemAlloc", &entry, 0, 0, &found));
  struct Query {
    const char* name;
    int version;
    unsigned long long flags;
    void* want;
  };
  const Query queries[] = {
      {"cuMemAlloc", 2000, 0, reinterpret_cast<void*>(cuMemAlloc)},
      {"cuMemAlloc", 3010, 0, reinterpret_cast<void*>(cuMemAlloc)},
      {"cuMemAlloc", 3020, 0, reinterpret_cast<void*>(cuMemAlloc_v2)},
      {"cuMemAlloc", 13000, 2, reinterpret_cast<void*>(cuMemAlloc_v2)},
      {"cuLaunchKernel", 13000, 0, reinterpret_cast<void*>(cuLaunchKernel)},
      {"cuLaunchKernel", 13000, 1, reinterpret_cast<void*>(cuLaunchKernel)},
      {"cuLaunchKernel", 13000, 2, reinterpret_cast<void*>(cuLaunchKernel_ptsz)},
      {"cuLaunchKernel", 4000, 2, nullptr},
      {"cuMemcpyHtoD", 13000, 2, reinterpret_cast<void*>(cuMemcpyHtoD_v2_ptds)},
      {"cuMemcpyHtoD", 2000, 0, reinterpret_cast<void*>(cuMemcpyHtoD)},
      {"cuGetProcAddress", 11030, 0, reinterpret_cast<void*>(cuGetProcAddress)},
      {"cuGetProcAddress", 12000, 0, reinterpret_cast<void*>(cuGetProcAddress_v2)},
      {"cuStreamWaitValue32", 8000, 0, reinterpret_cast<void*>(cuStreamWaitValue32)},
      {"cuStreamWaitValue32", 11070, 0, reinterpret_cast<void*>(cuStreamWaitValue32_v2)},
      {"cuStreamWaitValue32", 11070, 2, reinterpret_cast<void*>(cuStreamWaitValue32_v2_ptsz)},
      {"cuStreamBeginCapture", 10000, 0, reinterpret_cast<void*>(cuStreamBeginCapture)},
      {"cuStreamBeginCapture", 10010, 0, reinterpret_cast<void*>(cuStreamBeginCapture_v2)},
      {"cuGraphInstantiate", 10000, 0, reinterpret_cast<void*>(cuGraphInstantiate)},
      {"cuGraphInstantiate", 11000, 0, reinterpret_cast<void*>(cuGraphInstantiate_v2)},
      {"cuGraphInstantiate", 12000, 0, reinterpret_cast<void*>(cuGraphInstantiateWithFlags)},
      {"cuGraphAddKernelNode", 10000, 0, reinterpret_cast<void*>(cuGraphAddKernelNode)},
      {"cuGraphAddKernelNode", 12000, 0, reinterpret_cast<void*>(cuGraphAddKernelNode_v2)},
      {"cuCtxCreate", 3020, 0, reinterpret_cast<void*>(cuCtxCreate_v2)},
      {"cuCtxCreate", 11040, 0, reinterpret_cast<void*>(cuCtxCreate_v3)},
      {"cuCtxCreate", 13000, 0, reinterpret_cast<void*>(cuCtxCreate_v4)},
      {"cuEventElapsedTime", 12000, 0, reinterpret_cast<void*>(cuEventElapsedTime)},
      {"cuEventElapsedTime", 13000, 0, reinterpret_cast<void*>(cuEventElapsedTime_v2)},
      {"cuDeviceGetUuid", 9020, 0, reinterpret_cast<void*>(cuDeviceGetUuid)},
      {"cuDeviceGetUuid", 11040, 0, reinterpret_cast<void*>(cuDeviceGetUuid_v2)},
      {"cuStreamGetCaptureInfo", 10010, 0, reinterpret_cast<void*>(cuStreamGetCaptureInfo)},
      {"cuStreamGetCaptureInfo", 11030, 0, reinterpret_cast<void*>(cuStreamGetCaptureInfo_v2)},
      {"cuStreamGetCaptureInfo", 12030, 0, reinterpret_cast<void*>(cuStreamGetCaptureInfo_v3)},
      {"cuMemcpyBatchAsync", 12080, 0, reinterpret_cast<void*>(cuMemcpyBatchAsync)},
      {"cuMemcpyBatchAsync", 13000, 0, reinterpret_cast<void*>(cuMemcpyBatchAsync_v2)},
  };
  for (const Query& query : queries) {
    void* got = nullptr;
    const CUresult code = cuGetProcAddress_v2(query.name, &got, query.version, query.flags, &found);
    const std::string key =
        std::string(query.name) + " " + std::to_string(query.version) + " flags " + std::to_string(query.flags);
    line(key.c_str(),
         error_name(code) + (got == query.want ? " as wanted" : " other") + " status " + std::to_string(found));
  }
}
