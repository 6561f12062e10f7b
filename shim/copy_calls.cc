// SPDX-License-Identifier: Apache-2.0
// Copies and fills. An address may be a host pointer where the driver allows
// one: the directory has nothing to say about such addresses.
#include <algorithm>

#include "copies.h"
#include "driver.h"
#include "order.h"

namespace tessera::shim {

CUdeviceptr judged(CUdeviceptr address, uint64_t bytes) {
  if (bytes == 0 || !world().memory.in_slot(address) || !runtime().active()) return address;
  const std::lock_guard lock(world().mutex);
  return world().memory.overruns(address, bytes) ? 0 : address;
}

}  // namespace tessera::shim

using namespace tessera::shim;

namespace {

/// The bytes from the first to the last of `rows` x `slices`, or none for arrays.
void add_box(std::vector<Range>& ranges, CUmemorytype type, const void* host, CUdeviceptr device, uint64_t x,
             uint64_t y, uint64_t z, uint64_t pitch, uint64_t height, uint64_t width, uint64_t rows, uint64_t slices) {
  if (type == CU_MEMORYTYPE_ARRAY || width == 0 || rows == 0 || slices == 0) return;
  pitch = std::max(pitch, width);
  const uint64_t slice = pitch * std::max(height, rows);
  const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  const uint64_t begin = base + z * slice + y * pitch + x;
  ranges.push_back({begin, begin + (slices - 1) * slice + (rows - 1) * pitch + width});
}

Footprint box_footprint() {
  Footprint footprint;
  footprint.may_keep = true;  // what lies between the rows stays as it was
  return footprint;
}

Footprint footprint_2d(const CUDA_MEMCPY2D* copy) {
  Footprint footprint = box_footprint();
  if (copy == nullptr) return footprint;
  add_box(footprint.reads, copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY, 0,
          copy->srcPitch, 0, copy->WidthInBytes, copy->Height, 1);
  add_box(footprint.writes, copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY, 0,
          copy->dstPitch, 0, copy->WidthInBytes, copy->Height, 1);
  return footprint;
}

template <class Copy>
Footprint footprint_3d(const Copy* copy) {
  Footprint footprint = box_footprint();
  if (copy == nullptr) return footprint;
  add_box(footprint.reads, copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
          copy->srcZ, copy->srcPitch, copy->srcHeight, copy->WidthInBytes, copy->Height, copy->Depth);
  add_box(footprint.writes, copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY,
          copy->dstZ, copy->dstPitch, copy->dstHeight, copy->WidthInBytes, copy->Height, copy->Depth);
  return footprint;
}

Footprint footprint_of_rows(CUdeviceptr to, uint64_t pitch, uint64_t width, uint64_t rows) {
  Footprint footprint = box_footprint();
  add_box(footprint.writes, CU_MEMORYTYPE_DEVICE, nullptr, to, 0, 0, 0, pitch, 0, width, rows, 1);
  return footprint;
}

uint64_t bits(const void* host) { return reinterpret_cast<uint64_t>(host); }

template <class Element>
CUdeviceptr judged_elements(CUdeviceptr address, uint64_t count) {
  return judged(address, count > UINT64_MAX / sizeof(Element) ? UINT64_MAX : count * sizeof(Element));
}

CUdeviceptr judged_rows(CUdeviceptr address, uint64_t pitch, uint64_t width, uint64_t rows) {
  return width == 0 || rows == 0 ? address : judged(address, (rows - 1) * std::max(pitch, width) + width);
}

/// The copy as it is, or with null for what leaves its allocation.
template <class Copy, class Describe>
Copy judged_box(const Copy& copy, Describe&& describe) {
  Copy result = copy;
  const Footprint footprint = describe(&copy);
  for (const Range& range : footprint.reads) {
    if (judged(range.begin, range.size()) == 0) result.srcDevice = 0;
  }
  for (const Range& range : footprint.writes) {
    if (judged(range.begin, range.size()) == 0) result.dstDevice = 0;
  }
  return result;
}

}  // namespace

// One macro a signature. `complete` is for calls that may return only when they are done: of those with Async in their
// names too, all that may meet pageable memory.

#define TESSERA_COPY(symbol, per_thread)                                                         \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, CUdeviceptr from, size_t bytes) { \
    to = judged(to, bytes), from = judged(from, bytes);                                          \
    return complete(                                                                             \
        nullptr, per_thread, [&] { return copying(to, from, bytes); },                           \
        [&] { return driver().symbol(to, from, bytes); });                                       \
  }
TESSERA_COPY(cuMemcpy, false)
TESSERA_COPY(cuMemcpy_ptds, true)
TESSERA_COPY(cuMemcpyDtoD_v2, false)
TESSERA_COPY(cuMemcpyDtoD_v2_ptds, true)

#define TESSERA_COPY_ASYNC(symbol, how, per_thread)                                                               \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { \
    to = judged(to, bytes), from = judged(from, bytes);                                                           \
    return how(                                                                                                   \
        stream, per_thread, [&] { return copying(to, from, bytes); },                                             \
        [&] { return driver().symbol(to, from, bytes, stream); });                                                \
  }
TESSERA_COPY_ASYNC(cuMemcpyAsync, complete, false)
TESSERA_COPY_ASYNC(cuMemcpyAsync_ptsz, complete, true)
TESSERA_COPY_ASYNC(cuMemcpyDtoDAsync_v2, enqueue, false)
TESSERA_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, enqueue, true)

#define TESSERA_COPY_PEER(symbol, per_thread)                                                          \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, \
                                               CUcontext from_context, size_t bytes) {                 \
    to = judged(to, bytes), from = judged(from, bytes);                                                \
    return complete(                                                                                   \
        nullptr, per_thread, [&] { return copying(to, from, bytes); },                                 \
        [&] { return driver().symbol(to, to_context, from, from_context, bytes); });                   \
  }
TESSERA_COPY_PEER(cuMemcpyPeer, false)
TESSERA_COPY_PEER(cuMemcpyPeer_ptds, true)

#define TESSERA_COPY_PEER_ASYNC(symbol, per_thread)                                                     \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,  \
                                               CUcontext from_context, size_t bytes, CUstream stream) { \
    to = judged(to, bytes), from = judged(from, bytes);                                                 \
    return enqueue(                                                                                     \
        stream, per_thread, [&] { return copying(to, from, bytes); },                                   \
        [&] { return driver().symbol(to, to_context, from, from_context, bytes, stream); });            \
  }
TESSERA_COPY_PEER_ASYNC(cuMemcpyPeerAsync, false)
TESSERA_COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz, true)

#define TESSERA_COPY_TO_DEVICE(symbol, per_thread)                                               \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, const void* from, size_t bytes) { \
    to = judged(to, bytes);                                                                      \
    return complete(                                                                             \
        nullptr, per_thread, [&] { return copying(to, bits(from), bytes); },                     \
        [&] { return driver().symbol(to, from, bytes); });                                       \
  }
TESSERA_COPY_TO_DEVICE(cuMemcpyHtoD_v2, false)
TESSERA_COPY_TO_DEVICE(cuMemcpyHtoD_v2_ptds, true)

#define TESSERA_COPY_TO_DEVICE_ASYNC(symbol, per_thread)                                                          \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) { \
    to = judged(to, bytes);                                                                                       \
    return complete(                                                                                              \
        stream, per_thread, [&] { return copying(to, bits(from), bytes); },                                       \
        [&] { return driver().symbol(to, from, bytes, stream); });                                                \
  }
TESSERA_COPY_TO_DEVICE_ASYNC(cuMemcpyHtoDAsync_v2, false)
TESSERA_COPY_TO_DEVICE_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, true)

#define TESSERA_COPY_TO_HOST(symbol, per_thread)                                           \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(void* to, CUdeviceptr from, size_t bytes) { \
    from = judged(from, bytes);                                                            \
    return complete(                                                                       \
        nullptr, per_thread, [&] { return copying(bits(to), from, bytes); },               \
        [&] { return driver().symbol(to, from, bytes); });                                 \
  }
TESSERA_COPY_TO_HOST(cuMemcpyDtoH_v2, false)
TESSERA_COPY_TO_HOST(cuMemcpyDtoH_v2_ptds, true)

#define TESSERA_COPY_TO_HOST_ASYNC(symbol, per_thread)                                                      \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(void* to, CUdeviceptr from, size_t bytes, CUstream stream) { \
    from = judged(from, bytes);                                                                             \
    return complete(                                                                                        \
        stream, per_thread, [&] { return copying(bits(to), from, bytes); },                                 \
        [&] { return driver().symbol(to, from, bytes, stream); });                                          \
  }
TESSERA_COPY_TO_HOST_ASYNC(cuMemcpyDtoHAsync_v2, false)
TESSERA_COPY_TO_HOST_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, true)

#define TESSERA_COPY_TO_ARRAY(symbol, per_thread)                                                           \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) { \
    from = judged(from, bytes);                                                                             \
    return complete(                                                                                        \
        nullptr, per_thread, [&] { return reading(from, bytes); },                                          \
        [&] { return driver().symbol(to, offset, from, bytes); });                                          \
  }
TESSERA_COPY_TO_ARRAY(cuMemcpyDtoA_v2, false)
TESSERA_COPY_TO_ARRAY(cuMemcpyDtoA_v2_ptds, true)

#define TESSERA_COPY_FROM_ARRAY(symbol, per_thread)                                                         \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) { \
    to = judged(to, bytes);                                                                                 \
    return complete(                                                                                        \
        nullptr, per_thread, [&] { return writing(to, bytes); },                                            \
        [&] { return driver().symbol(to, from, offset, bytes); });                                          \
  }
TESSERA_COPY_FROM_ARRAY(cuMemcpyAtoD_v2, false)
TESSERA_COPY_FROM_ARRAY(cuMemcpyAtoD_v2_ptds, true)

#define TESSERA_COPY_HOST_TO_ARRAY(symbol, per_thread)                                                       \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUarray to, size_t offset, const void* from, size_t bytes) {  \
    return complete(nullptr, per_thread, nothing, [&] { return driver().symbol(to, offset, from, bytes); }); \
  }
TESSERA_COPY_HOST_TO_ARRAY(cuMemcpyHtoA_v2, false)
TESSERA_COPY_HOST_TO_ARRAY(cuMemcpyHtoA_v2_ptds, true)

#define TESSERA_COPY_HOST_TO_ARRAY_ASYNC(symbol, per_thread)                                                        \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUarray to, size_t offset, const void* from, size_t bytes,           \
                                               CUstream stream) {                                                   \
    return complete(stream, per_thread, nothing, [&] { return driver().symbol(to, offset, from, bytes, stream); }); \
  }
TESSERA_COPY_HOST_TO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2, false)
TESSERA_COPY_HOST_TO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2_ptsz, true)

#define TESSERA_COPY_ARRAY_TO_HOST(symbol, per_thread)                                                       \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(void* to, CUarray from, size_t offset, size_t bytes) {        \
    return complete(nullptr, per_thread, nothing, [&] { return driver().symbol(to, from, offset, bytes); }); \
  }
TESSERA_COPY_ARRAY_TO_HOST(cuMemcpyAtoH_v2, false)
TESSERA_COPY_ARRAY_TO_HOST(cuMemcpyAtoH_v2_ptds, true)

#define TESSERA_COPY_ARRAY_TO_HOST_ASYNC(symbol, per_thread)                                                           \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) { \
    return complete(stream, per_thread, nothing, [&] { return driver().symbol(to, from, offset, bytes, stream); });    \
  }
TESSERA_COPY_ARRAY_TO_HOST_ASYNC(cuMemcpyAtoHAsync_v2, false)
TESSERA_COPY_ARRAY_TO_HOST_ASYNC(cuMemcpyAtoHAsync_v2_ptsz, true)

#define TESSERA_COPY_ARRAYS(symbol, per_thread)                                                                \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUarray to, size_t to_offset, CUarray from, size_t from_offset, \
                                               size_t bytes) {                                                 \
    return complete(nullptr, per_thread, nothing,                                                              \
                    [&] { return driver().symbol(to, to_offset, from, from_offset, bytes); });                 \
  }
TESSERA_COPY_ARRAYS(cuMemcpyAtoA_v2, false)
TESSERA_COPY_ARRAYS(cuMemcpyAtoA_v2_ptds, true)

#define TESSERA_COPY_BOX(symbol, Parameters, footprint, per_thread)                                               \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(const Parameters* copy) {                                          \
    if (copy == nullptr) return driver().symbol(copy);                                                            \
    const Parameters judged_copy = judged_box(*copy, [](const Parameters* box) { return footprint(box); });       \
    copy = &judged_copy;                                                                                          \
    return complete(nullptr, per_thread, [&] { return footprint(copy); }, [&] { return driver().symbol(copy); }); \
  }
TESSERA_COPY_BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, footprint_2d, false)
TESSERA_COPY_BOX(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, footprint_2d, true)
TESSERA_COPY_BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, footprint_2d, false)
TESSERA_COPY_BOX(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, footprint_2d, true)
TESSERA_COPY_BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, footprint_3d, false)
TESSERA_COPY_BOX(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, footprint_3d, true)
TESSERA_COPY_BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, footprint_3d, false)
TESSERA_COPY_BOX(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, footprint_3d, true)

#define TESSERA_COPY_BOX_ASYNC(symbol, Parameters, footprint, per_thread)                                    \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(const Parameters* copy, CUstream stream) {                    \
    if (copy == nullptr) return driver().symbol(copy, stream);                                               \
    const Parameters judged_copy = judged_box(*copy, [](const Parameters* box) { return footprint(box); });  \
    copy = &judged_copy;                                                                                     \
    return complete(                                                                                         \
        stream, per_thread, [&] { return footprint(copy); }, [&] { return driver().symbol(copy, stream); }); \
  }
TESSERA_COPY_BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, footprint_2d, false)
TESSERA_COPY_BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, footprint_2d, true)
TESSERA_COPY_BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, footprint_3d, false)
TESSERA_COPY_BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, footprint_3d, true)
TESSERA_COPY_BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, footprint_3d, false)
TESSERA_COPY_BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, footprint_3d, true)

#define TESSERA_FILL(symbol, Element, per_thread)                                             \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, Element value, size_t count) { \
    to = judged_elements<Element>(to, count);                                                 \
    return complete(                                                                          \
        nullptr, per_thread, [&] { return writing(to, count * sizeof(Element)); },            \
        [&] { return driver().symbol(to, value, count); });                                   \
  }
TESSERA_FILL(cuMemsetD8_v2, unsigned char, false)
TESSERA_FILL(cuMemsetD8_v2_ptds, unsigned char, true)
TESSERA_FILL(cuMemsetD16_v2, unsigned short, false)
TESSERA_FILL(cuMemsetD16_v2_ptds, unsigned short, true)
TESSERA_FILL(cuMemsetD32_v2, unsigned int, false)
TESSERA_FILL(cuMemsetD32_v2_ptds, unsigned int, true)

#define TESSERA_FILL_ASYNC(symbol, Element, per_thread)                                                        \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, Element value, size_t count, CUstream stream) { \
    to = judged_elements<Element>(to, count);                                                                  \
    return enqueue(                                                                                            \
        stream, per_thread, [&] { return writing(to, count * sizeof(Element)); },                              \
        [&] { return driver().symbol(to, value, count, stream); });                                            \
  }
TESSERA_FILL_ASYNC(cuMemsetD8Async, unsigned char, false)
TESSERA_FILL_ASYNC(cuMemsetD8Async_ptsz, unsigned char, true)
TESSERA_FILL_ASYNC(cuMemsetD16Async, unsigned short, false)
TESSERA_FILL_ASYNC(cuMemsetD16Async_ptsz, unsigned short, true)
TESSERA_FILL_ASYNC(cuMemsetD32Async, unsigned int, false)
TESSERA_FILL_ASYNC(cuMemsetD32Async_ptsz, unsigned int, true)

#define TESSERA_FILL_ROWS(symbol, Element, per_thread)                                                      \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, size_t pitch, Element value, size_t width,   \
                                               size_t height) {                                             \
    to = judged_rows(to, pitch, width * sizeof(Element), height);                                           \
    return complete(                                                                                        \
        nullptr, per_thread, [&] { return footprint_of_rows(to, pitch, width * sizeof(Element), height); }, \
        [&] { return driver().symbol(to, pitch, value, width, height); });                                  \
  }
TESSERA_FILL_ROWS(cuMemsetD2D8_v2, unsigned char, false)
TESSERA_FILL_ROWS(cuMemsetD2D8_v2_ptds, unsigned char, true)
TESSERA_FILL_ROWS(cuMemsetD2D16_v2, unsigned short, false)
TESSERA_FILL_ROWS(cuMemsetD2D16_v2_ptds, unsigned short, true)
TESSERA_FILL_ROWS(cuMemsetD2D32_v2, unsigned int, false)
TESSERA_FILL_ROWS(cuMemsetD2D32_v2_ptds, unsigned int, true)

#define TESSERA_FILL_ROWS_ASYNC(symbol, Element, per_thread)                                               \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr to, size_t pitch, Element value, size_t width,  \
                                               size_t height, CUstream stream) {                           \
    to = judged_rows(to, pitch, width * sizeof(Element), height);                                          \
    return enqueue(                                                                                        \
        stream, per_thread, [&] { return footprint_of_rows(to, pitch, width * sizeof(Element), height); }, \
        [&] { return driver().symbol(to, pitch, value, width, height, stream); });                         \
  }
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D8Async, unsigned char, false)
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char, true)
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D16Async, unsigned short, false)
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short, true)
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D32Async, unsigned int, false)
TESSERA_FILL_ROWS_ASYNC(cuMemsetD2D32Async_ptsz, unsigned int, true)
