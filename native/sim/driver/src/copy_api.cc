// SPDX-License-Identifier: Apache-2.0
// The memcpy family. Every call becomes one CopyTask; what differs is which
// sides must be known to the driver and whether the host waits.
#include "api.h"
#include "copy.h"
#include "device.h"
#include "report.h"
#include "submit.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

// Access to mapped memory is a matter of the device that copies, or of the owner.
bool may_copy(const Memory& memory, const Device& device, bool write) {
  if (memory.kind != MemoryKind::kMapped) return true;
  const Access needed = write ? Access::kReadWrite : Access::kRead;
  const auto allows = [&](int index) {
    const Access access = memory.access_by(index, 0);
    return access == Access::kReadWrite || (needed == Access::kRead && access == Access::kRead);
  };
  return allows(device.index()) || (memory.device >= 0 && allows(memory.device));
}

bool known_side(CopySide& side, uint64_t address, uint64_t size, const Device& device, bool write) {
  const MemoryPtr first = address_map().find(address);
  if (first == nullptr || first->freeing) return false;
  const bool covered =
      address_map().cover(address, size, [&](const Memory& memory) { return may_copy(memory, device, write); });
  if (!covered) return false;
  side.address = address;
  side.device = first->is_host() ? -1 : first->device;
  side.synchronous = first->synchronous_operations;
  return true;
}

}  // namespace

CopySide device_side(CUdeviceptr address, uint64_t size, const Device& device, bool write) {
  CopySide side;
  require(known_side(side, address, size, device, write));
  return side;
}

CopySide any_side(const void* pointer, uint64_t size, const Device& device, bool write) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  require(address != 0);
  CopySide side;
  if (known_side(side, address, size, device, write)) return side;
  const MemoryPtr known = address_map().find(address);
  require(known == nullptr || known->is_host());  // too long for device memory
  side.address = address;
  side.pageable = true;
  return side;
}

void submit_copy(Stream& stream, std::shared_ptr<CopyTask> task, bool host_waits) {
  const CopySide &to = task->destination, &from = task->source;
  const bool captured = stream_is_capturing(stream);
  if (!captured && from.pageable && to.device >= 0 && !host_waits) task->stage();
  const bool waits = host_waits || (to.pageable && !captured) || (from.pageable && to.device < 0) || to.synchronous ||
                     from.synchronous;
  const Ref<Op> op = submit(stream, std::move(task), waits);
  if (!op || !waits) return;
  {
    std::shared_lock<std::shared_mutex> held;
    if (to.pageable || from.pageable) held = std::shared_lock(stream.context().objects_mutex);
    op->wait_on_host();
  }
  stream.context().flush_prints();
  stream.context().device().check_fault();
}

namespace {

CopySide with_row(CopySide side, uint64_t width) {
  side.pitch = side.slice = width;
  return side;
}

void copy_flat(Stream& stream, const CopySide& to, const CopySide& from, size_t size, bool host_waits) {
  submit_copy(stream, std::make_shared<CopyTask>(with_row(to, size), with_row(from, size), size, 1, 1), host_waits);
}

enum class Sides : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kAny };

const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

void copy_between(CUstream handle, CUdeviceptr to, CUdeviceptr from, size_t size, Sides sides, bool host_waits) {
  Stream& stream = stream_of(handle);
  if (size == 0) return;
  const Device& device = stream.context().device();
  const bool to_device = sides == Sides::kHostToDevice || sides == Sides::kDeviceToDevice;
  const bool from_device = sides == Sides::kDeviceToHost || sides == Sides::kDeviceToDevice;
  const CopySide destination =
      to_device ? device_side(to, size, device, true) : any_side(pointer(to), size, device, true);
  const CopySide source =
      from_device ? device_side(from, size, device, false) : any_side(pointer(from), size, device, false);
  copy_flat(stream, destination, source, size, host_waits);
}

CUdeviceptr address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return api([&] { copy_between(nullptr, dstDevice, address(srcHost), ByteCount, Sides::kHostToDevice, true); });
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return api([&] { copy_between(nullptr, address(dstHost), srcDevice, ByteCount, Sides::kDeviceToHost, true); });
}

// As documented, the host does not wait for copies within and between devices.
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return api([&] { copy_between(nullptr, dstDevice, srcDevice, ByteCount, Sides::kDeviceToDevice, false); });
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return api([&] {
    const MemoryPtr to = address_map().find(dst), from = address_map().find(src);
    const bool on_devices = to != nullptr && from != nullptr && !to->is_host() && !from->is_host();
    copy_between(nullptr, dst, src, ByteCount, Sides::kAny, !on_devices);
  });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream) {
  return api([&] { copy_between(hStream, dstDevice, address(srcHost), ByteCount, Sides::kHostToDevice, false); });
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return api([&] { copy_between(hStream, address(dstHost), srcDevice, ByteCount, Sides::kDeviceToHost, false); });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return api([&] { copy_between(hStream, dstDevice, srcDevice, ByteCount, Sides::kDeviceToDevice, false); });
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return api([&] { copy_between(hStream, dst, src, ByteCount, Sides::kAny, false); });
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext, size_t ByteCount) {
  return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext, size_t ByteCount,
                           CUstream hStream) {
  return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}
