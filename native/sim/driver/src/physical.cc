// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string>

#include "device.h"
#include "vmm.h"

namespace tessera::sim {
namespace {

// Descriptors of ours stay clear of the low numbers, which a program may use with select().
constexpr int kLowestDescriptor = 1024;

int raise_descriptor(int file) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < limit.rlim_max && limit.rlim_cur < 65536) {
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  const int raised = fcntl(file, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (raised < 0) return file;
  close(file);
  return raised;
}

// What an importer must know travels in the file's name, which every descriptor of it shows.
struct FileName {
  char uuid[33];
  unsigned long long size;
  int location_type, handle_types;
};
constexpr char kNameFormat[] = "tessera-sim-memory:%32[0-9a-f]:%llu:%d:%d";

std::string hex(const uint8_t (&uuid)[16]) {
  std::string text;
  for (const uint8_t byte : uuid) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    text += pair;
  }
  return text;
}

int device_with_uuid(const std::string& uuid) {
  for (const Device* device : devices()) {
    if (hex(device->machine().uuid) == uuid) return device->index();
  }
  return -1;
}

bool read_name(int file, FileName& name) {
  char link[64], target[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, target, sizeof(target) - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  const char* begin = std::strstr(target, "tessera-sim-memory:");
  return begin != nullptr &&
         std::sscanf(begin, kNameFormat, name.uuid, &name.size, &name.location_type, &name.handle_types) == 4;
}

int check_location(const CUmemAllocationProp& properties) {
  switch (properties.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return device_of(properties.location.id).index();
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      require(properties.location.id >= 0);
      return -1;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

}  // namespace

PhysicalMemory::PhysicalMemory(int file, uint64_t size, int device, const CUmemAllocationProp& properties, bool charged)
    : Object(kTag), file_(file), size_(size), device_(device), properties_(properties), charged_(charged) {}

PhysicalMemory::~PhysicalMemory() {
  close(file_);
  if (charged_) devices()[static_cast<size_t>(device_)]->refund(size_);
}

Ref<PhysicalMemory> PhysicalMemory::create(uint64_t size, const CUmemAllocationProp& properties) {
  require(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED);
  require(size > 0 && size % kGranularity == 0);
  const int device = check_location(properties);
  const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  require((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0, CUDA_ERROR_NOT_PERMITTED);
  require((properties.requestedHandleTypes & ~known) == 0);
  if (device >= 0) devices()[static_cast<size_t>(device)]->charge(size);
  const uint8_t host[16] = {};
  const std::string uuid = device >= 0 ? hex(devices()[static_cast<size_t>(device)]->machine().uuid) : hex(host);
  const std::string name = "tessera-sim-memory:" + uuid + ":" + std::to_string(size) + ":" +
                           std::to_string(properties.location.type) + ":" +
                           std::to_string(properties.requestedHandleTypes);
  int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file >= 0) file = raise_descriptor(file);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) {
    if (file >= 0) close(file);
    if (device >= 0) devices()[static_cast<size_t>(device)]->refund(size);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return Ref<PhysicalMemory>(new PhysicalMemory(file, size, device, properties, device >= 0));
}

Ref<PhysicalMemory> PhysicalMemory::import(int file) {
  FileName name = {};
  require(read_name(file, name), CUDA_ERROR_UNKNOWN);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(name.handle_types);
  properties.location.type = static_cast<CUmemLocationType>(name.location_type);
  const int device = device_with_uuid(name.uuid);
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    require(device >= 0, CUDA_ERROR_INVALID_DEVICE);
    properties.location.id = device;
  }
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  require(own >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  return Ref<PhysicalMemory>(new PhysicalMemory(raise_descriptor(own), name.size, device, properties, false));
}

int PhysicalMemory::export_file() const {
  require((properties_.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
  const int copy = fcntl(file_, F_DUPFD_CLOEXEC, 0);
  require(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  return copy;
}

void PhysicalMemory::drop_handle() {
  require(handles_.fetch_sub(1) > 0);
  release();
}

PhysicalMemory& physical_of(CUmemGenericAllocationHandle handle) {
  auto& physical = from_handle<PhysicalMemory>(reinterpret_cast<void*>(handle), CUDA_ERROR_INVALID_VALUE);
  require(physical.has_handle());
  return physical;
}

}  // namespace tessera::sim
