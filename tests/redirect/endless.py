# SPDX-License-Identifier: Apache-2.0
"""A program that works until its deadline and knows what has to come out.

    python endless.py SECONDS

Exit status: 0 the right result, 3 a CUDA error, 1 a wrong result.
"""

from __future__ import annotations

import ctypes
import sys
import time

import numpy as np
from cuda.bindings import driver
from program import check, compile_ptx

SOURCE = r"""
extern "C" __global__ void step(unsigned* x, unsigned n, unsigned by) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 5 + by;
}
extern "C" __global__ void mix(unsigned* x, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] ^= x[i] >> 7;
}
"""
WORDS = 5000


def work(seconds: float) -> bool:
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
    check(driver.cuCtxSetCurrent(context))
    module = check(driver.cuModuleLoadData(compile_ptx(SOURCE, 7, 5)))
    step, mix = (check(driver.cuModuleGetFunction(module, name)) for name in (b"step", b"mix"))
    memory = int(check(driver.cuMemAlloc(4 * WORDS)))
    expected = np.arange(WORDS, dtype=np.uint32)
    check(driver.cuMemcpyHtoD(memory, expected, expected.nbytes))
    pointer, uint = ctypes.c_void_p, ctypes.c_uint
    deadline = time.monotonic() + seconds
    result = np.zeros_like(expected)
    print("working", flush=True)
    while time.monotonic() < deadline:
        for by in range(10):
            values = ((memory, WORDS, by), (pointer, uint, uint))
            check(driver.cuLaunchKernel(step, 20, 1, 1, 256, 1, 1, 0, 0, values, 0))
            values = ((memory, WORDS), (pointer, uint))
            check(driver.cuLaunchKernel(mix, 20, 1, 1, 256, 1, 1, 0, 0, values, 0))
            expected = expected * np.uint32(5) + np.uint32(by)
            expected ^= expected >> np.uint32(7)
        check(driver.cuMemcpyDtoH(result, memory, result.nbytes))
        if not np.array_equal(result, expected):
            return False
    return True


def main() -> None:
    try:
        right = work(float(sys.argv[1]))
    except RuntimeError as error:
        print(f"CUDA error: {error}", flush=True)
        sys.exit(3)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
