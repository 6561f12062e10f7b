// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "conformance.h"

using namespace conformance;

namespace {

void try_load(const char* key, const std::string& ptx) {
  char info[4096] = {}, error[4096] = {};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, reinterpret_cast<void*>(sizeof(info)), error, reinterpret_cast<void*>(sizeof(error))};
  CUmodule module = reinterpret_cast<CUmodule>(8);
  const CUresult code = cuModuleLoadDataEx(&module, ptx.c_str(), 4, options, values);
  std::string log = error;
  for (char& c : log) {
    if (c == '\n') c = '|';
  }
  line(key, error_name(code));
  line((std::string(key) + " log").c_str(), log);
}

std::string header(const char* version, const char* target) {
  return std::string(".version ") + version + "\n.target " + target + "\n.address_size 64\n";
}

}  // namespace

SECTION(module_errors) {
  start();
  try_load("newer target", header("8.7", "sm_120") + ".visible .entry k() { ret; }\n");
  try_load("newer version", header("9.9", "sm_80") + ".visible .entry k() { ret; }\n");
  try_load("syntax", header("7.0", "sm_80") + ".visible .entry k() { mov.u32 ; }\n");
  try_load("unknown instruction", header("7.0", "sm_80") + ".visible .entry k() { frobnicate.u32 1; ret; }\n");
  try_load("unknown register", header("7.0", "sm_80") + ".visible .entry k() { mov.u32 %r1, 1; ret; }\n");
  try_load("unresolved", header("7.0", "sm_80") + ".extern .func other();\n.visible .entry k() { call other; ret; }\n");
  try_load("unresolved variable", header("7.0", "sm_80") +
                                      ".extern .global .u32 other;\n.visible .entry k() { .reg .b32 %r<2>; "
                                      "ld.global.u32 %r1, [other]; ret; }\n");
  try_load("no version", ".target sm_80\n.visible .entry k() { ret; }\n");
  try_load("garbage", "this is no module");
  try_load("empty", "");
  CUmodule module = nullptr;
  R("null image", cuModuleLoadData(&module, nullptr));
  R("null out", cuModuleLoadData(nullptr, kBasicPtx));
  R("missing file", cuModuleLoad(&module, "/nonexistent/file.cubin"));
  R("null file", cuModuleLoad(&module, nullptr));
  static const unsigned char elf[128] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  R("broken elf", cuModuleLoadData(&module, elf));
  R("directory", cuModuleLoad(&module, "/tmp"));
}

SECTION(modules) {
  const CUdevice device = start();
  CUmodule module = load(kBasicPtx);
  CUfunction function = nullptr;
  R("missing function", cuModuleGetFunction(&function, module, "no_such"));
  R("null name", cuModuleGetFunction(&function, module, nullptr));
  R("null module", cuModuleGetFunction(&function, nullptr, "empty"));
  R("function", cuModuleGetFunction(&function, module, "params"));
  CUfunction again = nullptr;
  cuModuleGetFunction(&again, module, "params");
  number("same handle", again == function);
  CUdeviceptr pointer = 0;
  size_t size = 0;
  R("missing global", cuModuleGetGlobal_v2(&pointer, &size, module, "no_such"));
  R("global null outs", cuModuleGetGlobal_v2(nullptr, nullptr, module, "counter"));
  R("global size only", cuModuleGetGlobal_v2(nullptr, &size, module, "counter"));
  R("constant", cuModuleGetGlobal_v2(&pointer, &size, module, "table"));
  number("constant size", static_cast<long long>(size));
  uint32_t value = 0;
  R("constant read", cuMemcpyDtoH_v2(&value, pointer + 8, 4));
  number("constant value", value);
  unsigned count = 0;
  R("function count", cuModuleGetFunctionCount(&count, module));
  number("function count value", count);
  for (int attribute = 0; attribute <= 17; ++attribute) {
    int number_value = -7;
    const CUresult code = cuFuncGetAttribute(&number_value, static_cast<CUfunction_attribute>(attribute), function);
    result_number(("attribute " + std::to_string(attribute)).c_str(), code, number_value);
  }
  CUfunction shared = ::conformance::function(module, "shared_user");
  int shared_size = 0;
  R("shared size", cuFuncGetAttribute(&shared_size, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, shared));
  number("shared size value", shared_size);
  cuFuncGetAttribute(&shared_size, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared);
  number("max dynamic", shared_size);
  R("set dynamic", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  R("set dynamic too big", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 400000));
  R("set dynamic negative", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
  R("set registers", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
  R("set carveout", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  R("set carveout bad", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 500));
  int max_threads = 0;
  cuFuncGetAttribute(&max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, ::conformance::function(module, "bounded"));
  number("bounded threads", max_threads);
  for (size_t index = 0; index < 5; ++index) {
    size_t offset = 99, bytes = 99;
    const CUresult code = cuFuncGetParamInfo(function, index, &offset, &bytes);
    line(("parameter " + std::to_string(index)).c_str(),
         error_name(code) + " " + std::to_string(offset) + " " + std::to_string(bytes));
  }
  R("parameter null size", cuFuncGetParamInfo(function, 0, &size, nullptr));
  R("parameter null offset", cuFuncGetParamInfo(function, 0, nullptr, &size));
  const char* name = nullptr;
  R("name", cuFuncGetName(&name, function));
  line("name text", name ? name : "null");
  CUmodule owner = nullptr;
  R("module of", cuFuncGetModule(&owner, function));
  CUfunctionLoadingState state = static_cast<CUfunctionLoadingState>(9);
  R("is loaded", cuFuncIsLoaded(&state, function));
  R("load", cuFuncLoad(function));
  int blocks = -1;
  R("occupancy",
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, ::conformance::function(module, "empty"), 128, 0));
  number("occupancy blocks", blocks);
  R("occupancy 1024", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
  number("occupancy 1024 blocks", blocks);
  R("occupancy 2000", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 2000, 0));
  R("occupancy shared", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared, 128, 40000));
  number("occupancy shared blocks", blocks);
  R("occupancy zero", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
  int grid = 0, block = 0;
  R("occupancy potential", cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  number("potential block", block);
  number("potential grid", grid);
  size_t dynamic = 0;
  R("occupancy dynamic", cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, function, 2, 128));
  number("occupancy dynamic bytes", static_cast<long long>(dynamic));
  R("unload", cuModuleUnload(module));
  R("unload null", cuModuleUnload(nullptr));
  (void)device;
}

SECTION(libraries) {
  const CUdevice device = start();
  CUlibrary library = nullptr;
  R("load", cuLibraryLoadData(&library, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUlibrary broken = nullptr;
  R("load broken", cuLibraryLoadData(&broken, "garbage", nullptr, nullptr, 0, nullptr, nullptr, 0));
  R("load newer", cuLibraryLoadData(&broken, (header("8.7", "sm_120") + ".visible .entry k() { ret; }\n").c_str(),
                                    nullptr, nullptr, 0, nullptr, nullptr, 0));
  R("load null", cuLibraryLoadData(&broken, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  R("load file", cuLibraryLoadFromFile(&broken, "/nonexistent", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  R("missing kernel", cuLibraryGetKernel(&kernel, library, "no_such"));
  R("kernel", cuLibraryGetKernel(&kernel, library, "params"));
  unsigned count = 0;
  R("count", cuLibraryGetKernelCount(&count, library));
  number("count value", count);
  CUkernel all[32] = {};
  R("enumerate", cuLibraryEnumerateKernels(all, count, library));
  CUmodule module = nullptr;
  R("module", cuLibraryGetModule(&module, library));
  R("unload library module", cuModuleUnload(module));
  CUfunction function = nullptr;
  R("function", cuKernelGetFunction(&function, kernel));
  number("function is kernel", reinterpret_cast<void*>(function) == reinterpret_cast<void*>(kernel));
  const char* name = nullptr;
  R("kernel name", cuKernelGetName(&name, kernel));
  R("function name of kernel handle", cuFuncGetName(&name, reinterpret_cast<CUfunction>(kernel)));
  R("kernel name of function handle", cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)));
  int value = 0;
  R("function attribute of kernel handle",
    cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, reinterpret_cast<CUfunction>(kernel)));
  R("kernel attribute", cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
  R("kernel set attribute",
    cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, kernel, device));
  R("function attribute after", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  number("function attribute value", value);
  size_t offset = 0, bytes = 0;
  R("kernel parameter", cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
  number("kernel parameter offset", static_cast<long long>(offset));
  R("kernel parameter past", cuKernelGetParamInfo(kernel, 4, &offset, &bytes));
  R("function parameter of kernel handle",
    cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), 1, &offset, &bytes));
  CUdeviceptr pointer = 0;
  R("global", cuLibraryGetGlobal(&pointer, &bytes, library, "counter"));
  R("managed", cuLibraryGetManaged(&pointer, &bytes, library, "counter"));
  R("missing global", cuLibraryGetGlobal(&pointer, &bytes, library, "no_such"));
  CUlibrary owner = nullptr;
  R("kernel library", cuKernelGetLibrary(&owner, kernel));
  int blocks = 0;
  R("occupancy of kernel handle",
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<CUfunction>(kernel), 128, 0));
  R("unload", cuLibraryUnload(library));
  R("unload null", cuLibraryUnload(nullptr));
}

SECTION(linker) {
  start();
  CUlinkState state = nullptr;
  R("create", cuLinkCreate_v2(0, nullptr, nullptr, &state));
  const std::string part =
      header("7.0", "sm_80") + ".extern .func other();\n.visible .entry k() { call other; ret; }\n";
  const std::string rest = header("7.0", "sm_80") + ".visible .func other() { ret; }\n";
  R("add", cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(part.c_str()), part.size() + 1, "a", 0, nullptr,
                            nullptr));
  R("add broken", cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>("garbage"), 8, "b", 0, nullptr, nullptr));
  R("destroy", cuLinkDestroy(state));
  cuLinkCreate_v2(0, nullptr, nullptr, &state);
  cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(part.c_str()), part.size() + 1, "a", 0, nullptr, nullptr);
  void* image = nullptr;
  size_t size = 0;
  R("complete unresolved", cuLinkComplete(state, &image, &size));
  cuLinkDestroy(state);
  cuLinkCreate_v2(0, nullptr, nullptr, &state);
  cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(part.c_str()), part.size() + 1, "a", 0, nullptr, nullptr);
  cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(rest.c_str()), rest.size() + 1, "b", 0, nullptr, nullptr);
  R("complete", cuLinkComplete(state, &image, &size));
  CUmodule module = nullptr;
  R("load", cuModuleLoadData(&module, image));
  R("destroy 2", cuLinkDestroy(state));
  R("add missing file", (cuLinkCreate_v2(0, nullptr, nullptr, &state),
                         cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/nonexistent", 0, nullptr, nullptr)));
}

SECTION(launches) {
  start();
  CUmodule module = load(kBasicPtx);
  CUfunction empty = function(module, "empty");
  CUfunction store = function(module, "store_one");
  CUfunction bounded = function(module, "bounded");
  CUfunction shared = function(module, "shared_user");
  CUdeviceptr data = device_bytes(64);
  uint32_t value = 5;
  void* arguments[] = {&data, &value};
  R("plain", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  R("null function", cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  R("no parameters", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  R("grid 0", cuLaunchKernel(empty, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  R("block 0", cuLaunchKernel(empty, 1, 1, 1, 0, 1, 1, 0, nullptr, nullptr, nullptr));
  R("block 1025", cuLaunchKernel(empty, 1, 1, 1, 1025, 1, 1, 0, nullptr, nullptr, nullptr));
  R("block 32x64", cuLaunchKernel(empty, 1, 1, 1, 32, 64, 1, 0, nullptr, nullptr, nullptr));
  R("block z 65", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 65, 0, nullptr, nullptr, nullptr));
  R("grid y 65536", cuLaunchKernel(empty, 1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  R("grid z 65536", cuLaunchKernel(empty, 1, 1, 65536, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  R("grid x 2^31", cuLaunchKernel(empty, 0x80000000u, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CUdeviceptr* out = &data;
  void* bounded_arguments[] = {out};
  R("bounded 65", cuLaunchKernel(bounded, 1, 1, 1, 65, 1, 1, 0, nullptr, bounded_arguments, nullptr));
  R("shared 48k", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 48 << 10, nullptr, nullptr, nullptr));
  R("shared 48k+1", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, (48 << 10) + 1, nullptr, nullptr, nullptr));
  R("shared static+dynamic", cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, 48 << 10, nullptr, bounded_arguments, nullptr));
  char buffer[16] = {};
  std::memcpy(buffer, &data, 8);
  std::memcpy(buffer + 8, &value, 4);
  size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  R("extra", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  R("extra and parameters", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, extra));
  size = 16;
  R("extra larger", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  size = 8;
  R("extra smaller", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  R("cooperative", cuLaunchCooperativeKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr));
  R("cooperative too many", cuLaunchCooperativeKernel(empty, 1000000, 1, 1, 1, 1, 1, 0, nullptr, nullptr));
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  R("ex", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  R("ex null config", cuLaunchKernelEx(nullptr, empty, nullptr, nullptr));
  CUlaunchAttribute attribute = {};
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  R("ex ignore", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = -1;
  R("ex priority", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  R("ex cooperative", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  R("ex programmatic", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  R("ex cluster not dividing", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  config.gridDimX = 4;
  R("ex cluster", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.value.clusterDim = {16, 1, 1};
  config.gridDimX = 16;
  R("ex cluster 16", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.value.clusterDim = {0, 0, 0};
  R("ex cluster 0", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  attribute.id = static_cast<CUlaunchAttributeID>(77);
  R("ex unknown attribute", cuLaunchKernelEx(&config, empty, nullptr, nullptr));
  R("legacy stream handle", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, nullptr, nullptr));
  R("per thread handle", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, nullptr, nullptr));
  R("sync", cuCtxSynchronize());
}

SECTION(fault_illegal_address) {
  start();
  CUmodule module = load(kBasicPtx);
  CUfunction store = function(module, "store_one");
  CUstream stream = new_stream();
  CUevent event = nullptr;
  cuEventCreate(&event, 0);
  CUdeviceptr live = device_bytes(64), bad = 0x10;
  uint32_t value = 5;
  void* arguments[] = {&bad, &value};
  R("launch", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  R("record", cuEventRecord(event, stream));
  R("stream sync", cuStreamSynchronize(stream));
  R("stream sync again", cuStreamSynchronize(stream));
  R("stream query", cuStreamQuery(stream));
  R("event query", cuEventQuery(event));
  R("event sync", cuEventSynchronize(event));
  R("ctx sync", cuCtxSynchronize());
  CUdeviceptr pointer = 0;
  R("alloc", cuMemAlloc_v2(&pointer, 64));
  R("free", cuMemFree_v2(live));
  R("launch after", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  R("copy", cuMemcpyHtoD_v2(live, &value, 4));
  R("record after", cuEventRecord(event, stream));
  R("module load", cuModuleLoadData(&module, kBasicPtx));
  CUfunction found = nullptr;
  R("get function", cuModuleGetFunction(&found, module, "empty"));
  CUcontext context = nullptr;
  R("get current", cuCtxGetCurrent(&context));
  CUdevice device = 0;
  R("get device", cuCtxGetDevice(&device));
  size_t free_bytes = 0, total = 0;
  R("mem info", cuMemGetInfo_v2(&free_bytes, &total));
  int attribute = 0;
  R("device attribute", cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  R("function attribute", cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, store));
  CUstream made = nullptr;
  R("stream create", cuStreamCreate(&made, 0));
  R("event create", cuEventCreate(&event, 0));
  void* host = nullptr;
  R("host alloc", cuMemHostAlloc(&host, 64, 0));
  CUmemorytype type = static_cast<CUmemorytype>(0);
  R("pointer attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, live));
  CUmemAllocationProp property = {};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  R("mem create", cuMemCreate(&handle, 2 << 20, &property, 0));
  R("stream destroy", cuStreamDestroy_v2(stream));
  R("event destroy", cuEventDestroy_v2(event));
  R("module unload", cuModuleUnload(module));
  CUcontext other = nullptr;
  R("new context", cuCtxCreate_v2(&other, 0, 0));
  R("alloc in new context", cuMemAlloc_v2(&pointer, 64));
  cuCtxPopCurrent_v2(&other);
  R("primary release", cuDevicePrimaryCtxRelease_v2(0));
  R("primary retain", cuDevicePrimaryCtxRetain(&context, 0));
  cuCtxSetCurrent(context);
  R("alloc after renewal", cuMemAlloc_v2(&pointer, 64));
}

SECTION(fault_trap) {
  start();
  CUfunction trap = function(load(kBasicPtx), "trap_now");
  R("launch", cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  R("sync", cuCtxSynchronize());
}

SECTION(fault_misaligned) {
  start();
  CUfunction store = function(load(kBasicPtx), "store_one");
  CUdeviceptr data = device_bytes(64) + 1;
  uint32_t value = 5;
  void* arguments[] = {&data, &value};
  R("launch", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  R("sync", cuCtxSynchronize());
}

SECTION(fault_pageable) {
  start();
  CUfunction store = function(load(kBasicPtx), "store_one");
  static uint32_t host_word;
  CUdeviceptr data = reinterpret_cast<CUdeviceptr>(&host_word);
  uint32_t value = 5;
  void* arguments[] = {&data, &value};
  R("launch", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  R("sync", cuCtxSynchronize());
}
