# SPDX-License-Identifier: Apache-2.0
"""Runs random launches on the driver that the loader finds, and writes where their buffers lay.

Usage: python -m kernel_corpus.runner JOB.json. The job names a PTX file, the corpus, the seed
and the kernels to launch; the launches are made by the same code here and in the test. The
simulated driver records what they touch (TESSERA_SIM_RECORD).
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_corpus.corpora import maker_of
from kernel_corpus.launches import Buffer, Launch


def launch_of(corpus: str, kernel: str, seed: int) -> Launch:
    """The random launch that belongs to a seed."""
    return maker_of(corpus, kernel)(random.Random(f"{corpus}/{kernel}/{seed}"))


class LaunchFailedError(Exception):
    """The kernel did something illegal; the context is lost."""


class Machine:
    """The first device, and a module on it."""

    def __init__(self, ptx: bytes) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self.check(driver.cuInit(0))
        device = self.check(driver.cuDeviceGet(0))
        context = self.check(driver.cuDevicePrimaryCtxRetain(device))
        self.check(driver.cuCtxSetCurrent(context))
        self._module = self.check(driver.cuModuleLoadData(ptx + b"\0"))
        self._functions: dict[str, Any] = {}

    def check(self, result: Any) -> Any:
        status, *values = result
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(str(status))
        return values[0] if len(values) == 1 else values

    def run(self, kernel: str, launch: Launch) -> list[tuple[int, int]]:
        """Launch once; the allocations that were made for it, as (address, size)."""
        driver = self._driver
        if kernel not in self._functions:
            name = kernel.encode()
            self._functions[kernel] = self.check(driver.cuModuleGetFunction(self._module, name))
        allocations: list[tuple[int, int]] = []
        parameters = [self._argument(a, allocations) for a in launch.arguments]
        storage = [(ctypes.c_uint8 * len(p)).from_buffer_copy(p) for p in parameters]
        pointers = (ctypes.c_void_p * len(storage))(*(ctypes.addressof(s) for s in storage))
        self.check(
            driver.cuLaunchKernel(
                self._functions[kernel], *launch.grid, *launch.block, launch.shared, 0,
                ctypes.addressof(pointers), 0,
            )
        )  # fmt: skip
        (status,) = driver.cuCtxSynchronize()
        if status != driver.CUresult.CUDA_SUCCESS:
            raise LaunchFailedError(str(status))
        for address, _ in allocations:
            self.check(driver.cuMemFree(address))
        return allocations

    def _argument(self, argument: Any, allocations: list[tuple[int, int]]) -> bytes:
        if isinstance(argument, bytes):
            return argument
        if isinstance(argument, Buffer):
            return self._buffer(argument, allocations).to_bytes(8, "little")
        out = b""
        for part in argument:
            piece = self._argument(part, allocations)
            align = min(len(piece), 8) if len(piece) in (1, 2, 4, 8) else 1
            out += b"\0" * (-len(out) % align) + piece
        return out + b"\0" * (-len(out) % 8)

    def _buffer(self, buffer: Buffer, allocations: list[tuple[int, int]]) -> int:
        """A buffer that shares is the allocation of an equal one before it."""
        for (address, size), data in zip(allocations, self._contents, strict=False):
            if buffer.shares and size == buffer.size and data == buffer.data:
                return address + buffer.offset
        if not allocations:
            self._contents: list[bytes] = []
        address = int(self.check(self._driver.cuMemAlloc(buffer.size)))
        self.check(self._driver.cuMemsetD8(address, 0, buffer.size))
        if buffer.data:
            self.check(self._driver.cuMemcpyHtoD(address, buffer.data, len(buffer.data)))
        allocations.append((address, buffer.size))
        self._contents.append(buffer.data)
        return address + buffer.offset

    _contents: list[bytes] = []  # noqa: RUF012 (replaced for each launch)


def main(job_file: str) -> None:
    job = json.loads(Path(job_file).read_text())
    machine = Machine(Path(job["ptx"]).read_bytes())
    out = []
    for kernel, seed in job["launches"][job["skip"] :]:
        launch = launch_of(job["corpus"], kernel, seed)
        launch = replace(launch, shared=launch.shared or job["shared"])
        try:
            out.append(machine.run(job["entry"] or kernel, launch))
        except LaunchFailedError:
            break
    Path(job["allocations"]).write_text(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1])
