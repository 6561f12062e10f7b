// SPDX-License-Identifier: Apache-2.0
// Two- and three-dimensional copies, and batches.
#include "api.h"
#include "copy.h"
#include "device.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

struct Plane {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  uint64_t x, y, z, pitch, height;
};

CopySide side_of(const Plane& plane, const CUDA_MEMCPY3D& copy, const Device& device, bool write) {
  if (plane.type == CU_MEMORYTYPE_ARRAY) fail_unsupported("copies from and to CUDA arrays");
  const uint64_t pitch = plane.pitch != 0 ? plane.pitch : copy.WidthInBytes + plane.x;
  require(pitch >= copy.WidthInBytes + plane.x || (copy.Height == 1 && copy.Depth == 1 && plane.y == 0));
  const uint64_t rows = plane.height != 0 ? plane.height : copy.Height + plane.y;
  require(copy.Depth == 1 || rows >= copy.Height + plane.y);
  const uint64_t slice = pitch * rows;
  const uint64_t offset = plane.z * slice + plane.y * pitch + plane.x;
  const uint64_t span = (copy.Depth - 1) * slice + (copy.Height - 1) * pitch + copy.WidthInBytes;
  CopySide side;
  if (plane.type == CU_MEMORYTYPE_DEVICE) {
    side = device_side(plane.device + offset, span, device, write);
  } else {
    require(plane.type == CU_MEMORYTYPE_HOST || plane.type == CU_MEMORYTYPE_UNIFIED);
    const uint64_t base = plane.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(plane.host) : plane.device;
    require(base != 0);
    side = any_side(reinterpret_cast<const void*>(base + offset), span, device, write);
  }
  side.pitch = pitch;
  side.slice = slice;
  return side;
}

CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = flat.srcXInBytes;
  copy.srcY = flat.srcY;
  copy.srcMemoryType = flat.srcMemoryType;
  copy.srcHost = flat.srcHost;
  copy.srcDevice = flat.srcDevice;
  copy.srcArray = flat.srcArray;
  copy.srcPitch = flat.srcPitch;
  copy.dstXInBytes = flat.dstXInBytes;
  copy.dstY = flat.dstY;
  copy.dstMemoryType = flat.dstMemoryType;
  copy.dstHost = flat.dstHost;
  copy.dstDevice = flat.dstDevice;
  copy.dstArray = flat.dstArray;
  copy.dstPitch = flat.dstPitch;
  copy.WidthInBytes = flat.WidthInBytes;
  copy.Height = flat.Height;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER& peer) {
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = peer.srcXInBytes;
  copy.srcY = peer.srcY;
  copy.srcZ = peer.srcZ;
  copy.srcMemoryType = peer.srcMemoryType;
  copy.srcHost = peer.srcHost;
  copy.srcDevice = peer.srcDevice;
  copy.srcArray = peer.srcArray;
  copy.srcPitch = peer.srcPitch;
  copy.srcHeight = peer.srcHeight;
  copy.dstXInBytes = peer.dstXInBytes;
  copy.dstY = peer.dstY;
  copy.dstZ = peer.dstZ;
  copy.dstMemoryType = peer.dstMemoryType;
  copy.dstHost = peer.dstHost;
  copy.dstDevice = peer.dstDevice;
  copy.dstArray = peer.dstArray;
  copy.dstPitch = peer.dstPitch;
  copy.dstHeight = peer.dstHeight;
  copy.WidthInBytes = peer.WidthInBytes;
  copy.Height = peer.Height;
  copy.Depth = peer.Depth;
  return copy;
}

/// One side of a copy between pointers: as bytes, and packed where a length is 0.
void plane_of(const CUmemcpy3DOperand& operand, CUmemorytype* type, CUdeviceptr* address, size_t* pitch,
              size_t* height) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) fail_unsupported("copies from and to CUDA arrays");
  require(operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER);
  *type = CU_MEMORYTYPE_UNIFIED;
  *address = operand.op.ptr.ptr;
  *pitch = operand.op.ptr.rowLength;
  *height = operand.op.ptr.layerHeight;
}

CUDA_MEMCPY3D from_batch(const CUDA_MEMCPY3D_BATCH_OP& operation) {
  CUDA_MEMCPY3D copy = {};
  copy.WidthInBytes = operation.extent.width;
  copy.Height = operation.extent.height;
  copy.Depth = operation.extent.depth;
  require(copy.WidthInBytes != 0 && copy.Height != 0 && copy.Depth != 0);
  require(operation.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
          operation.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
  plane_of(operation.src, &copy.srcMemoryType, &copy.srcDevice, &copy.srcPitch, &copy.srcHeight);
  plane_of(operation.dst, &copy.dstMemoryType, &copy.dstDevice, &copy.dstPitch, &copy.dstHeight);
  return copy;
}

// As documented, the host waits unless both sides are on devices.
bool waits(const CopyTask& task) { return task.destination.device < 0 || task.source.device < 0; }

void run_shape(CUstream handle, const CUDA_MEMCPY3D& description, bool synchronous) {
  Stream& stream = stream_of(handle);
  std::shared_ptr<CopyTask> task = copy_of(description, stream.context().device());
  if (task == nullptr) return;
  const bool host_waits = synchronous && waits(*task);
  submit_copy(stream, std::move(task), host_waits);
}

template <class Description, class Convert>
CUresult shape_call(const Description* description, CUstream handle, bool synchronous, Convert convert) {
  return api([&] {
    require(description != nullptr);
    run_shape(handle, convert(*description), synchronous);
  });
}

const CUDA_MEMCPY3D& as_given(const CUDA_MEMCPY3D& copy) { return copy; }

}  // namespace

std::shared_ptr<CopyTask> copy_of(const CUDA_MEMCPY3D& copy, const Device& device) {
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return nullptr;
  const CopySide source = side_of({copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                                   copy.srcZ, copy.srcPitch, copy.srcHeight},
                                  copy, device, false);
  const CopySide destination = side_of({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                                        copy.dstZ, copy.dstPitch, copy.dstHeight},
                                       copy, device, true);
  auto task = std::make_shared<CopyTask>(destination, source, copy.WidthInBytes, copy.Height, copy.Depth);
  task->description = copy;
  return task;
}

}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return shape_call(pCopy, nullptr, true, from_2d); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return shape_call(pCopy, nullptr, true, from_2d); }
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return shape_call(pCopy, nullptr, true, as_given); }
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) { return shape_call(pCopy, nullptr, true, from_peer); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return shape_call(pCopy, hStream, false, from_2d);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return shape_call(pCopy, hStream, false, as_given);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return shape_call(pCopy, hStream, false, from_peer);
}

// All source access orders are met by taking pageable sources at once.
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream) {
  if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr || attrs == nullptr ||
      attrsIdxs == nullptr || numAttrs == 0 || numAttrs > count || attrsIdxs[0] != 0 || hStream == nullptr ||
      hStream == CU_STREAM_LEGACY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult result = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
                                 CUstream hStream) {
  if (numOps == 0 || opList == nullptr || flags != 0 || hStream == nullptr || hStream == CU_STREAM_LEGACY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < numOps; ++i) {
    if (const CUresult result = shape_call(&opList[i], hStream, false, from_batch)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
                              CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}
