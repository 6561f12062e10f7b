// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "log.h"

namespace tessera::worker {

StatusPage::StatusPage(const ts_device& device, uint64_t budget)
    : memory_(transport::SharedMemory::create("tessera-worker-status", sizeof(ts_worker_status))) {
  ts_worker_status* status = page();
  status->magic = TS_CHANNEL_MAGIC;
  status->version = TS_PROTOCOL_VERSION;
  status->pid = getpid();
  status->state = 1;
  status->device = device;
  status->memory_budget = budget;
}

bool StatusPage::reserve(uint64_t bytes) {
  auto used = word(page()->memory_used);
  uint64_t before = used.load();
  do {
    if (before > budget() || bytes > budget() - before) return false;
  } while (!used.compare_exchange_weak(before, before + bytes));
  return true;
}

void StatusPage::give_back(uint64_t bytes) { word(page()->memory_used).fetch_sub(bytes); }

void StatusPage::set_failed(const std::string& text) {
  ts_worker_status* status = page();
  const size_t size = std::min(text.size(), sizeof status->error_text - 1);
  std::memcpy(status->error_text, text.data(), size);
  status->error_text[size] = '\0';
  std::atomic_ref<uint32_t>(status->state).store(2);
}

Device::Device(const Driver& driver, int ordinal) : driver_(driver) {
  driver_.check(driver_.cuInit(0), "cuInit");
  int count = 0;
  driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal >= count) {
    throw DriverError(CUDA_ERROR_INVALID_DEVICE,
                      "there is no device " + std::to_string(ordinal) + "; the driver has " + std::to_string(count));
  }
  driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
  require_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management");
  require_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory handles as descriptors");
  require_attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing");
  describe();
  // Growing local memory waits for an idle device; it should not shrink and grow again.
  if (const CUresult flags = driver_.cuDevicePrimaryCtxSetFlags_v2(device_, CU_CTX_LMEM_RESIZE_TO_MAX);
      flags != CUDA_SUCCESS) {
    log(LogLevel::kDebug, "the context's flags stay as they are: " + driver_.error_name(flags));
  }
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  make_current();
  driver_.check(driver_.cuStreamCreate(&probe_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Device::~Device() {
  if (context_ == nullptr) return;
  driver_.note(driver_.cuStreamDestroy_v2(probe_), "cuStreamDestroy");
  driver_.note(driver_.cuDevicePrimaryCtxRelease_v2(device_), "cuDevicePrimaryCtxRelease");
}

void Device::require_attribute(CUdevice_attribute attribute, const char* what) const {
  int value = 0;
  driver_.check(driver_.cuDeviceGetAttribute(&value, attribute, device_), "cuDeviceGetAttribute");
  if (value == 0) {
    throw DriverError(CUDA_ERROR_NOT_SUPPORTED,
                      std::string("this GPU or driver has no ") + what + ": it cannot be a worker");
  }
}

void Device::describe() {
  int major = 0, minor = 0;
  driver_.check(driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_),
                "cuDeviceGetAttribute");
  driver_.check(driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_),
                "cuDeviceGetAttribute");
  description_.compute_capability = static_cast<uint32_t>(major * 10 + minor);
  size_t memory = 0;
  driver_.check(driver_.cuDeviceTotalMem_v2(&memory, device_), "cuDeviceTotalMem");
  description_.memory_bytes = memory;
  CUuuid uuid{};
  driver_.check(driver_.cuDeviceGetUuid_v2(&uuid, device_), "cuDeviceGetUuid");
  static_assert(sizeof uuid == sizeof description_.uuid);
  std::memcpy(description_.uuid, &uuid, sizeof uuid);
  driver_.check(driver_.cuDeviceGetName(description_.name, sizeof description_.name - 1, device_), "cuDeviceGetName");
}

uint64_t Device::free_memory() const {
  size_t free = 0, total = 0;
  driver_.check(driver_.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return free;
}

void Device::make_current() const { driver_.check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

bool Device::is_poisoned(CUresult code) const {
  switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_DEINITIALIZED:
      return true;
    default:
      break;
  }
  const CUresult state = driver_.cuStreamQuery(probe_);
  return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
}

}  // namespace tessera::worker
