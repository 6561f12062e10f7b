// SPDX-License-Identifier: Apache-2.0
// What streams and graph nodes can do. Each task holds everything it needs: the
// caller's buffers are not looked at again, except those that the API says stay the caller's.
#pragma once

#include <memory>
#include <vector>

#include "memory.h"
#include "module.h"
#include "op.h"

namespace tessera::sim {

struct LaunchShape {
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared = 0;
  bool cooperative = false;
};

class KernelTask final : public Task {
 public:
  KernelTask(Function& launched, CUfunction given, const LaunchShape& launch_shape, std::vector<uint8_t> bytes);
  VirtualTime run(Execution& execution) const override;

  const Ref<Module> module;  // keeps the code alive
  Function& function;
  const CUfunction handle;  // as the program gave it: a CUfunction or a CUkernel
  const LaunchShape shape;
  const std::vector<uint8_t> parameters;
  std::vector<CUlaunchAttribute> attributes;  // for graph queries
  std::vector<void*> argument_pointers;       // into `parameters`, one for each
};

/// One side of a copy: rows of `width` bytes, `pitch` apart, in slices `slice` apart.
struct CopySide {
  uint64_t address = 0;
  uint64_t pitch = 0, slice = 0;
  int device = -1;           // -1: host
  bool pageable = false;     // host memory that the driver does not know
  bool synchronous = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
};

class CopyTask final : public Task {
 public:
  CopyTask(const CopySide& to, const CopySide& from, uint64_t row, uint64_t rows, uint64_t slices);
  VirtualTime run(Execution& execution) const override;
  bool is_short() const override { return bytes() <= (64 << 10); }
  uint64_t bytes() const { return width * height * depth; }
  /// Takes the source's bytes now, so that the caller may reuse its pageable buffer.
  void stage();

  const CopySide destination;
  CopySide source;
  const uint64_t width, height, depth;
  CUDA_MEMCPY3D description = {};  // for graph queries
  CUcontext described_context = nullptr;

 private:
  void move_rows() const;
  std::shared_ptr<std::vector<char>> staged_;
};

class FillTask final : public Task {
 public:
  FillTask(uint64_t where, uint64_t row_pitch, uint32_t pattern, uint32_t size, uint64_t row, uint64_t rows)
      : address(where), pitch(row_pitch), value(pattern), element(size), width(row), height(rows) {}
  VirtualTime run(Execution& execution) const override;
  bool is_short() const override { return width * element * height <= (64 << 10); }

  const uint64_t address, pitch;
  const uint32_t value, element;  // element: 1, 2 or 4 bytes
  const uint64_t width, height;   // width in elements
};

class HostTask final : public Task {
 public:
  HostTask(CUhostFn called, void* data) : function(called), user_data(data) {}
  VirtualTime run(Execution& execution) const override;
  const CUhostFn function;
  void* const user_data;
};

class CallbackTask final : public Task {
 public:
  CallbackTask(CUstream given, CUstreamCallback called, void* data)
      : stream_(given), function_(called), user_data_(data) {}
  VirtualTime run(Execution& execution) const override;
  bool runs_after_fault() const override { return true; }

 private:
  const CUstream stream_;
  const CUstreamCallback function_;
  void* const user_data_;
};

/// cuStreamWriteValue, cuStreamWaitValue and cuStreamBatchMemOp.
class MemoryOperationTask final : public Task {
 public:
  explicit MemoryOperationTask(std::vector<CUstreamBatchMemOpParams> list) : operations(std::move(list)) {}
  VirtualTime run(Execution& execution) const override;
  bool is_short() const override;
  const std::vector<CUstreamBatchMemOpParams> operations;
};

/// Does nothing: a place in a stream, for events and joins.
class MarkerTask final : public Task {
 public:
  VirtualTime run(Execution&) const override { return 0; }
  bool is_short() const override { return true; }
  bool runs_after_fault() const override { return true; }
  static const TaskPtr& get();
};

/// The stream-ordered free of one pool allocation.
class FreeTask final : public Task {
 public:
  explicit FreeTask(MemoryPtr freed) : memory(std::move(freed)) {}
  VirtualTime run(Execution& execution) const override;
  bool is_short() const override { return true; }
  bool runs_after_fault() const override { return true; }
  const MemoryPtr memory;
};

}  // namespace tessera::sim
