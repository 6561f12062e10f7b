// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stream.h"
#include "tasks.h"

namespace tessera::sim {

class Device;

/// A side that must be memory the driver knows: fails with CUDA_ERROR_INVALID_VALUE where it is not,
/// or where `device` may not use it so.
CopySide device_side(CUdeviceptr address, uint64_t size, const Device& device, bool write);
/// A side that may also be pageable host memory.
CopySide any_side(const void* pointer, uint64_t size, const Device& device, bool write);

/// Submits the copy with the rules for pageable memory: a pageable source is taken at once,
/// a pageable destination makes the host wait.
void submit_copy(Stream& stream, std::shared_ptr<CopyTask> task, bool host_waits);

/// Memory that cuMemcpy2D/3D descriptors name, as a task; width, height or depth 0 gives null.
std::shared_ptr<CopyTask> copy_of(const CUDA_MEMCPY3D& description, const Device& device);

/// Whether the stream is part of a capture now.
bool stream_is_capturing(Stream& stream);

}  // namespace tessera::sim
