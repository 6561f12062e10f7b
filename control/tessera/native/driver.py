# SPDX-License-Identifier: Apache-2.0
"""The few functions of the CUDA driver that tell what a machine can do.

To be used in a process that ends soon after: the driver keeps what it has initialised.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any

import cffi

_CDEF = """
typedef int CUresult; typedef int CUdevice; typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream;
typedef unsigned long long CUmemHandle;
typedef struct { char bytes[16]; } CUuuid;
typedef struct {
  int type; int requestedHandleTypes; struct { int type; int id; } location;
  void *win32HandleMetaData;
  struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage;
           unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
CUresult cuInit(unsigned int);
CUresult cuDriverGetVersion(int *);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuDeviceGetCount(int *);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuDeviceGetName(char *, int, CUdevice);
CUresult cuDeviceGetUuid(CUuuid *, CUdevice);
CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice);
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemGetAllocationGranularity(size_t *, const CUmemAllocationProp *, int);
CUresult cuMemCreate(CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
CUresult cuMemRelease(CUmemHandle);
CUresult cuMemExportToShareableHandle(void *, CUmemHandle, int, unsigned long long);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned int);
CUresult cuMemHostUnregister(void *);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned int);
CUresult cuStreamCreate(CUstream *, unsigned int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, unsigned int, unsigned int);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned int, unsigned int);
CUresult cuStreamSynchronize(CUstream);
"""
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76
_PINNED = _POSIX_FD = _ON_DEVICE = 1  # CU_MEM_ALLOCATION_TYPE_, _HANDLE_TYPE_, _LOCATION_TYPE_
_DEVICE_MAP = 2  # CU_MEMHOSTREGISTER_DEVICEMAP
_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ


class DriverError(Exception):
    """A call of the driver failed; the message names it and the error."""


@dataclass(frozen=True)
class DeviceInfo:
    """One device that the driver shows."""

    ordinal: int
    name: str
    uuid: str  # 32 hexadecimal digits
    compute_capability: int  # 90 for 9.0
    memory_bytes: int


class Driver:
    """The driver library, initialised. Raises DriverError when there is none that works."""

    def __init__(self, path: str = "") -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(_CDEF)
        self.path = path or "libcuda.so.1"
        try:
            self._library = self._ffi.dlopen(self.path)
        except OSError as error:
            reason = str(error).split(".  ")[0]  # cffi goes on with where else it looked
            raise DriverError(f"no driver: {reason}") from None
        self._call("cuInit", 0)

    def version(self) -> int:
        """13000 for CUDA 13.0."""
        out = self._ffi.new("int *")
        self._call("cuDriverGetVersion", out)
        return int(out[0])

    def devices(self) -> list[DeviceInfo]:
        """All devices, in the driver's order, which CUDA_VISIBLE_DEVICES has a say in."""
        count = self._ffi.new("int *")
        self._call("cuDeviceGetCount", count)
        return [self._device(ordinal) for ordinal in range(count[0])]

    def _device(self, ordinal: int) -> DeviceInfo:
        device, name = self._ffi.new("CUdevice *"), self._ffi.new("char[256]")
        uuid, memory = self._ffi.new("CUuuid *"), self._ffi.new("size_t *")
        self._call("cuDeviceGet", device, ordinal)
        self._call("cuDeviceGetName", name, 256, device[0])
        try:
            self._call("cuDeviceGetUuid_v2", uuid, device[0])
        except DriverError:
            self._call("cuDeviceGetUuid", uuid, device[0])
        self._call("cuDeviceTotalMem_v2", memory, device[0])
        major = self._attribute(_COMPUTE_MAJOR, device[0])
        minor = self._attribute(_COMPUTE_MINOR, device[0])
        text = self._ffi.string(name).decode("utf-8", "replace")
        digits = bytes(self._ffi.buffer(uuid)).hex()
        return DeviceInfo(ordinal, text, digits, major * 10 + minor, int(memory[0]))

    def _attribute(self, number: int, device: int) -> int:
        out = self._ffi.new("int *")
        self._call("cuDeviceGetAttribute", out, number, device)
        return int(out[0])

    def use(self, ordinal: int) -> None:
        """Makes the device's primary context current in this thread."""
        context = self._ffi.new("CUcontext *")
        self._call("cuDevicePrimaryCtxRetain", context, ordinal)
        self._call("cuCtxSetCurrent", context[0])

    def try_export(self, ordinal: int) -> None:
        """Makes device memory and exports it as a descriptor. Raises DriverError."""
        ffi = self._ffi
        prop = ffi.new("CUmemAllocationProp *")
        prop.type, prop.requestedHandleTypes = _PINNED, _POSIX_FD
        prop.location.type, prop.location.id = _ON_DEVICE, ordinal
        size, handle, fd = ffi.new("size_t *"), ffi.new("CUmemHandle *"), ffi.new("int *")
        self._call("cuMemGetAllocationGranularity", size, prop, 0)
        self._call("cuMemCreate", handle, size[0], prop, 0)
        try:
            self._call("cuMemExportToShareableHandle", fd, handle[0], _POSIX_FD, 0)
            os.close(fd[0])
        finally:
            self._call("cuMemRelease", handle[0])

    def try_reserve(self, base: int, size: int) -> None:
        """Reserves those very addresses. Raises DriverError."""
        out = self._ffi.new("CUdeviceptr *")
        self._call("cuMemAddressReserve", out, size, 0, base, 0)
        self._call("cuMemAddressFree", out[0], size)
        if out[0] != base:
            raise DriverError(f"cuMemAddressReserve gave {out[0]:#x}, wanted {base:#x}")

    def try_stream_flags(self) -> None:
        """Writes and awaits a flag in registered shared memory. Raises DriverError.

        The current context's device does it.
        """
        ffi = self._ffi
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        address = ffi.from_buffer(memory)
        flag, stream = ffi.new("CUdeviceptr *"), ffi.new("CUstream *")
        self._call("cuMemHostRegister_v2", address, mmap.PAGESIZE, _DEVICE_MAP)
        try:
            self._call("cuMemHostGetDevicePointer_v2", flag, address, 0)
            self._call("cuStreamCreate", stream, 1)
            self._call("cuStreamWriteValue32_v2", stream[0], flag[0], 7, 0)
            self._call("cuStreamWaitValue32_v2", stream[0], flag[0], 7, _EQUAL)
            self._call("cuStreamSynchronize", stream[0])
            self._call("cuStreamDestroy_v2", stream[0])
            if memory[0] != 7:
                raise DriverError("cuStreamWriteValue32 wrote nothing")
        finally:
            self._call("cuMemHostUnregister", address)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DriverError(f"{self.path} has no {name}") from None
        result = function(*arguments)
        if result != 0:
            raise DriverError(f"{name} failed with {self._error_name(result)}")

    def _error_name(self, result: int) -> str:
        text = self._ffi.new("const char **")
        known = self._library.cuGetErrorName(result, text) == 0 and text[0] != self._ffi.NULL
        return self._ffi.string(text[0]).decode() if known else f"error {result}"
