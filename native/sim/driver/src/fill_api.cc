// SPDX-License-Identifier: Apache-2.0
// The memset family, and stream memory operations.
#include "api.h"
#include "copy.h"
#include "device.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height,
              CUstream handle) {
  return api([&] {
    Stream& stream = stream_of(handle);
    if (width == 0 || height == 0) return;
    require(to % element == 0 && (height == 1 || (pitch >= width * element && pitch % element == 0)));
    device_side(to, (height - 1) * pitch + width * element, stream.context().device(), true);
    submit(stream, std::make_shared<FillTask>(to, pitch, value, element, width, height));
  });
}

// The host does not wait for a memset, synchronous by name or not.
constexpr CUstream kDefault = nullptr;

constexpr size_t kMostOperations = 256;

CUstreamBatchMemOpParams checked(const CUstreamBatchMemOpParams& operation, const Device& device) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
      const size_t size = operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
      require(operation.writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT);
      require(operation.writeValue.address % size == 0);
      device_side(operation.writeValue.address, size, device, true);
      return operation;
    }
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
      const size_t size = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8;
      constexpr unsigned kKnown = 3u | CU_STREAM_WAIT_VALUE_FLUSH;
      require((operation.waitValue.flags & ~kKnown) == 0);
      if ((operation.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) fail_unsupported("CU_STREAM_WAIT_VALUE_FLUSH");
      require(operation.waitValue.address % size == 0);
      device_side(operation.waitValue.address, size, device, false);
      return operation;
    }
    case CU_STREAM_MEM_OP_BARRIER:
      return operation;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      fail_unsupported("CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES");
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

CUresult operate(CUstream handle, const CUstreamBatchMemOpParams* list, size_t count) {
  return api([&] {
    Stream& stream = stream_of(handle);
    require(count <= kMostOperations && (count == 0 || list != nullptr));
    std::vector<CUstreamBatchMemOpParams> operations;
    for (size_t i = 0; i < count; ++i) operations.push_back(checked(list[i], stream.context().device()));
    if (!operations.empty()) submit(stream, std::make_shared<MemoryOperationTask>(std::move(operations)));
  });
}

CUstreamBatchMemOpParams write_of(CUstreamBatchMemOpType type, CUdeviceptr where, cuuint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams operation = {};
  operation.writeValue.operation = type;
  operation.writeValue.address = where;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return operation;
}

CUstreamBatchMemOpParams wait_of(CUstreamBatchMemOpType type, CUdeviceptr where, cuuint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams operation = {};
  operation.waitValue.operation = type;
  operation.waitValue.address = where;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return operation;
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) { return fill(to, n, value, 1, n, 1, kDefault); }
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return fill(to, 2 * n, value, 2, n, 1, kDefault);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t n) {
  return fill(to, 4 * n, value, 4, n, 1, kDefault);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return fill(to, pitch, value, 1, width, height, kDefault);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return fill(to, pitch, value, 2, width, height, kDefault);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
  return fill(to, pitch, value, 4, width, height, kDefault);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return fill(to, n, value, 1, n, 1, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return fill(to, 2 * n, value, 2, n, 1, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
  return fill(to, 4 * n, value, 4, n, 1, stream);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  return fill(to, pitch, value, 1, width, height, stream);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
  return fill(to, pitch, value, 2, width, height, stream);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
  return fill(to, pitch, value, 4, width, height, stream);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  const auto operation = write_of(CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
  return operate(stream, &operation, 1);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  const auto operation = write_of(CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
  return operate(stream, &operation, 1);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  const auto operation = wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
  return operate(stream, &operation, 1);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  const auto operation = wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
  return operate(stream, &operation, 1);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return operate(stream, paramArray, count);
}
