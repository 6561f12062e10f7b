# SPDX-License-Identifier: Apache-2.0
"""Memory that the program maps itself: reservations, handles, mappings, and what is shared."""

from __future__ import annotations

import ctypes
import os

from memory import Access, Location, Properties
from support import (
    INVALID_VALUE,
    alloc,
    call,
    expect,
    free_memory,
    kernels,
    launch,
    main,
    ok,
    out,
    same,
    start,
    words,
)

MIB = 1 << 20
PIECE = 2 * MIB
FILE = 1  # a POSIX file descriptor
READ, READ_WRITE = 1, 3


def create(size: int, types: int = 0) -> int:
    properties = Properties(type=1, handle_types=types, location=Location(1, 0))
    return out("cuMemCreate", size, ctypes.byref(properties), 0)


def allow(address: int, size: int, flags: int = READ_WRITE) -> None:
    ok("cuMemSetAccess", address, size, ctypes.byref(Access(Location(1, 0), flags)), 1)


def reserve(size: int, alignment: int = 0, wish: int = 0) -> int:
    return out("cuMemAddressReserve", size, alignment, wish, 0)


def place(address: int, size: int, handle: int) -> None:
    ok("cuMemMap", address, size, 0, handle, 0)
    allow(address, size)


def block(size: int, types: int = 0) -> tuple[int, int]:
    """(address, handle) of so many bytes."""
    address, handle = reserve(size), create(size, types)
    place(address, size, handle)
    return address, handle


def unblock(address: int, size: int, handle: int) -> None:
    ok("cuMemUnmap", address, size)
    ok("cuMemRelease", handle)
    ok("cuMemAddressFree", address, size)


def shown(address: int, wanted: int, count: int = 512) -> None:
    same(set(words(address, count)), {wanted})


def case_one_large_block() -> None:
    """As JAX: one block for all, with a file descriptor, and arrays within it."""
    start()
    take = kernels()
    size = 400 * MIB
    base, handle = block(size, FILE)
    count = 3 * MIB // 4
    arrays = [base + i * 25 * MIB + 512 * i for i in range(16)]
    for turn in range(3):
        for i, array in enumerate(arrays):
            launch(take("fill"), array, count, i + turn, blocks=count // 256)
        for i in range(15):
            launch(take("add"), arrays[i + 1], arrays[i], count, blocks=count // 256)
        for i, array in enumerate(arrays):
            shown(array, i * (i + 1) // 2 + (i + 1) * turn, 64)
            shown(array + 4 * (count - 64), i * (i + 1) // 2 + (i + 1) * turn, 64)
    ok("cuMemcpyDtoD_v2", arrays[0], arrays[15], 4 * count)
    shown(arrays[0], 120 + 16 * 2)
    unblock(base, size, handle)


def case_segment_grows_and_shrinks() -> None:
    """As PyTorch's expandable segments: pieces of a reservation come and go."""
    start()
    take = kernels()
    base = reserve(128 * MIB)
    words_of_piece = PIECE // 4
    held: dict[int, int] = {}
    for turn in range(6):
        for piece in range(turn + 2):
            if piece in held:
                continue
            held[piece] = create(PIECE)
            place(base + piece * PIECE, PIECE, held[piece])
        count = (turn + 2) * words_of_piece
        launch(take("fill"), base, count, 10 + turn, blocks=count // 256)
        launch(take("add"), base, base, count, blocks=count // 256)
        for piece in range(turn + 2):
            shown(base + piece * PIECE, 20 + 2 * turn, 16)
        gone = turn % (turn + 2)
        ok("cuStreamSynchronize", 0)
        ok("cuMemUnmap", base + gone * PIECE, PIECE)
        ok("cuMemRelease", held.pop(gone))
        for piece in held:
            at = base + piece * PIECE
            launch(take("add"), at, at, words_of_piece, blocks=2048)
        for piece in held:
            shown(base + piece * PIECE, 40 + 4 * turn, 16)
    for piece, handle in held.items():
        ok("cuMemUnmap", base + piece * PIECE, PIECE)
        ok("cuMemRelease", handle)
    ok("cuMemAddressFree", base, 128 * MIB)


def case_two_addresses() -> None:
    """One handle mapped twice: what is written through the one is read through the other."""
    start()
    take = kernels()
    first, handle = block(PIECE)
    count = PIECE // 4
    for turn in range(4):  # before there is another address
        launch(take("fill"), first, count, turn, blocks=2048)
    second = reserve(PIECE)
    place(second, PIECE, handle)
    shown(second, 3)
    for turn in range(8):
        launch(take("fill"), first if turn % 2 else second, count, 100 + turn, blocks=2048)
        launch(take("add"), first, second, count, blocks=2048)
        shown(second, 200 + 2 * turn)
        shown(first, 200 + 2 * turn)
    ok("cuMemUnmap", first, PIECE)
    launch(take("add"), second, second, count, blocks=2048)
    shown(second, 428)
    ok("cuMemAddressFree", first, PIECE)
    unblock(second, PIECE, handle)


def case_moved_to_another_address() -> None:
    """Memory keeps its content as long as the program keeps its handle."""
    start()
    take = kernels()
    count = PIECE // 4
    address, handle = block(PIECE)
    for turn in range(8):
        launch(take("fill"), address, count, turn, blocks=2048)
        launch(take("add"), address, address, count, blocks=2048)
        ok("cuCtxSynchronize")
        ok("cuMemUnmap", address, PIECE)
        other = reserve(PIECE)
        ok("cuMemAddressFree", address, PIECE)
        address = other
        place(address, PIECE, handle)
        launch(take("add"), address, address, count, blocks=2048)
        shown(address, 4 * turn)
    unblock(address, PIECE, handle)


def case_handle_given_back_first() -> None:
    """A mapping outlives its handle, which can be had back from the address."""
    start()
    take = kernels()
    count = PIECE // 4
    address, handle = block(PIECE)
    ok("cuMemRelease", handle)
    for turn in range(6):
        launch(take("fill"), address, count, turn, blocks=2048)
        launch(take("add"), address, address, count, blocks=2048)
    again = out("cuMemRetainAllocationHandle", address + 4096)
    same(again, handle)
    ok("cuCtxSynchronize")
    ok("cuMemUnmap", address, PIECE)
    place(address, PIECE, again)
    shown(address, 10)
    launch(take("fill"), address, count, 77, blocks=2048)
    ok("cuCtxSynchronize")
    ok("cuMemRelease", again)
    ok("cuMemUnmap", address, PIECE)
    handle = create(PIECE)
    place(address, PIECE, handle)
    launch(take("fill"), address, count, 5, blocks=2048)
    shown(address, 5)
    unblock(address, PIECE, handle)


def case_what_the_driver_says() -> None:
    """Properties, attributes, ranges and handles are those of what was asked for."""
    start()
    for types in (0, FILE):
        address, handle = block(4 * PIECE, types)
        properties = Properties()
        ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(properties), handle)
        print(properties.type, properties.handle_types, properties.location.id)
        values = []
        for kind in (2, 9, 10, 12, 13, 14, 15, 16, 17):
            value = (ctypes.c_uint64 * 2)()
            result = call("cuPointerGetAttribute", value, kind, address + 100)
            values.append((kind, result, value[0]))
            table = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            ok("cuPointerGetAttributes", 1, (ctypes.c_int * 1)(kind), table, address + 100)
            same(value[0], values[-1][2])
        print([(k, r, v - address if v >= address else v) for k, r, v in values])
        begin, size = ctypes.c_uint64(), ctypes.c_size_t()
        ok("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), address + PIECE)
        print(begin.value - address, size.value)
        file = ctypes.c_int(-1)
        result = call("cuMemExportToShareableHandle", ctypes.byref(file), handle, FILE, 0)
        print(result, file.value >= 0)
        if file.value >= 0:
            os.close(file.value)
        unblock(address, 4 * PIECE, handle)
    print(call("cuMemAddressReserve", ctypes.byref(ctypes.c_uint64()), 0, 0, 0, 0))
    print(call("cuMemAddressReserve", ctypes.byref(ctypes.c_uint64()), PIECE, 12345, 0, 0))
    aligned = reserve(PIECE, 64 * MIB)
    same(aligned % (64 * MIB), 0)
    expect(INVALID_VALUE, "cuMemUnmap", aligned, PIECE + 1)
    ok("cuMemAddressFree", aligned, PIECE)
    huge = reserve(1 << 42)
    ok("cuMemAddressFree", huge, 1 << 42)


def case_exported() -> None:
    """Another mapping of an exported file and this one see what is written to either."""
    start()
    take = kernels()
    count = PIECE // 4
    address, handle = block(PIECE, FILE)
    launch(take("fill"), address, count, 1, blocks=2048)
    launch(take("add"), address, address, count, blocks=2048)
    file = out("cuMemExportToShareableHandle", handle, FILE, 0, kind=ctypes.c_int)
    imported = out("cuMemImportFromShareableHandle", ctypes.c_void_p(file), FILE)
    os.close(file)
    other = reserve(PIECE)
    place(other, PIECE, imported)
    shown(other, 2)
    for turn in range(6):
        launch(take("fill"), address, count, turn, blocks=2048)
        launch(take("add"), other, address, count, blocks=2048)
        shown(address, 2 * turn)
    unblock(other, PIECE, imported)
    unblock(address, PIECE, handle)


def case_read_only() -> None:
    """Access that is taken away and given back, with content that was written elsewhere."""
    start()
    take = kernels()
    count = PIECE // 4
    address, handle = block(PIECE)
    sink = alloc(PIECE)
    for turn in range(6):
        launch(take("fill"), address, count, turn, blocks=2048)
        ok("cuCtxSynchronize")
        allow(address, PIECE, READ)
        launch(take("fill"), sink, count, 1, blocks=2048)
        launch(take("add"), sink, address, count, blocks=2048)
        shown(sink, turn + 1)
        flags = ctypes.c_uint64()
        ok("cuMemGetAccess", ctypes.byref(flags), ctypes.byref(Location(1, 0)), address)
        same(flags.value, READ)
        allow(address, PIECE)
        shown(address, turn)
    unblock(address, PIECE, handle)


def case_memory_comes_back() -> None:
    """Most of the device's memory, again and again: a worker that mapped it lets it go."""
    start()
    take = kernels()
    before = free_memory()
    size = before * 7 // 10 // PIECE * PIECE
    for turn in range(5):
        address, handle = block(size)
        last = address + size - PIECE
        launch(take("fill"), last, PIECE // 4, turn, blocks=2048)
        launch(take("add"), last, last, PIECE // 4, blocks=2048)
        shown(last, 2 * turn)
        unblock(address, size, handle)


def case_waited_for() -> None:
    """A stream waits for a word of mapped memory that a kernel writes."""
    start()
    take = kernels()
    address, handle = block(4 * PIECE)
    one, two = (out("cuStreamCreate", 1) for _ in range(2))
    launch(take("fill"), address, 4096, 0, blocks=16)
    ok("cuCtxSynchronize")
    for turn in range(1, 6):
        ok("cuStreamWaitValue32_v2", one, address, ctypes.c_uint32(turn), 0)
        launch(take("fill"), address + PIECE, 256, turn, stream=one)
        launch(take("fill"), address, 1, turn, stream=two)
        ok("cuStreamSynchronize", one)
        shown(address + PIECE, turn, 256)
    unblock(address, 4 * PIECE, handle)


if __name__ == "__main__":
    main(globals())
