# SPDX-License-Identifier: Apache-2.0
"""An unmodified driver-API program that maps its memory itself.

    python mapped.py OPERATIONS.json OUT.bin

Two reservations are filled and emptied piece by piece, with new memory, with memory that was mapped
elsewhere before, and with memory that is mapped elsewhere still. Kernels, fills and copies work on
whatever is mapped, across the seams of pieces. An operation that makes no sense is left out, alone
as under Tessera. All memory, and all that was copied to the host, is written to OUT.bin.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver
from program import KERNELS, check, compile_ptx

PIECE = 2 << 20
PIECES = 4  # of each reservation
WORDS = 3000
Place = tuple[int, int]  # reservation, piece


class Program:
    def __init__(self) -> None:
        check(driver.cuInit(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
        self.module = check(driver.cuModuleLoadData(compile_ptx(KERNELS, 7, 5)))
        non_blocking = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.streams = [driver.CUstream(0), check(driver.cuStreamCreate(non_blocking))]
        self.last: Any = None  # an event behind all that was enqueued
        size = PIECE * PIECES
        self.bases = [int(check(driver.cuMemAddressReserve(size, 0, 0, 0))) for _ in range(2)]
        self.access = driver.CUmemAccessDesc()
        self.access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self.access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.mapped: dict[Place, Any] = {}
        self.spare: list[Any] = []  # handles that are mapped nowhere
        self.out: list[bytes] = []
        self.pinned: list[Any] = []

    def address(self, place: Place) -> int:
        return self.bases[place[0]] + place[1] * PIECE

    def area(self, place: Place, value: int) -> int | None:
        """Words of the piece, across its end where the next one is mapped; none: it is not."""
        if place not in self.mapped:
            return None
        crosses = (place[0], place[1] + 1) in self.mapped and value % 2 == 0
        return self.address(place) + (PIECE - 4 * (WORDS // 3) if crosses else 4 * (value % 5000))

    def handles(self, address: int) -> set[int]:
        """Of the memory behind an area."""
        return {
            int(handle)
            for place, handle in self.mapped.items()
            if self.address(place) < address + 4 * WORDS and address < self.address(place) + PIECE
        }

    def begin(self, stream: Any) -> None:
        if self.last is not None:
            check(driver.cuStreamWaitEvent(stream, self.last, 0))

    def end(self, stream: Any) -> None:
        self.last = check(driver.cuEventCreate(int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)))
        check(driver.cuEventRecord(self.last, stream))

    def run(self, operation: dict[str, Any]) -> None:
        kind, stream = operation["kind"], self.streams[operation["stream"]]
        to, source, value = tuple(operation["to"]), tuple(operation["from"]), operation["value"]
        if kind in ("map", "unmap", "move", "alias", "export"):
            getattr(self, "do_" + kind)(stream, to, source, value)
            return
        x, y = self.area(to, value), self.area(source, value // 2)
        if x is None or y is None or abs(x - y) < 4 * WORDS:
            return
        if self.handles(x) & self.handles(y):
            return  # an alias: two threads of a kernel would race
        self.begin(stream)
        getattr(self, "do_" + kind)(stream, x, y, value)
        self.end(stream)

    def place(self, to: Place, handle: Any) -> None:
        check(driver.cuMemMap(self.address(to), PIECE, 0, handle, 0))
        check(driver.cuMemSetAccess(self.address(to), PIECE, [self.access], 1))
        self.mapped[to] = handle

    def do_map(self, stream: Any, to: Place, _source: Place, value: int) -> None:
        if to in self.mapped:
            return
        if self.spare and value % 2:
            self.place(to, self.spare.pop())
            return
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        if value % 3:
            types = driver.CUmemAllocationHandleType
            properties.requestedHandleTypes = types.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self.place(to, check(driver.cuMemCreate(PIECE, properties, 0)))
        self.begin(stream)
        check(driver.cuMemsetD32Async(self.address(to), value, PIECE // 4, stream))
        self.end(stream)

    def do_unmap(self, _stream: Any, to: Place, _source: Place, value: int) -> None:
        if to not in self.mapped:
            return
        check(driver.cuCtxSynchronize())
        handle = self.mapped.pop(to)
        check(driver.cuMemUnmap(self.address(to), PIECE))
        if handle in self.mapped.values():
            return
        if value % 2:
            check(driver.cuMemRelease(handle))
        else:
            self.spare.append(handle)

    def do_move(self, _stream: Any, to: Place, source: Place, _value: int) -> None:
        """Memory from one address to another, with what is in it."""
        if to in self.mapped or source not in self.mapped:
            return
        check(driver.cuCtxSynchronize())
        handle = self.mapped.pop(source)
        check(driver.cuMemUnmap(self.address(source), PIECE))
        self.place(to, handle)

    def do_alias(self, _stream: Any, to: Place, source: Place, _value: int) -> None:
        if to not in self.mapped and source in self.mapped:
            self.place(to, self.mapped[source])

    def do_export(self, _stream: Any, to: Place, _source: Place, _value: int) -> None:
        if to not in self.mapped:
            return
        types = driver.CUmemAllocationHandleType
        result = driver.cuMemExportToShareableHandle(
            self.mapped[to], types.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0
        )
        self.out.append(bytes([int(result[0]) & 255]))
        if int(result[0]) == 0:
            os.close(int(result[1]))

    def launch(self, name: str, stream: Any, *values: int) -> None:
        pointer, uint = ctypes.c_void_p, ctypes.c_uint
        types = tuple(pointer if value > 0xFFFFFFFF else uint for value in values)
        function = check(driver.cuModuleGetFunction(self.module, name.encode()))
        blocks = (WORDS + 127) // 128
        check(
            driver.cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, (values, types), 0)
        )

    def do_fill(self, stream: Any, x: int, _y: int, value: int) -> None:
        self.launch("fill", stream, x, WORDS, value)

    def do_combine(self, stream: Any, x: int, y: int, value: int) -> None:
        self.launch("combine", stream, x, y, WORDS, value)

    def do_every_other(self, stream: Any, x: int, y: int, _value: int) -> None:
        self.launch("every_other", stream, x, y, WORDS)

    def do_gather(self, stream: Any, x: int, y: int, _value: int) -> None:
        self.launch("gather", stream, x, y, WORDS)

    def do_memset(self, stream: Any, x: int, _y: int, value: int) -> None:
        check(driver.cuMemsetD32Async(x + 12, value, WORDS - 6, stream))

    def do_copy(self, stream: Any, x: int, y: int, value: int) -> None:
        check(driver.cuMemcpyDtoDAsync(x, y, 4 * (value % WORDS), stream))

    def do_upload(self, stream: Any, x: int, _y: int, value: int) -> None:
        content = np.full(WORDS // 2, value, dtype=np.uint32)
        self.pinned.append(content)
        check(driver.cuMemcpyHtoDAsync(x + 400, content, content.nbytes, stream))

    def do_download(self, stream: Any, _x: int, y: int, _value: int) -> None:
        content = np.zeros(WORDS, dtype=np.uint32)
        check(driver.cuMemcpyDtoHAsync(content, y, content.nbytes, stream))
        check(driver.cuStreamSynchronize(stream))
        self.out.append(content.tobytes())

    def finish(self) -> bytes:
        check(driver.cuCtxSynchronize())
        for place in sorted(self.mapped):
            content = np.zeros(PIECE // 4, dtype=np.uint32)
            check(driver.cuMemcpyDtoH(content, self.address(place), PIECE))
            self.out.append(content.tobytes())
        return b"".join(self.out)


def main() -> None:
    program = Program()
    for operation in json.loads(Path(sys.argv[1]).read_text()):
        program.run(operation)
    Path(sys.argv[2]).write_bytes(program.finish())


if __name__ == "__main__":
    main()
