# SPDX-License-Identifier: Apache-2.0
"""Errors: the same code at the same kind of call, wherever the kernel ran."""

from __future__ import annotations

import ctypes

from support import (
    KERNELS,
    NON_BLOCKING,
    alloc,
    call,
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


def after(stream: int, address: int) -> list[int]:
    """What the kinds of call say once the device has failed."""
    host = (ctypes.c_uint32 * 4)()
    return [
        call("cuStreamSynchronize", stream),
        call("cuStreamQuery", stream),
        call("cuCtxSynchronize"),
        call("cuMemcpyDtoH_v2", host, address, 16),
        call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 64),
        call("cuMemFree_v2", address),
        call("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), KERNELS),
        call("cuMemsetD8Async", address, 0, 16, stream),
        call("cuStreamSynchronize", stream),
    ]


def fail(kernel: str, address: int | None) -> None:
    start()
    take = kernels()
    stream = out("cuStreamCreate", NON_BLOCKING)
    x = alloc(1024)
    launch(take("fill"), x, 256, 5, stream=stream)
    ok("cuStreamSynchronize", stream)
    if address is None:
        launch(take(kernel), stream=stream, threads=1)
    else:
        launch(
            take(kernel),
            ctypes.c_uint64(address if address < 1 << 40 else x + 1),
            256,
            5,
            stream=stream,
        )
    print(after(stream, x))


def case_illegal_address() -> None:
    fail("fill", 0x10)


def case_misaligned_address() -> None:
    fail("fill", 1 << 50)


def case_trap() -> None:
    fail("trap_now", None)


def case_freed_memory() -> None:
    """A kernel on memory that was given back to the device."""
    start()
    take = kernels()
    x = alloc(64 << 20)
    ok("cuMemFree_v2", x)
    launch(take("fill"), ctypes.c_uint64(x), 256, 5)
    print(call("cuCtxSynchronize"))


def case_refused_is_not_sticky() -> None:
    """What the driver refuses leaves no mark."""
    start()
    take = kernels()
    x = alloc(1024)
    host = (ctypes.c_uint32 * 4)()
    for value in range(5):
        print(
            call("cuMemcpyDtoH_v2", host, 0x1234, 16),
            call("cuMemFree_v2", x + 8),
            call("cuModuleGetFunction", ctypes.byref(ctypes.c_uint64()), 0, b"x"),
            call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 1 << 50),
            call("cuEventElapsedTime", ctypes.byref(ctypes.c_float()), 0, 0),
        )
        launch(take("fill"), x, 256, value)
        same(set(words(x, 256)), {value})


def case_null_out_parameters() -> None:
    """Kind 2.5: what the driver takes as null or refuses, it takes or refuses under the shim."""
    start()
    x = alloc(64)
    stream = out("cuStreamCreate", NON_BLOCKING)
    answers = [
        call("cuMemAlloc_v2", 0, 64),
        call("cuMemAllocPitch_v2", 0, 0, 64, 64, 4),
        call("cuMemAllocPitch_v2", ctypes.byref(ctypes.c_uint64()), 0, 64, 64, 4),
        call("cuMemAllocAsync", 0, 64, stream),
        call("cuMemGetInfo_v2", 0, 0),
        call("cuMemGetAddressRange_v2", 0, 0, x),
        call("cuPointerGetAttribute", 0, 2, x),
        call("cuPointerGetAttributes", 1, 0, 0, x),
        call("cuIpcGetMemHandle", 0, x),
        call("cuModuleLoadData", 0, b""),
        call("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), 0),
        call("cuStreamEndCapture", stream, 0),
        call("cuMemPoolGetAttribute", out("cuDeviceGetDefaultMemPool", 0), 5, 0),
        call("cuLaunchHostFunc", stream, 0, 0),
        call("cuMemcpyHtoD_v2", x, 0, 16),
        call("cuMemFree_v2", 0),
        call("cuMemFreeAsync", 0, stream),
    ]
    print(answers)


def case_module_errors() -> None:
    """Images that are none; and after them everything works."""
    start()
    images = [b"", b"hello", b"\x7fELF", b"\x50\xed\x55\xba\x63\0\x10\0" + b"\0" * 8]
    images.append(b".version 99.9\n.target sm_75\n.address_size 64\n")
    images.append(
        b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { frobnicate; }\n"
    )
    for image in images:
        print(call("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), image + b"\0" * 64))
    x = alloc(1024)
    launch(kernels()("fill"), x, 256, 9)
    same(set(words(x, 256)), {9})


def case_new_context_after_reset() -> None:
    """A context reset and made anew: memory, modules and launches begin again."""
    for value in range(1, 4):
        start()
        take = kernels()
        x, y = alloc(1024), alloc(1024)
        launch(take("fill"), x, 256, value)
        launch(take("fill"), y, 256, value)
        launch(take("add"), x, y, 256)
        same(set(words(x, 256)), {2 * value})
        ok("cuDevicePrimaryCtxReset_v2", 0)
        print(call("cuMemFree_v2", x), call("cuCtxSynchronize"))


def case_context_detached() -> None:
    """cuCtxDetach, long deprecated, destroys what cuCtxCreate made."""
    start()
    before = free_memory()
    for value in range(1, 4):
        context = out("cuCtxCreate_v2", 0, 0)
        x = alloc(8 << 20)
        launch(kernels()("fill"), x, 256, value)
        same(set(words(x, 256)), {value})
        ok("cuCtxDetach", context)
    same(free_memory(), before)  # with all that it held


def case_contexts_of_one_device() -> None:
    """Two contexts of one device, used in turn; one goes, the other stays."""
    first = start()
    x = alloc(1024)
    fill = kernels()("fill")
    second = out("cuCtxCreate_v2", 0, 0)
    y = alloc(1024)
    fill2 = kernels()("fill")
    for value in range(1, 6):
        ok("cuCtxSetCurrent", first)
        launch(fill, x, 256, value)
        ok("cuCtxSetCurrent", second)
        launch(fill2, y, 256, 10 * value)
        same(set(words(y, 256)), {10 * value})
        ok("cuCtxSetCurrent", first)
        same(set(words(x, 256)), {value})
    ok("cuCtxDestroy_v2", second)
    print(call("cuMemFree_v2", y))
    launch(fill, x, 256, 99)
    same(set(words(x, 256)), {99})


if __name__ == "__main__":
    main(globals())
