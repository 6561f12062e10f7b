// SPDX-License-Identifier: Apache-2.0
// Batches of copies: a batch takes its turn in its stream, its copies may come in any order. A source may be read
// out of the stream's order where the program says so, even before what the stream waits for: such a source has to
// be home before the call is made.
#include <algorithm>
#include <span>
#include <vector>

#include "copies.h"
#include "driver.h"
#include "order.h"

using namespace tessera::shim;

namespace {

/// A batch as the driver is to get it, and what it touches.
template <class Form>
struct Batch {
  Form form;
  Footprint footprint;
  std::vector<Range> early;  // sources that may be read before the stream has come to the batch

  void add(CUdeviceptr* to, CUdeviceptr* from, Range written, Range read, CUmemcpySrcAccessOrder order) {
    footprint.reads.push_back(read);
    footprint.writes.push_back(written);
    if (order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) early.push_back(read);
    if (judged(written.begin, written.size()) == 0) *to = 0;
    if (judged(read.begin, read.size()) == 0) *from = 0;
  }
};

struct Flat {
  std::vector<CUdeviceptr> to, from;
};

bool is_well_formed(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes, size_t count,
                    const CUmemcpyAttributes* attributes, const size_t* first, size_t kinds) {
  return to != nullptr && from != nullptr && sizes != nullptr && count != 0 && attributes != nullptr &&
         first != nullptr && kinds != 0 && kinds <= count && first[0] == 0 && std::is_sorted(first, first + kinds);
}

/// Attribute k is that of the copies from first[k] on.
Batch<Flat> flat(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes, size_t count,
                 const CUmemcpyAttributes* attributes, const size_t* first, size_t kinds) {
  Batch<Flat> batch{{{to, to + count}, {from, from + count}}, {}, {}};
  size_t kind = 0;
  for (size_t i = 0; i < count; ++i) {
    while (kind + 1 < kinds && first[kind + 1] <= i) ++kind;
    batch.add(&batch.form.to[i], &batch.form.from[i], {to[i], to[i] + sizes[i]}, {from[i], from[i] + sizes[i]},
              attributes[kind].srcAccessOrder);
  }
  return batch;
}

using Boxes = std::vector<CUDA_MEMCPY3D_BATCH_OP>;

bool is_pointer(const CUmemcpy3DOperand& operand) { return operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER; }

/// From the first to the last byte, of a copy between pointers: its elements are bytes.
Range range_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
  const auto& pointer = operand.op.ptr;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return {pointer.ptr, pointer.ptr};
  const size_t row = std::max(pointer.rowLength, extent.width);
  const size_t layer = row * std::max(pointer.layerHeight, extent.height);
  return {pointer.ptr, pointer.ptr + (extent.depth - 1) * layer + (extent.height - 1) * row + extent.width};
}

Batch<Boxes> boxes(const CUDA_MEMCPY3D_BATCH_OP* list, size_t count) {
  Batch<Boxes> batch{{list, list + count}, {}, {}};
  for (CUDA_MEMCPY3D_BATCH_OP& box : batch.form) {
    if (is_pointer(box.src) && is_pointer(box.dst)) {
      batch.add(&box.dst.op.ptr.ptr, &box.src.op.ptr.ptr, range_of(box.dst, box.extent), range_of(box.src, box.extent),
                box.srcAccessOrder);
    } else {  // how large an element is, the array's format says
      batch.footprint.everything = true;
    }
  }
  return batch;
}

bool is_elsewhere(std::span<const Range> ranges) {
  bool found = false;
  for (const Range& range : ranges) {
    world().directory.for_each(range, [&](Range, const tessera::memory::Replicas& replicas) {
      found = found || !replicas.valid_on(tessera::memory::kHome) || !replicas.touch.none();
    });
  }
  return found;
}

/// In the calling thread's own stream: the batch's may be waiting for something that this thread does later.
CUresult bring_home_now(const std::vector<Range>& ranges, CUstream stream) {
  if (ranges.empty() || world().calm() || is_capturing(stream)) return CUDA_SUCCESS;
  {
    const std::lock_guard lock(world().mutex);
    if (!is_elsewhere(ranges)) return CUDA_SUCCESS;
    Footprint footprint;
    footprint.reads = ranges;
    const CUresult ready = Coherence(world()).before_home(world().streams.get(CU_STREAM_PER_THREAD), footprint);
    if (ready != CUDA_SUCCESS) return ready;
  }
  return driver().cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

template <class Form, class Call>
CUresult enqueue_batch(Batch<Form>& batch, CUstream stream, bool per_thread, Call&& call) {
  // Should the driver refuse it half way, what is elsewhere of its targets is still needed.
  batch.footprint.may_keep = true;
  if (const CUresult home = bring_home_now(batch.early, normalized(stream, per_thread)); home != CUDA_SUCCESS) {
    return after_call(home);
  }
  const auto describe = [&] { return batch.footprint; };
  // While another thread waits in the driver for pageable memory, launches go on: not where nobody knows what it
  // writes.
  if (batch.footprint.everything) return enqueue(stream, per_thread, describe, call);
  return complete(stream, per_thread, describe, call);
}

}  // namespace

#define TESSERA_COPY_BATCH_V1(symbol, per_thread)                                                                  \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,    \
                                               CUmemcpyAttributes* attributes, size_t* first, size_t kinds,        \
                                               size_t* failed, CUstream stream) {                                  \
    if (!runtime().active() || !is_well_formed(to, from, sizes, count, attributes, first, kinds)) {                \
      return driver().symbol(to, from, sizes, count, attributes, first, kinds, failed, stream);                    \
    }                                                                                                              \
    Batch<Flat> batch = flat(to, from, sizes, count, attributes, first, kinds);                                    \
    return enqueue_batch(batch, stream, per_thread, [&] {                                                          \
      return driver().symbol(batch.form.to.data(), batch.form.from.data(), sizes, count, attributes, first, kinds, \
                             failed, stream);                                                                      \
    });                                                                                                            \
  }
TESSERA_COPY_BATCH_V1(cuMemcpyBatchAsync, false)
TESSERA_COPY_BATCH_V1(cuMemcpyBatchAsync_ptsz, true)

#define TESSERA_COPY_BATCH(symbol, per_thread)                                                                     \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,    \
                                               CUmemcpyAttributes* attributes, size_t* first, size_t kinds,        \
                                               CUstream stream) {                                                  \
    if (!runtime().active() || !is_well_formed(to, from, sizes, count, attributes, first, kinds)) {                \
      return driver().symbol(to, from, sizes, count, attributes, first, kinds, stream);                            \
    }                                                                                                              \
    Batch<Flat> batch = flat(to, from, sizes, count, attributes, first, kinds);                                    \
    return enqueue_batch(batch, stream, per_thread, [&] {                                                          \
      return driver().symbol(batch.form.to.data(), batch.form.from.data(), sizes, count, attributes, first, kinds, \
                             stream);                                                                              \
    });                                                                                                            \
  }
TESSERA_COPY_BATCH(cuMemcpyBatchAsync_v2, false)
TESSERA_COPY_BATCH(cuMemcpyBatchAsync_v2_ptsz, true)

#define TESSERA_COPY_BOXES_V1(symbol, per_thread)                                                           \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t* failed,  \
                                               unsigned long long flags, CUstream stream) {                 \
    if (!runtime().active() || list == nullptr) return driver().symbol(count, list, failed, flags, stream); \
    Batch<Boxes> batch = boxes(list, count);                                                                \
    return enqueue_batch(batch, stream, per_thread,                                                         \
                         [&] { return driver().symbol(count, batch.form.data(), failed, flags, stream); }); \
  }
TESSERA_COPY_BOXES_V1(cuMemcpy3DBatchAsync, false)
TESSERA_COPY_BOXES_V1(cuMemcpy3DBatchAsync_ptsz, true)

#define TESSERA_COPY_BOXES(symbol, per_thread)                                                                       \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags, \
                                               CUstream stream) {                                                    \
    if (!runtime().active() || list == nullptr) return driver().symbol(count, list, flags, stream);                  \
    Batch<Boxes> batch = boxes(list, count);                                                                         \
    return enqueue_batch(batch, stream, per_thread,                                                                  \
                         [&] { return driver().symbol(count, batch.form.data(), flags, stream); });                  \
  }
TESSERA_COPY_BOXES(cuMemcpy3DBatchAsync_v2, false)
TESSERA_COPY_BOXES(cuMemcpy3DBatchAsync_v2_ptsz, true)
