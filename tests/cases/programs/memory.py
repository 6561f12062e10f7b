# SPDX-License-Identifier: Apache-2.0
"""Memory: what the program sees is what the driver alone would say."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from support import (
    INVALID_CONTEXT,
    INVALID_VALUE,
    NOT_FOUND,
    OUT_OF_MEMORY,
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


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def physical(size: int, location: Location) -> tuple[int, int]:
    properties = Properties(type=1, location=location)
    handle = ctypes.c_uint64()
    return call(
        "cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), 0
    ), handle.value


def fill_up(size: int) -> list[int]:
    """Allocations of `size` bytes until there is no more."""
    found: list[int] = []
    while True:
        address = ctypes.c_uint64()
        result = call("cuMemAlloc_v2", ctypes.byref(address), size)
        if result != 0:
            same(result, OUT_OF_MEMORY)
            return found
        found.append(address.value)


def case_out_of_memory() -> None:
    """As many blocks as the driver alone gives (which deals in 2 MiB), again and again."""
    start()
    whole = free_memory()
    for size in (20 * MIB, 2 * MIB, 34 * MIB, 6 * MIB, 100 * MIB, 20 * MIB):
        blocks = fill_up(size)
        print(size // MIB, len(blocks), free_memory())
        for block in blocks[::2] + blocks[1::2]:
            ok("cuMemFree_v2", block)
        same(free_memory(), whole)


def case_one_block_of_all() -> None:
    start()
    small = alloc(512)
    free = free_memory()
    expect(OUT_OF_MEMORY, "cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), free + 4 * MIB)
    block = alloc(free // (2 * MIB) * 2 * MIB - 4 * MIB)
    ok("cuMemFree_v2", block)
    ok("cuMemFree_v2", small)


def case_out_of_memory_in_order() -> None:
    """What was freed in stream order is free memory."""
    start()
    stream = out("cuStreamCreate", 1)
    size = free_memory() * 6 // 10
    for _ in range(3):
        block = out("cuMemAllocAsync", size, stream)
        ok("cuMemsetD32Async", block, 7, 1000, stream)
        ok("cuMemFreeAsync", block, stream)
    ok("cuStreamSynchronize", stream)


def case_free_memory() -> None:
    start()
    before = free_memory()
    blocks = [alloc(size) for size in (2 * MIB, 6 * MIB, 64 * MIB)]
    print(before - free_memory())
    for block in blocks:
        ok("cuMemFree_v2", block)
    same(free_memory(), before)


def case_ranges() -> None:
    """The bounds of an allocation hold for copies, fills and questions (7 address patterns)."""
    start()
    a, b = alloc(1000), alloc(1000)
    host = (ctypes.c_ubyte * 4096)()
    for address, size in (
        (a, 1000),
        (a + 1, 999),
        (a, 1001),
        (a + 999, 2),
        (b, 1),
        (a, 0),
        (a + 1000, 1),
    ):
        results = [
            call("cuMemcpyHtoD_v2", address, host, size),
            call("cuMemcpyDtoH_v2", host, address, size),
            call("cuMemsetD8_v2", address, 0, size),
            call("cuMemcpyDtoD_v2", b, address, size),
            call("cuMemcpyHtoDAsync_v2", address, host, size, 0),
        ]
        base, length = ctypes.c_uint64(), ctypes.c_uint64()
        known = call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(length), address)
        print(address - a if address < b else "b", size, results, known, length.value)
    ok("cuMemFree_v2", a)
    expect(NOT_FOUND, "cuMemGetAddressRange_v2", None, None, a)
    expect(INVALID_VALUE, "cuMemcpyHtoD_v2", a, host, 16)
    expect(INVALID_VALUE, "cuPointerGetAttribute", ctypes.byref(ctypes.c_int()), 2, a)
    expect(INVALID_VALUE, "cuMemFree_v2", a)


def case_attributes() -> None:
    """Pointer attributes, one by one and together, of plain and of ordered memory."""
    start()
    stream = out("cuStreamCreate", 1)
    for address in (alloc(3 * MIB), out("cuMemAllocAsync", 4096, stream)):
        kinds = [2, 3, 6, 8, 9, 10, 12, 13, 14, 16]
        single = []
        for kind in kinds:
            value = (ctypes.c_uint64 * 2)()
            result = call("cuPointerGetAttribute", value, kind, address + 8)
            single.append((result, value[0] - address if kind == 3 else value[0]))
        print(single)
        values = [(ctypes.c_uint64 * 2)() for _ in kinds]
        table = (ctypes.c_void_p * len(kinds))(*[ctypes.addressof(v) for v in values])
        ok(
            "cuPointerGetAttributes",
            len(kinds),
            (ctypes.c_int * len(kinds))(*kinds),
            table,
            address + 8,
        )
        together = [v[0] - address if k == 3 else v[0] for k, v in zip(kinds, values, strict=True)]
        same(together, [value for _, value in single])


def case_ids_differ() -> None:
    """No two allocations have one buffer id, whoever served them."""
    start()
    addresses = [alloc(100), alloc(100), out("cuMemAllocManaged", 100, 1)]
    addresses.append(out("cuMemHostAlloc", 100, 0))
    ids = []
    for address in addresses:
        value = ctypes.c_uint64()
        ok("cuPointerGetAttribute", ctypes.byref(value), 7, address)
        ids.append(value.value)
    same(len(set(ids)), len(ids), f"{ids}")


def case_pool_figures() -> None:
    """Used and reserved bytes of the default pool, its high-water marks, trimming."""
    start()
    pool = out("cuDeviceGetDefaultMemPool", 0)
    stream = out("cuStreamCreate", 1)

    def figures() -> list[int]:
        values = []
        for attribute in (5, 6, 7, 8):
            value = ctypes.c_uint64()
            ok("cuMemPoolGetAttribute", pool, attribute, ctypes.byref(value))
            values.append(value.value)
        return values

    threshold = ctypes.c_uint64(2**64 - 1)
    ok("cuMemPoolSetAttribute", pool, 4, ctypes.byref(threshold))
    print(figures())
    blocks = [out("cuMemAllocAsync", size, stream) for size in (1000, 40 * MIB, 70)]
    print(figures())
    ok("cuMemFreeAsync", blocks[1], stream)
    ok("cuStreamSynchronize", stream)
    print(figures())
    zero = ctypes.c_uint64(0)
    ok("cuMemPoolSetAttribute", pool, 8, ctypes.byref(zero))
    print(figures()[2:])
    ok("cuMemFreeAsync", blocks[0], stream)
    ok("cuMemFreeAsync", blocks[2], stream)
    ok("cuStreamSynchronize", stream)
    print(figures()[2:])
    ok("cuMemPoolTrimTo", pool, 0)
    print(figures()[2:])
    ok("cuMemFree_v2", out("cuMemAllocAsync", 1000, stream))  # drivers do not count this at once


def case_explicit_pool() -> None:
    """Kind 2.3: a thousand allocations from a pool of the program's own."""
    start()
    properties = PoolProperties(type=1, location=Location(1, 0))
    pool = out("cuMemPoolCreate", ctypes.byref(properties))
    stream = out("cuStreamCreate", 1)
    fill = kernels()("fill")
    for i in range(1000):
        block = out("cuMemAllocFromPoolAsync", 4096, pool, stream)
        if i % 100 == 0:
            launch(fill, block, 256, i, stream=stream)
            host = (ctypes.c_uint32 * 256)()
            ok("cuMemcpyDtoHAsync_v2", host, block, 1024, stream)
            ok("cuStreamSynchronize", stream)
            same(list(host), [i] * 256)
        ok("cuMemFreeAsync", block, stream)
    expect(INVALID_VALUE, "cuMemFreeAsync", 0x1234560, stream)
    ok("cuMemPoolDestroy", pool)


def case_create_from_a_fresh_thread() -> None:
    """Kinds 2.1 and 2.2: cuMemCreate without a current context, and of host memory."""
    start()
    results: list[Any] = []

    def create() -> None:
        for location in (
            Location(1, 0),
            Location(1, 99),
            Location(2, 0),
            Location(3, 0),
            Location(4, 0),
        ):
            result, handle = physical(2 * MIB, location)
            results.append(result)
            if result == 0:
                ok("cuMemRelease", handle)

    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    print(results)


def case_memory_of_the_driver_behind_ours() -> None:
    """The driver may place its own things, like the globals of modules, wherever it likes."""
    start()
    take = kernels()
    near = alloc(4096) & ~(2 * MIB - 1)
    wanted = near + (1 << 40)
    address = out("cuMemAddressReserve", 2 * MIB, 0, wanted, 0)
    same(address, wanted)
    result, handle = physical(2 * MIB, Location(1, 0))
    same(result, 0)
    ok("cuMemMap", address, 2 * MIB, 0, handle, 0)
    ok("cuMemSetAccess", address, 2 * MIB, ctypes.byref(Access(Location(1, 0), 3)), 1)
    ok("cuMemcpyHtoD_v2", address, (ctypes.c_uint32 * 64)(*range(64)), 256)
    same(words(address, 64), list(range(64)))
    ok("cuMemsetD32_v2", address, 7, 64)
    launch(take("add"), address, address, 64)
    same(set(words(address, 64)), {14})
    kind, base, size = ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_size_t()
    ok("cuPointerGetAttribute", ctypes.byref(kind), 2, address)
    ok("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address + 64)
    print(kind.value, base.value == address, size.value)
    ok("cuMemUnmap", address, 2 * MIB)
    ok("cuMemRelease", handle)
    ok("cuMemAddressFree", address, 2 * MIB)


def case_growing_segment() -> None:
    """Kind 2.8: PyTorch's expandable segments: one reservation, mapped piece by piece."""
    start()
    take = kernels()
    address = out("cuMemAddressReserve", 64 * MIB, 0, 0, 0)
    access = Access(Location(1, 0), 3)
    handles = []
    for piece in range(4):
        result, handle = physical(2 * MIB, Location(1, 0))
        same(result, 0)
        ok("cuMemMap", address + piece * 2 * MIB, 2 * MIB, 0, handle, 0)
        ok("cuMemSetAccess", address + piece * 2 * MIB, 2 * MIB, ctypes.byref(access), 1)
        handles.append(handle)
    other = alloc(8 * MIB)
    count = 4 * 2 * MIB // 4
    launch(take("fill"), other, count, 5, blocks=count // 256)
    launch(take("fill"), address, count, 3, blocks=count // 256)  # across the seams
    launch(take("add"), address, other, count, blocks=count // 256)
    launch(take("add"), other, address, count, blocks=count // 256)
    same(set(words(address, count)), {8})
    same(set(words(other, count)), {13})
    for piece, handle in enumerate(handles):
        ok("cuMemUnmap", address + piece * 2 * MIB, 2 * MIB)
        ok("cuMemRelease", handle)
    ok("cuMemAddressFree", address, 64 * MIB)


def case_host_memory_in_kernels() -> None:
    """Kind 2.13: pinned, registered and managed memory straight in kernel arguments."""
    start()
    take = kernels()
    device = alloc(1024)
    registered = (ctypes.c_uint32 * 1024)()
    ok("cuMemHostRegister_v2", registered, ctypes.sizeof(registered), 0)
    pinned = out("cuMemHostAlloc", 1024, 0)
    managed = out("cuMemAllocManaged", 1024, 1)
    for round_ in range(4):
        for address in (pinned, managed, ctypes.addressof(registered)):
            launch(take("fill"), device, 256, 10 + round_)
            launch(take("fill"), address, 256, round_)
            launch(take("add"), address, device, 256)
            launch(take("add"), device, address, 256)
            ok("cuCtxSynchronize")
            seen = (ctypes.c_uint32 * 256).from_address(address)
            same(set(seen), {10 + 2 * round_})
            same(set(words(device, 256)), {20 + 3 * round_})
    ok("cuMemHostUnregister", registered)


def case_free_elsewhere() -> None:
    """cuMemFree from another context, and from a thread without one."""
    start()
    a, b = alloc(4096), alloc(4096)
    thread = threading.Thread(target=lambda: ok("cuMemFree_v2", a))
    thread.start()
    thread.join()
    other = out("cuCtxCreate_v2", 0, 1)
    ok("cuMemFree_v2", b)
    expect(INVALID_VALUE, "cuMemFree_v2", b)
    ok("cuCtxDestroy_v2", other)


def case_two_devices() -> None:
    """Peers reach memory of cuMemAlloc and of the default pool."""
    first = start(0)
    stream = out("cuStreamCreate", 1)
    plain, ordered = alloc(4096), out("cuMemAllocAsync", 4096, stream)
    ok("cuStreamSynchronize", stream)
    pool = out("cuDeviceGetDefaultMemPool", 0)
    access = Access(Location(1, 1), 3)
    print(call("cuMemPoolSetAccess", pool, ctypes.byref(access), 1))
    later = out("cuMemAllocAsync", 4096, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuCtxSetCurrent", out("cuDevicePrimaryCtxRetain", 1))
    ok("cuCtxEnablePeerAccess", first, 0)
    fill = kernels()("fill")
    for i, address in enumerate((plain, ordered, later)):
        launch(fill, address, 1024, 40 + i, blocks=4)
        ok("cuCtxSynchronize")
        same(set(words(address, 1024)), {40 + i})


def import_handle() -> None:
    """The other process of case_ipc."""
    start()
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(sys.argv[2]))
    address = out("cuIpcOpenMemHandle_v2", handle, 1)
    again = out("cuIpcOpenMemHandle_v2", handle, 1)
    base, size = ctypes.c_uint64(), ctypes.c_uint64()
    ok("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), again + 8)
    print(base.value == again, size.value, words(address, 4))
    take = kernels()
    mine = alloc(4096)
    launch(take("fill"), mine, 1024, 100, blocks=4)
    launch(take("add"), again, mine, 1024, blocks=4)
    ok("cuCtxSynchronize")
    same(set(words(address, 1024)), {107})
    ok("cuIpcCloseMemHandle", address)
    if again != address:
        ok("cuIpcCloseMemHandle", again)
    expect(INVALID_VALUE, "cuIpcOpenMemHandle_v2", ctypes.byref(ctypes.c_uint64()), IpcHandle(), 1)


def case_ipc() -> None:
    """Legacy IPC: another process reads and writes an allocation of this one."""
    start()
    take = kernels()
    alloc(100)  # so that the allocation is not the first of its block
    block = alloc(4096)
    launch(take("fill"), block, 1024, 7, blocks=4)
    handle = IpcHandle()
    ok("cuIpcGetMemHandle", ctypes.byref(handle), block + 12)
    expect(INVALID_CONTEXT, "cuIpcOpenMemHandle_v2", ctypes.byref(ctypes.c_uint64()), handle, 1)
    command = [sys.executable, str(Path(__file__).resolve()), "import", bytes(handle).hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    print(done.returncode, done.stdout, done.stderr if done.returncode else "")
    same(set(words(block, 1024)), {107})
    for value in (1, 2, 3):  # it may be changed from outside: it stays home and stays right
        launch(take("fill"), block, 1024, value, blocks=4)
        same(set(words(block, 1024)), {value})
    ok("cuMemFree_v2", block)


def case_register_patterns() -> None:
    """Kind 2.12: tiny, unaligned, adjacent, overlapping registrations; an allocation of nothing."""
    start()
    page = (ctypes.c_ubyte * 8192)()
    at = ctypes.addressof(page)
    print(
        [
            call("cuMemHostRegister_v2", at + o, n, 0)
            for o, n in ((100, 4), (200, 80), (280, 20), (100, 4), (90, 12))
        ]
    )
    print([call("cuMemHostUnregister", at + o) for o in (210, 200, 280, 100, 100)])
    address = ctypes.c_uint64(5)
    print(call("cuMemHostAlloc", ctypes.byref(address), 0, 0), address.value)
    page[100] = 1  # the page is the program's own, and writable


def case_leak() -> None:
    """A hundred thousand pairs of each kind leave the process and the device as they were."""
    start()
    stream = out("cuStreamCreate", 1)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def pairs(count: int) -> None:
        for i in range(count):
            ok("cuMemFree_v2", alloc(256 + i % 7 * 512))
            block = out("cuMemAllocAsync", 1024 + i % 5 * 4096, stream)
            ok("cuMemFreeAsync", block, stream)
        ok("cuStreamSynchronize", stream)

    pairs(5000)
    before, free = resident(), free_memory()
    pairs(int(os.environ.get("CASES_PAIRS", "20000")))
    grown = resident() - before
    same(grown < 2 * MIB, True, f"grown by {grown} bytes;")
    same(free_memory(), free)


if __name__ == "__main__":
    if sys.argv[1] == "import":
        import_handle()
    else:
        main(globals())
