// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "device.h"
#include "report.h"
#include "roofline.h"
#include "running.h"
#include "tasks.h"

namespace tessera::sim {
namespace {

// Memory of a side may have gone since the copy was submitted. Host memory is the program's own affair.
bool still_there(const CopySide& side, uint64_t width, uint64_t height, uint64_t depth) {
  if (side.device < 0) return true;
  const uint64_t span = (depth - 1) * side.slice + (height - 1) * side.pitch + width;
  return address_map().cover(side.address, span, [](const Memory&) { return true; });
}

const Device& device_or(int index, const Device& otherwise) {
  return index >= 0 ? *devices()[static_cast<size_t>(index)] : otherwise;
}

Route route_of(const CopySide& destination, const CopySide& source) {
  if (source.device < 0) return destination.device < 0 ? Route::kHostToHost : Route::kHostToDevice;
  if (destination.device < 0) return Route::kDeviceToHost;
  return source.device == destination.device ? Route::kWithinDevice : Route::kBetweenDevices;
}

}  // namespace

CopyTask::CopyTask(const CopySide& to, const CopySide& from, uint64_t row, uint64_t rows, uint64_t slices)
    : destination(to), source(from), width(row), height(rows), depth(slices) {}

void CopyTask::stage() {
  staged_ = std::make_shared<std::vector<char>>(bytes());
  char* to = staged_->data();
  for (uint64_t z = 0; z < depth; ++z) {
    for (uint64_t y = 0; y < height; ++y, to += width) {
      std::memcpy(to, reinterpret_cast<const char*>(source.address + z * source.slice + y * source.pitch), width);
    }
  }
  source.address = reinterpret_cast<uint64_t>(staged_->data());
  source.pitch = width;
  source.slice = width * height;
}

void CopyTask::move_rows() const {
  if (destination.pitch == width && source.pitch == width && destination.slice == width * height &&
      source.slice == width * height) {
    std::memmove(reinterpret_cast<char*>(destination.address), reinterpret_cast<const char*>(source.address), bytes());
    return;
  }
  for (uint64_t z = 0; z < depth; ++z) {
    for (uint64_t y = 0; y < height; ++y) {
      std::memmove(reinterpret_cast<char*>(destination.address + z * destination.slice + y * destination.pitch),
                   reinterpret_cast<const char*>(source.address + z * source.slice + y * source.pitch), width);
    }
  }
}

VirtualTime CopyTask::run(Execution& execution) const {
  const RunningScope scope;
  if (!still_there(destination, width, height, depth) || !still_there(source, width, height, depth)) {
    diagnose("a copy meets memory that was freed or unmapped before the copy's turn came");
    execution.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    return 0;
  }
  move_rows();
  return copy_duration(device_or(source.device, execution.device), device_or(destination.device, execution.device),
                       route_of(destination, source), bytes());
}

VirtualTime FillTask::run(Execution& execution) const {
  const RunningScope scope;
  const uint64_t row = width * element;
  const uint64_t span = (height - 1) * pitch + row;
  if (!address_map().cover(address, span, [](const Memory&) { return true; })) {
    diagnose("a memset meets memory that was freed or unmapped before its turn came");
    execution.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    return 0;
  }
  for (uint64_t y = 0; y < height; ++y) {
    char* const begin = reinterpret_cast<char*>(address + y * pitch);
    if (element == 1) {
      std::memset(begin, static_cast<int>(value), row);
    } else {
      for (uint64_t at = 0; at < row; at += element) std::memcpy(begin + at, &value, element);
    }
  }
  return fill_duration(execution.device, row * height);
}

}  // namespace tessera::sim
