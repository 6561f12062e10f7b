# SPDX-License-Identifier: Apache-2.0
"""An unmodified driver-API program: two kernels, each on its own half of a matrix's columns.

    python tiles.py ROWS WORDS ROUNDS OUT.bin

It knows nothing of Tessera. WORDS: of half a row. The matrix, as it is in the end, is written to
OUT.bin. What the gather reads is an allocation of one size first and then, at the same address, of
another.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver
from program import check, compile_ptx

KERNELS = r"""
__device__ void tile(unsigned* x, unsigned rows, unsigned width, unsigned pitch) {
  unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column < width && row < rows) x[row * pitch + column] = x[row * pitch + column] * 5 + column;
}
extern "C" __global__ void left(unsigned* x, unsigned rows, unsigned width, unsigned pitch) {
  tile(x, rows, width, pitch);
}
extern "C" __global__ void right(unsigned* x, unsigned rows, unsigned width, unsigned pitch) {
  tile(x + width, rows, width, pitch);
}
extern "C" __global__ void gather(unsigned* x, const unsigned* source, const unsigned* index,
                                  unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += source[index[i]];
}
"""


class Matrix:
    def __init__(self, rows: int, words: int) -> None:
        self.rows, self.words = rows, words
        check(driver.cuInit(0))
        context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
        check(driver.cuCtxSetCurrent(context))
        self.module = check(driver.cuModuleLoadData(compile_ptx(KERNELS, 7, 5)))
        self.content = np.arange(2 * words * rows, dtype=np.uint32)
        self.address = self.upload(self.content)

    def upload(self, content: Any) -> int:
        address = int(check(driver.cuMemAlloc(content.nbytes)))
        check(driver.cuMemcpyHtoD(address, content, content.nbytes))
        return address

    def launch(self, name: str, grid: tuple[int, int], *values: tuple[Any, int]) -> None:
        function = check(driver.cuModuleGetFunction(self.module, name.encode()))
        arguments = tuple(value for _, value in values), tuple(kind for kind, _ in values)
        check(driver.cuLaunchKernel(function, *grid, 1, 256, 1, 1, 0, 0, arguments, 0))

    def half(self, name: str) -> None:
        pointer, uint = ctypes.c_void_p, ctypes.c_uint
        sizes = [(uint, self.rows), (uint, self.words), (uint, 2 * self.words)]
        self.launch(name, (-(-self.words // 256), self.rows), (pointer, self.address), *sizes)

    def gather(self, words: int) -> int:
        """Adds the last words of an array to the first of the matrix; returns where it was.

        The launches differ in nothing but what lies there.
        """
        source = self.upload(np.arange(words, dtype=np.uint32) * 7)
        index = self.upload(words - 1 - np.arange(256, dtype=np.uint32))
        pointers = [(ctypes.c_void_p, address) for address in (self.address, source, index)]
        self.launch("gather", (1, 1), *pointers, (ctypes.c_uint, 256))
        check(driver.cuCtxSynchronize())
        check(driver.cuMemFree(index))
        check(driver.cuMemFree(source))
        return source

    def finish(self) -> bytes:
        check(driver.cuMemcpyDtoH(self.content, self.address, self.content.nbytes))
        return self.content.tobytes()


def main() -> None:
    rows, words, rounds = (int(argument) for argument in sys.argv[1:4])
    matrix = Matrix(rows, words)
    for _ in range(rounds):
        matrix.half("left")
        matrix.half("right")
    places = {matrix.gather(count) for count in (300, 900, 1020, 600)}
    Path(sys.argv[4]).write_bytes(matrix.finish())
    print(len(places))


if __name__ == "__main__":
    main()
