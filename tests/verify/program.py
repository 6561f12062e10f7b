# SPDX-License-Identifier: Apache-2.0
"""An unmodified driver-API program that launches the kernels it is told to, one after the other.

    python program.py OUT.bin WORDS KERNEL...

Four buffers of WORDS words each, x, y, z and a table of pointers. All of them are written to
OUT.bin at the end, but for the table. A kernel may be followed by `*N`: so many launches.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = r"""
__device__ unsigned launches;
extern "C" {
__global__ void scale(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 3 * y[i];
}
__global__ void add(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y[i];
}
__global__ void odd(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && y[i] % 2 == 1) x[i] = i;
}
__global__ void through(unsigned** table, unsigned* x, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) table[0][i] += i;
}
__global__ void number(unsigned* x, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) launches += 1;
  if (i == 0) x[0] = launches;
}
}
"""


def check(result: tuple[Any, ...]) -> Any:
    """The value of a driver or NVRTC call; RuntimeError when it failed."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


def compile_ptx(source: str) -> bytes:
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    check(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"]))
    text = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, text))
    return text


def main() -> None:
    out, words = Path(sys.argv[1]), int(sys.argv[2])
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
    check(driver.cuCtxSetCurrent(context))
    module = check(driver.cuModuleLoadData(compile_ptx(SOURCE)))
    x, y, z = (int(check(driver.cuMemAlloc(4 * words))) for _ in range(3))
    table = int(check(driver.cuMemAlloc(16)))
    for seed, buffer in enumerate((x, y, z), start=1):
        content = np.arange(words, dtype=np.uint32) * np.uint32(2654435761 + seed)
        check(driver.cuMemcpyHtoD(buffer, content, content.nbytes))
    pointer, uint = ctypes.c_void_p, ctypes.c_uint
    values: dict[str, tuple[Any, ...]] = {
        "through": (table, x, words),
        "elsewhere": (table, x, words),
        "number": (x, words),
    }
    for word in sys.argv[3:]:
        name, _, times = word.partition("*")
        target = np.array([z if name == "elsewhere" else x, 0], dtype=np.uint64)
        check(driver.cuMemcpyHtoD(table, target, target.nbytes))
        kernel = "through" if name == "elsewhere" else name
        function = check(driver.cuModuleGetFunction(module, kernel.encode()))
        arguments = values.get(name, (x, y, words))
        types = (*(pointer for _ in arguments[:-1]), uint)
        for _ in range(int(times or 1)):
            blocks = (words + 127) // 128
            check(
                driver.cuLaunchKernel(
                    function, blocks, 1, 1, 128, 1, 1, 0, 0, (arguments, types), 0
                )
            )
    check(driver.cuCtxSynchronize())
    content = np.zeros(words, dtype=np.uint32)
    with out.open("wb") as file:
        for buffer in (x, y, z):
            check(driver.cuMemcpyDtoH(content, buffer, content.nbytes))
            file.write(content.tobytes())


if __name__ == "__main__":
    main()
