// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "conformance.h"

using namespace conformance;

namespace {

double seconds_of(void (*body)()) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A stream held by a wait on a host word, so that what comes behind it is still pending.
struct Gate {
  uint32_t* word = nullptr;
  Gate() {
    cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, 0);
    *word = 0;
  }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word); }
  void hold(CUstream stream) { R("hold", cuStreamWaitValue32_v2(stream, address(), 1, CU_STREAM_WAIT_VALUE_GEQ)); }
  void open() { reinterpret_cast<std::atomic<uint32_t>*>(word)->store(1); }
  void open_later() {
    std::thread([this] {
      usleep(100000);
      open();
    }).detach();
  }
};

}  // namespace

SECTION(streams) {
  start();
  CUstream stream = nullptr;
  R("bad flags", cuStreamCreate(&stream, 0x10));
  R("null out", cuStreamCreate(nullptr, 0));
  R("priority", cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  int priority = 9;
  cuStreamGetPriority(stream, &priority);
  number("priority clamped", priority);
  cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 100);
  cuStreamGetPriority(stream, &priority);
  number("priority clamped low", priority);
  unsigned flags = 99;
  R("flags", cuStreamGetFlags(stream, &flags));
  number("flags value", flags);
  R("flags null stream", cuStreamGetFlags(nullptr, &flags));
  number("flags null stream value", flags);
  R("flags per thread", cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
  number("flags per thread value", flags);
  CUcontext context = nullptr;
  R("ctx", cuStreamGetCtx(stream, &context));
  R("ctx null stream", cuStreamGetCtx(nullptr, &context));
  CUdevice device = -1;
  R("device", cuStreamGetDevice(stream, &device));
  unsigned long long id = 0, second = 0;
  R("id", cuStreamGetId(stream, &id));
  R("id null", cuStreamGetId(nullptr, &second));
  R("destroy", cuStreamDestroy_v2(stream));
  R("destroy null", cuStreamDestroy_v2(nullptr));
  R("destroy legacy", cuStreamDestroy_v2(CU_STREAM_LEGACY));
  R("query null", cuStreamQuery(nullptr));
  CUstream first = new_stream(), other = new_stream();
  CUstreamAttrValue value = {};
  for (int attribute : {1, 3, 6, 7, 8, 9, 10}) {
    const CUresult code = cuStreamGetAttribute(first, static_cast<CUstreamAttrID>(attribute), &value);
    result_number(("attribute " + std::to_string(attribute)).c_str(), code, value.priority);
  }
  value.syncPolicy = CU_SYNC_POLICY_SPIN;
  R("set sync policy", cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  R("copy attributes", cuStreamCopyAttributes(other, first));
  R("attach", cuStreamAttachMemAsync(first, 0, 0, CU_MEM_ATTACH_GLOBAL));
}

SECTION(pending) {
  start();
  static Gate gate;
  CUstream stream = new_stream();
  gate.hold(stream);
  R("query", cuStreamQuery(stream));
  CUevent event = nullptr;
  cuEventCreate(&event, 0);
  R("event unrecorded", cuEventQuery(event));
  R("event unrecorded sync", cuEventSynchronize(event));
  R("record", cuEventRecord(event, stream));
  R("event query", cuEventQuery(event));
  R("other stream", cuStreamQuery(new_stream()));
  static char host[1 << 20];
  const CUdeviceptr data = device_bytes(sizeof(host));
  R("small pageable copy behind gate", cuMemcpyHtoDAsync_v2(data, host, 64, stream));
  gate.open_later();
  static CUstream held = stream;
  static CUdeviceptr target = data;
  static CUresult code;
  const double waited = seconds_of([] { code = cuMemcpyHtoDAsync_v2(target, host, sizeof(host), held); });
  R("large pageable copy behind gate", code);
  number("large pageable copy waited", waited > 0.05);
  R("sync", cuStreamSynchronize(stream));
  R("event after", cuEventQuery(event));
  float milliseconds = -1;
  R("elapsed self", cuEventElapsedTime(&milliseconds, event, event));
  CUevent plain = nullptr;
  cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING);
  R("elapsed unrecorded", cuEventElapsedTime(&milliseconds, event, plain));
  cuEventRecord(plain, stream);
  cuStreamSynchronize(stream);
  R("elapsed no timing", cuEventElapsedTime(&milliseconds, event, plain));
  R("elapsed null", cuEventElapsedTime(nullptr, event, event));
  R("event flags", cuEventCreate(&plain, 0x100));
  R("event destroy null", cuEventDestroy_v2(nullptr));
  R("event query null", cuEventQuery(nullptr));
}

SECTION(pending_elapsed) {
  start();
  static Gate gate;
  CUstream stream = new_stream();
  CUevent first = nullptr, second = nullptr;
  cuEventCreate(&first, 0);
  cuEventCreate(&second, 0);
  cuEventRecord(first, stream);
  gate.hold(stream);
  cuEventRecord(second, stream);
  float milliseconds = -1;
  R("elapsed pending", cuEventElapsedTime(&milliseconds, first, second));
  R("event destroy pending", cuEventDestroy_v2(second));
  R("stream destroy pending", cuStreamDestroy_v2(stream));
  gate.open();
  R("ctx sync", cuCtxSynchronize());
}

SECTION(default_stream) {
  start();
  static Gate gate;
  CUstream blocking = new_stream(CU_STREAM_DEFAULT), loose = new_stream();
  gate.hold(blocking);
  CUevent event = nullptr;
  cuEventCreate(&event, 0);
  R("record legacy", cuEventRecord(event, nullptr));
  R("legacy event waits for blocking stream", cuEventQuery(event));
  R("record loose", cuEventRecord(event, loose));
  usleep(20000);
  R("non-blocking stream does not wait", cuEventQuery(event));
  CUstream late = new_stream(CU_STREAM_DEFAULT);
  cuEventRecord(event, late);
  usleep(20000);
  R("later blocking stream waits for legacy", cuEventQuery(event));
  cuEventRecord(event, CU_STREAM_PER_THREAD);
  usleep(20000);
  R("per thread stream waits for legacy", cuEventQuery(event));
  R("legacy query", cuStreamQuery(nullptr));
  gate.open();
  R("sync", cuCtxSynchronize());
}

SECTION(default_stream_idle) {
  start();
  static Gate gate;
  CUstream blocking = new_stream(CU_STREAM_DEFAULT), second = new_stream(CU_STREAM_DEFAULT);
  gate.hold(blocking);
  R("legacy query with busy blocking stream", cuStreamQuery(nullptr));
  R("other blocking stream", cuStreamQuery(second));
  gate.open_later();
  R("legacy sync waits", cuStreamSynchronize(nullptr));
  R("blocking after", cuStreamQuery(blocking));
}

SECTION(mem_ops) {
  start();
  CUstream stream = new_stream();
  CUdeviceptr data = device_bytes(64);
  static uint32_t plain_host;
  R("write", cuStreamWriteValue32_v2(stream, data, 5, 0));
  R("write misaligned", cuStreamWriteValue32_v2(stream, data + 2, 5, 0));
  R("write pageable", cuStreamWriteValue32_v2(stream, reinterpret_cast<CUdeviceptr>(&plain_host), 5, 0));
  R("write unknown", cuStreamWriteValue32_v2(stream, 0x1234560, 5, 0));
  R("write flags", cuStreamWriteValue32_v2(stream, data, 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  R("write bad flags", cuStreamWriteValue32_v2(stream, data, 5, 0x80));
  R("write 64", cuStreamWriteValue64_v2(stream, data, 5, 0));
  R("write 64 misaligned", cuStreamWriteValue64_v2(stream, data + 4, 5, 0));
  R("wait geq", cuStreamWaitValue32_v2(stream, data, 5, CU_STREAM_WAIT_VALUE_GEQ));
  R("wait eq", cuStreamWaitValue32_v2(stream, data, 5, CU_STREAM_WAIT_VALUE_EQ));
  R("wait and", cuStreamWaitValue32_v2(stream, data, 4, CU_STREAM_WAIT_VALUE_AND));
  R("wait nor", cuStreamWaitValue32_v2(stream, data, 8, CU_STREAM_WAIT_VALUE_NOR));
  R("wait 64", cuStreamWaitValue64_v2(stream, data, 5, CU_STREAM_WAIT_VALUE_GEQ));
  R("wait flush", cuStreamWaitValue32_v2(stream, data, 5, CU_STREAM_WAIT_VALUE_FLUSH));
  R("wait bad flags", cuStreamWaitValue32_v2(stream, data, 5, 0x80));
  R("wait geq cyclic", (cuStreamWriteValue32_v2(stream, data, 2, 0),
                        cuStreamWaitValue32_v2(stream, data, 0xfffffff0u, CU_STREAM_WAIT_VALUE_GEQ)));
  R("legacy stream", cuStreamWriteValue32_v2(nullptr, data, 5, 0));
  R("null address", cuStreamWriteValue32_v2(stream, 0, 5, 0));
  CUstreamBatchMemOpParams operations[3] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = data;
  operations[0].writeValue.value = 9;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = data;
  operations[1].waitValue.value = 9;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  operations[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  R("batch", cuStreamBatchMemOp_v2(stream, 2, operations, 0));
  R("batch barrier", cuStreamBatchMemOp_v2(stream, 3, operations, 0));
  R("batch none", cuStreamBatchMemOp_v2(stream, 0, operations, 0));
  R("batch too many", cuStreamBatchMemOp_v2(stream, 257, operations, 0));
  operations[0].operation = static_cast<CUstreamBatchMemOpType>(99);
  R("batch unknown", cuStreamBatchMemOp_v2(stream, 1, operations, 0));
  R("sync", cuStreamSynchronize(stream));
}

SECTION(host_functions) {
  start();
  CUstream stream = new_stream();
  static CUresult inside[4];
  R("launch", cuLaunchHostFunc(
                  stream,
                  [](void* data) {
                    auto* results = static_cast<CUresult*>(data);
                    CUdeviceptr pointer = 0;
                    results[0] = cuMemAlloc_v2(&pointer, 16);
                    CUcontext context = nullptr;
                    results[1] = cuCtxGetCurrent(&context);
                    int count = 0;
                    results[2] = cuDeviceGetCount(&count);
                    results[3] = cuStreamQuery(nullptr);
                  },
                  inside));
  R("sync", cuStreamSynchronize(stream));
  R("alloc inside", inside[0]);
  R("current inside", inside[1]);
  R("count inside", inside[2]);
  R("query inside", inside[3]);
  R("null function", cuLaunchHostFunc(stream, nullptr, nullptr));
  static CUresult status = CUDA_ERROR_UNKNOWN;
  static bool same = false;
  static CUstream wanted = stream;
  R("callback", cuStreamAddCallback(
                    stream,
                    [](CUstream given, CUresult code, void*) {
                      status = code;
                      same = given == wanted;
                    },
                    nullptr, 0));
  R("callback flags", cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 1));
  R("callback null", cuStreamAddCallback(stream, nullptr, nullptr, 0));
  R("sync 2", cuStreamSynchronize(stream));
  R("callback status", status);
  number("callback stream", same);
}

SECTION(capture) {
  start();
  CUmodule module = load(kBasicPtx);
  CUfunction add = function(module, "add_one");
  CUdeviceptr data = device_bytes(4096);
  cuMemsetD8_v2(data, 0, 4096);
  void* arguments[] = {&data};
  CUstream stream = new_stream(), other = new_stream();
  CUevent event = nullptr;
  cuEventCreate(&event, 0);
  static uint32_t host[1024];
  CUgraph graph = nullptr;
  R("begin null stream", cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("end without begin", cuStreamEndCapture(stream, &graph));
  R("begin", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("begin twice", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureStatus status = static_cast<CUstreamCaptureStatus>(9);
  R("is capturing", cuStreamIsCapturing(stream, &status));
  number("status", status);
  R("launch", cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
  R("memset", cuMemsetD32Async(data + 128, 7, 8, stream));
  R("copy", cuMemcpyDtoDAsync_v2(data + 512, data, 64, stream));
  R("pageable copy", cuMemcpyDtoHAsync_v2(host, data, 64, stream));
  R("record", cuEventRecord(event, stream));
  R("fork", cuStreamWaitEvent(other, event, 0));
  R("other is capturing", cuStreamIsCapturing(other, &status));
  number("other status", status);
  R("launch other", cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, other, arguments, nullptr));
  CUevent back = nullptr;
  R("event create during", cuEventCreate(&back, 0));
  R("record other", cuEventRecord(back, other));
  R("join", cuStreamWaitEvent(stream, back, 0));
  R("host function", cuLaunchHostFunc(stream, [](void*) {}, nullptr));
  CUstreamCaptureStatus info_status = static_cast<CUstreamCaptureStatus>(9);
  cuuint64_t id = 0;
  CUgraph capturing = nullptr;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 99;
  R("info", cuStreamGetCaptureInfo_v2(stream, &info_status, &id, &capturing, &dependencies, &count));
  number("info dependencies", static_cast<long long>(count));
  R("end", cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  R("nodes", cuGraphGetNodes(graph, nullptr, &nodes));
  number("node count", static_cast<long long>(nodes));
  std::vector<CUgraphNode> all(nodes);
  cuGraphGetNodes(graph, all.data(), &nodes);
  std::string types;
  for (CUgraphNode node : all) {
    CUgraphNodeType type = static_cast<CUgraphNodeType>(99);
    cuGraphNodeGetType(node, &type);
    types += std::to_string(type) + " ";
  }
  line("node types", types);
  size_t roots = 0, edges = 0;
  cuGraphGetRootNodes(graph, nullptr, &roots);
  cuGraphGetEdges(graph, nullptr, nullptr, &edges);
  number("roots", static_cast<long long>(roots));
  number("edges", static_cast<long long>(edges));
  CUgraphExec exec = nullptr;
  R("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  R("launch graph", cuGraphLaunch(exec, stream));
  R("launch graph again", cuGraphLaunch(exec, stream));
  R("sync", cuStreamSynchronize(stream));
  cuMemcpyDtoH_v2(host, data, 4096);
  number("word 0", host[0]);
  number("word 32", host[32]);
  CUgraphExecUpdateResultInfo update = {};
  R("update", cuGraphExecUpdate_v2(exec, graph, &update));
  number("update result", update.result);
  R("destroy exec", cuGraphExecDestroy(exec));
  R("destroy graph", cuGraphDestroy(graph));
}

SECTION(capture_errors) {
  start();
  CUdeviceptr data = device_bytes(4096);
  static uint32_t host[16];
  CUstream stream = new_stream(), blocking = new_stream(CU_STREAM_DEFAULT);
  CUgraph graph = reinterpret_cast<CUgraph>(8);
  CUevent event = nullptr;
  cuEventCreate(&event, 0);
  R("begin", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr pointer = 0;
  R("alloc", cuMemAlloc_v2(&pointer, 64));
  R("query other", cuStreamQuery(blocking));
  R("event query", cuEventQuery(event));
  R("sync copy", cuMemcpyHtoD_v2(data, host, 64));
  CUstreamCaptureStatus status = static_cast<CUstreamCaptureStatus>(9);
  cuStreamIsCapturing(stream, &status);
  number("status after sync copy", status);
  R("end", cuStreamEndCapture(stream, &graph));
  R("begin 2", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("sync capturing", cuStreamSynchronize(stream));
  cuStreamIsCapturing(stream, &status);
  number("status after sync", status);
  R("launch after invalidation", cuMemsetD8Async(data, 0, 16, stream));
  R("end invalidated", cuStreamEndCapture(stream, &graph));
  number("graph null", graph == nullptr);
  R("usable after", cuMemsetD8Async(data, 0, 16, stream));
  R("begin 3", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("query capturing", cuStreamQuery(stream));
  cuStreamEndCapture(stream, &graph);
  R("begin blocking", cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("legacy memset during", cuMemsetD8Async(data, 0, 16, nullptr));
  cuStreamIsCapturing(blocking, &status);
  number("status after legacy", status);
  R("end 4", cuStreamEndCapture(blocking, &graph));
  R("begin relaxed", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  R("alloc relaxed", cuMemAlloc_v2(&pointer, 64));
  R("legacy copy relaxed", cuMemcpyHtoD_v2(data, host, 64));
  R("ctx sync relaxed", cuCtxSynchronize());
  cuStreamEndCapture(stream, &graph);
  R("begin 5", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  R("record", cuEventRecord(event, stream));
  R("event query captured", cuEventQuery(event));
  R("event sync captured", cuEventSynchronize(event));
  cuStreamIsCapturing(stream, &status);
  number("status after event query", status);
  CUstream side = new_stream();
  R("fork", cuStreamWaitEvent(side, event, 0));
  R("memset side", cuMemsetD8Async(data, 0, 16, side));
  R("end side", cuStreamEndCapture(side, &graph));
  R("end unjoined", cuStreamEndCapture(stream, &graph));
  R("begin 6", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  R("alloc async", cuMemAllocAsync(&pointer, 64, stream));
  R("free async", cuMemFreeAsync(pointer, stream));
  R("write value", cuStreamWriteValue32_v2(stream, data, 1, 0));
  R("end 6", cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  cuGraphGetNodes(graph, nullptr, &nodes);
  number("nodes 6", static_cast<long long>(nodes));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  R("exchange mode", cuThreadExchangeStreamCaptureMode(&mode));
  number("exchanged", mode);
}
