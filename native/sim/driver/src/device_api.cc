// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "api.h"
#include "context.h"
#include "device.h"
#include "device_attributes.h"

using namespace tessera::sim;

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  try {
    return initialize();
  } catch (const std::exception&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return api([&] {
    require(device != nullptr);
    *device = device_of(ordinal).index();
  });
}

CUresult cuDeviceGetCount(int* count) {
  return api([&] {
    require(count != nullptr);
    *count = static_cast<int>(devices().size());
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return api([&] {
    require(name != nullptr && len > 0);
    std::snprintf(name, static_cast<size_t>(len), "%s", device_of(dev).model().name.c_str());
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(uuid != nullptr);
    std::memcpy(uuid->bytes, device.machine().uuid, sizeof(uuid->bytes));
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(bytes != nullptr);
    *bytes = device.model().memory_bytes;
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(pi != nullptr);
    *pi = device_attribute(device, attrib);
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(major != nullptr && minor != nullptr);
    *major = static_cast<int>(device.model().major);
    *minor = static_cast<int>(device.model().minor);
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(prop != nullptr);
    const auto get = [&device](CUdevice_attribute attribute) { return device_attribute(device, attribute); };
    *prop = {};
    prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; ++i) {
      prop->maxThreadsDim[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
      prop->maxGridSize[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  });
}

CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice dev) {
  return api([&]() -> CUresult {
    device_of(dev);
    return CUDA_ERROR_NOT_SUPPORTED;  // LUIDs are Windows'
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format, unsigned, CUdevice dev) {
  return api([&] {
    const Device& device = device_of(dev);
    require(maxWidthInElements != nullptr);
    *maxWidthInElements =
        static_cast<size_t>(device_attribute(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return api([&] {
    require(dev != nullptr && pciBusId != nullptr);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    const bool full = std::sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
    if (!full) {
      domain = function = 0;
      require(std::sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) >= 2);
    }
    for (const Device* device : devices()) {
      if (domain == 0 && slot == 0 && bus == static_cast<unsigned>(device->machine().physical_ordinal + 1)) {
        *dev = device->index();
        return;
      }
    }
    fail(CUDA_ERROR_INVALID_DEVICE);
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return api([&] {
    const std::string id = device_of(dev).bus_id();
    require(pciBusId != nullptr && len > static_cast<int>(id.size()));
    std::memcpy(pciBusId, id.c_str(), id.size() + 1);
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  return api([&] {
    device_of(dev);
    require(pi != nullptr && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    *pi = 0;
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return api([&] {
    const Device &one = device_of(dev), &other = device_of(peerDev);
    require(canAccessPeer != nullptr);
    *canAccessPeer = one.index() != other.index();
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice) {
  return api([&] {
    const Device &source = device_of(srcDevice), &destination = device_of(dstDevice);
    require(source.index() != destination.index(), CUDA_ERROR_INVALID_DEVICE);
    require(value != nullptr);
    switch (attrib) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = source.model().peer_bandwidth >= 100e9 && destination.model().peer_bandwidth >= 100e9 ? 0 : 1;
        return;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return;
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return;
    }
    fail(CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope) {
  return api([&] {
    require(target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
    require(scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
            scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  });
}

CUresult cuProfilerInitialize(const char*, const char*, int) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuProfilerStart() {
  return api([] {});
}
CUresult cuProfilerStop() {
  return api([] {});
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return api([&] {
    Device& device = device_of(dev);
    require(pctx != nullptr);
    Context* context = nullptr;
    device.retain_primary(&context);
    *pctx = to_handle<CUcontext>(context);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return api([&] { device_of(dev).release_primary(); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return api([&] { device_of(dev).reset_primary(); });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return api([&] {
    Device& device = device_of(dev);
    require((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 && (flags & CU_CTX_SCHED_MASK) != 3 &&
            (flags & CU_CTX_SCHED_MASK) <= CU_CTX_SCHED_BLOCKING_SYNC);
    device.primary_flags.store(flags);
    if (device.primary().alive()) device.primary().flags.store(flags);
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return api([&] {
    Device& device = device_of(dev);
    require(flags != nullptr && active != nullptr);
    *flags = device.primary_flags.load();
    *active = device.primary().alive();
  });
}
