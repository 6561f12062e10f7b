# SPDX-License-Identifier: Apache-2.0
"""An unmodified driver-API program that runs a list of operations.

    python program.py OPERATIONS.json OUT.bin

It knows nothing of Tessera. Buffers have two halves; operations work on halves
in any of several streams, ordered by events exactly as far as their halves
demand and no further, so that neighbouring halves really are in flight at once.
All memory, and all that was copied to the host on the way, is written to OUT.bin.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc

BUFFERS = 4
WORDS = 3000  # a half's size in words; no multiple of a block or of an allocation's alignment
KERNELS = r"""
extern "C" __global__ void fill(unsigned* x, unsigned n, unsigned value) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value + i;
}
extern "C" __global__ void combine(unsigned* x, const unsigned* y, unsigned n, unsigned factor) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + y[i];
}
extern "C" __global__ void every_other(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] ^= y[n - 1 - i];
}
extern "C" __global__ void gather(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y[y[i] % n];
}
extern "C" __global__ void sum(unsigned* x, const unsigned* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(x + (y[i] & 15), y[i]);
}
extern "C" __global__ void through_pointers(unsigned** p, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[0][i] += p[1][i] | 1;
}
struct Pair { unsigned* x; const unsigned* y; unsigned n; };
extern "C" __global__ void by_struct(unsigned skip, Pair pair) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < pair.n; i += gridDim.x * blockDim.x)
    if (i >= skip) pair.x[i] = pair.y[i] - pair.x[i];
}
"""


def check(result: tuple[Any, ...]) -> Any:
    """The value of a driver or NVRTC call; RuntimeError when it failed."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


def compile_ptx(source: str, major: int, minor: int) -> bytes:
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    options = [f"--gpu-architecture=compute_{major}{minor}".encode()]
    check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    text = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, text))
    return text


class Program:
    def __init__(self) -> None:
        check(driver.cuInit(0))
        self.device = check(driver.cuDeviceGet(0))
        self.context = check(driver.cuDevicePrimaryCtxRetain(self.device))
        check(driver.cuCtxSetCurrent(self.context))
        self.module = check(driver.cuModuleLoadData(compile_ptx(KERNELS, 7, 5)))
        non_blocking = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.streams = [
            driver.CUstream(0),
            check(driver.cuStreamCreate(0)),
            check(driver.cuStreamCreate(non_blocking)),
            check(driver.cuStreamCreate(non_blocking)),
        ]
        size = 2 * WORDS * 4
        self.buffers = [int(check(driver.cuMemAlloc(size))) for _ in range(BUFFERS)]
        self.table = int(check(driver.cuMemAlloc(16)))
        self.out: list[bytes] = []
        self.threads = 128  # of a block, in the launches of the operation under way
        self.pinned: list[np.ndarray[Any, Any]] = []
        # By region (buffer, half): the event of its last writer, and those of its readers since.
        self.writer: dict[Any, Any] = {}
        self.readers: dict[Any, list[Any]] = {}
        for index, buffer in enumerate(self.buffers):
            content = np.arange(2 * WORDS, dtype=np.uint32) * np.uint32(2654435761 + index)
            check(driver.cuMemcpyHtoD(buffer, content, size))

    def address(self, region: tuple[int, int]) -> int:
        return self.buffers[region[0]] + region[1] * WORDS * 4

    def begin(self, stream: Any, reads: list[Any], writes: list[Any]) -> None:
        for region in reads + writes:
            if region in self.writer:
                check(driver.cuStreamWaitEvent(stream, self.writer[region], 0))
        for region in writes:
            for event in self.readers.get(region, []):
                check(driver.cuStreamWaitEvent(stream, event, 0))

    def end(self, stream: Any, reads: list[Any], writes: list[Any]) -> None:
        event = check(driver.cuEventCreate(int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)))
        check(driver.cuEventRecord(event, stream))
        for region in reads:
            self.readers.setdefault(region, []).append(event)
        for region in writes:
            self.writer[region], self.readers[region] = event, []

    def launch(
        self, name: str, stream: Any, values: tuple[Any, ...], types: tuple[Any, ...]
    ) -> None:
        function = check(driver.cuModuleGetFunction(self.module, name.encode()))
        blocks = (WORDS + self.threads - 1) // self.threads
        block = (self.threads, 1, 1)
        check(driver.cuLaunchKernel(function, blocks, 1, 1, *block, 0, stream, (values, types), 0))

    def run(self, operation: dict[str, Any]) -> None:
        kind, stream = operation["kind"], self.streams[operation["stream"]]
        to, source = tuple(operation["to"]), tuple(operation["from"])
        value = operation["value"]
        self.threads = operation["threads"]
        if kind == "synchronize":
            check(driver.cuStreamSynchronize(stream))
            return
        if kind == "replace":
            self.replace(to[0], stream)
            return
        reads = [] if kind in ("fill", "memset", "upload") else [source]
        writes = [] if kind == "download" else [to]
        if kind == "pointers":
            writes.append("table")
        self.begin(stream, reads, writes)
        getattr(self, "do_" + kind)(stream, to, source, value)
        self.end(stream, reads, writes)

    def do_fill(self, stream: Any, to: Any, _source: Any, value: int) -> None:
        uint = ctypes.c_uint
        self.launch("fill", stream, (self.address(to), WORDS, value), (ctypes.c_void_p, uint, uint))

    def do_combine(self, stream: Any, to: Any, source: Any, value: int) -> None:
        pointer, uint = ctypes.c_void_p, ctypes.c_uint
        values = (self.address(to), self.address(source), WORDS, value)
        self.launch("combine", stream, values, (pointer, pointer, uint, uint))

    def do_kernel(self, name: str, stream: Any, to: Any, source: Any) -> None:
        pointer, uint = ctypes.c_void_p, ctypes.c_uint
        values = (self.address(to), self.address(source), WORDS)
        self.launch(name, stream, values, (pointer, pointer, uint))

    def do_every_other(self, stream: Any, to: Any, source: Any, _value: int) -> None:
        self.do_kernel("every_other", stream, to, source)

    def do_gather(self, stream: Any, to: Any, source: Any, _value: int) -> None:
        self.do_kernel("gather", stream, to, source)

    def do_sum(self, stream: Any, to: Any, source: Any, _value: int) -> None:
        self.do_kernel("sum", stream, to, source)

    def do_struct(self, stream: Any, to: Any, source: Any, value: int) -> None:
        class Pair(ctypes.Structure):
            _fields_ = [("x", ctypes.c_uint64), ("y", ctypes.c_uint64), ("n", ctypes.c_uint)]

        pair = Pair(self.address(to), self.address(source), WORDS)
        skip = ctypes.c_uint(value % WORDS)
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(skip), ctypes.addressof(pair))
        function = check(driver.cuModuleGetFunction(self.module, b"by_struct"))
        arguments = ctypes.addressof(pointers)
        check(driver.cuLaunchKernel(function, 3, 1, 1, self.threads, 1, 1, 0, stream, arguments, 0))

    def do_pointers(self, stream: Any, to: Any, source: Any, _value: int) -> None:
        table = np.array([self.address(to), self.address(source)], dtype=np.uint64)
        self.pinned.append(table)
        check(driver.cuMemcpyHtoDAsync(self.table, table, 16, stream))
        types = (ctypes.c_void_p, ctypes.c_uint)
        self.launch("through_pointers", stream, (self.table, WORDS), types)

    def do_memset(self, stream: Any, to: Any, _source: Any, value: int) -> None:
        # All but the first and the last three words.
        check(driver.cuMemsetD32Async(self.address(to) + 12, value, WORDS - 6, stream))

    def do_copy(self, stream: Any, to: Any, source: Any, value: int) -> None:
        words = value % WORDS
        check(driver.cuMemcpyDtoDAsync(self.address(to), self.address(source), 4 * words, stream))

    def do_upload(self, stream: Any, to: Any, _source: Any, value: int) -> None:
        content = np.full(WORDS // 2, value, dtype=np.uint32)
        self.pinned.append(content)
        check(driver.cuMemcpyHtoDAsync(self.address(to) + 4 * 100, content, content.nbytes, stream))

    def do_download(self, stream: Any, _to: Any, source: Any, _value: int) -> None:
        content = np.zeros(WORDS, dtype=np.uint32)
        check(driver.cuMemcpyDtoHAsync(content, self.address(source), content.nbytes, stream))
        check(driver.cuStreamSynchronize(stream))
        self.out.append(content.tobytes())

    def replace(self, index: int, stream: Any) -> None:
        """Copies a buffer into a new one and frees the old, in stream order."""
        both = [(index, 0), (index, 1)]
        size = 2 * WORDS * 4
        self.begin(stream, [], both)
        fresh = int(check(driver.cuMemAllocAsync(size, stream)))
        check(driver.cuMemcpyDtoDAsync(fresh, self.buffers[index], size, stream))
        check(driver.cuMemFreeAsync(self.buffers[index], stream))
        self.buffers[index] = fresh
        self.end(stream, [], both)

    def finish(self) -> bytes:
        check(driver.cuCtxSynchronize())
        for buffer in self.buffers:
            content = np.zeros(2 * WORDS, dtype=np.uint32)
            check(driver.cuMemcpyDtoH(content, buffer, content.nbytes))
            self.out.append(content.tobytes())
        return b"".join(self.out)


def main() -> None:
    operations = json.loads(Path(sys.argv[1]).read_text())
    program = Program()
    for operation in operations:
        program.run(operation)
    Path(sys.argv[2]).write_bytes(program.finish())


if __name__ == "__main__":
    main()
