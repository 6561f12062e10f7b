# SPDX-License-Identifier: Apache-2.0
"""Device memory that Triton takes as a kernel argument, without a framework.

Triton asks an argument only for `data_ptr()` and `dtype`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.core import Device

_CUDA_SUCCESS = driver.CUresult.CUDA_SUCCESS


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call; raises RuntimeError with the driver's name for the error."""
    status, *values = result
    if status != _CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(status)
        raise RuntimeError(f"CUDA driver call failed: {name.decode() if name else status}")
    return values[0] if len(values) == 1 else None


def use_device(ordinal: int = 0) -> Device:
    """Make a GPU current in this thread and return it."""
    device = Device(ordinal)
    device.set_current()
    return device


class DeviceArray:
    """A C-contiguous array in device memory, owned by this object."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        self._pointer = int(checked(driver.cuMemAlloc(self.nbytes)))

    @classmethod
    def of(cls, values: npt.ArrayLike, dtype: npt.DTypeLike = None) -> DeviceArray:
        """A copy of host data on the device."""
        host = np.ascontiguousarray(values, dtype=dtype)
        array = cls(host.shape, host.dtype)
        checked(driver.cuMemcpyHtoD(array._pointer, host.ctypes.data, host.nbytes))
        return array

    def data_ptr(self) -> int:
        """The device address."""
        return self._pointer

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host; waits for the work that was launched before."""
        host = np.empty(self.shape, self.dtype)
        checked(driver.cuMemcpyDtoH(host.ctypes.data, self._pointer, self.nbytes))
        return host

    def __del__(self) -> None:
        if pointer := getattr(self, "_pointer", 0):
            driver.cuMemFree(pointer)
