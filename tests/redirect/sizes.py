# SPDX-License-Identifier: Apache-2.0
"""A driver-API program whose kernel is launched in several sizes.

    python sizes.py ROUNDS OUT.bin

For each line on its standard input it launches `scale` ROUNDS times in each size, large and
small, and twice with the same grid and another argument; then it says "done". At the end of the
input it writes its memory.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver
from program import check, compile_ptx

SIZES = ((64, 64 * 128), (2, 256), (2, 100))  # blocks, and the third argument
KERNELS = r"""
extern "C" __global__ void scale(unsigned* x, unsigned factor, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + i;
}
"""


def main() -> None:
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
    check(driver.cuCtxSetCurrent(context))
    module = check(driver.cuModuleLoadData(compile_ptx(KERNELS, 7, 5)))
    function = check(driver.cuModuleGetFunction(module, b"scale"))
    content = np.arange(64 * 128, dtype=np.uint32)
    memory = int(check(driver.cuMemAlloc(content.nbytes)))
    check(driver.cuMemcpyHtoD(memory, content, content.nbytes))
    types = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    for _ in sys.stdin:
        for _ in range(int(sys.argv[1])):
            for blocks, words in SIZES:
                arguments = ((memory, 3, words), types)
                check(driver.cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, 0, arguments, 0))
        check(driver.cuCtxSynchronize())
        print("done", flush=True)
    check(driver.cuMemcpyDtoH(content, memory, content.nbytes))
    Path(sys.argv[2]).write_bytes(content.tobytes())


if __name__ == "__main__":
    main()
