# SPDX-License-Identifier: Apache-2.0
"""The driver through ctypes, and kernels, for the programs of this folder.

Each program is run as `python PROGRAM.py CASE`, without and with the shim. A case
raises when a value is wrong, and prints what must be the same both times.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Any

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
INVALID_CONTEXT, NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS = 201, 500, 600, 700
NON_BLOCKING = 1
LEGACY, PER_THREAD = 1, 2  # stream handles

KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 x, .param .u32 n, .param .u32 value) {
  .reg .b32 %r<7>; .reg .b64 %rd<4>; .reg .pred %p1;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [value];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
done:
  ret;
}
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n) {
  .reg .b32 %r<9>; .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd4, [y]; ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd4, %rd4;
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  add.s64 %rd5, %rd4, %rd2;
  ld.global.u32 %r7, [%rd3];
  ld.global.u32 %r8, [%rd5];
  add.u32 %r7, %r7, %r8;
  st.global.u32 [%rd3], %r7;
done:
  ret;
}
.visible .entry trap_now() { trap; }
.visible .entry wait_for(.param .u64 flag) {
  .reg .b32 %r1; .reg .b64 %rd1; .reg .pred %p1;
  ld.param.u64 %rd1, [flag];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
"""

_library = ctypes.CDLL("libcuda.so.1")


def _argument(value: Any) -> Any:
    return ctypes.c_uint64(value & 0xFFFFFFFFFFFFFFFF) if isinstance(value, int) else value


def call(name: str, *arguments: Any) -> int:
    """The driver's answer. Plain integers are passed as 64 bits."""
    return int(getattr(_library, name)(*[_argument(a) for a in arguments]))


def ok(name: str, *arguments: Any) -> None:
    expect(SUCCESS, name, *arguments)


def expect(wanted: int, name: str, *arguments: Any) -> None:
    result = call(name, *arguments)
    if result != wanted:
        raise AssertionError(f"{name}{arguments}: {result}, not {wanted}")


def out(name: str, *arguments: Any, kind: Any = ctypes.c_uint64) -> int:
    """The value that a successful call gives through its first parameter."""
    value = kind()
    ok(name, ctypes.byref(value), *arguments)
    return int(value.value or 0)


def same(value: Any, wanted: Any, what: str = "") -> None:
    if value != wanted:
        raise AssertionError(f"{what} {value!r}, not {wanted!r}")


def start(device: int = 0) -> int:
    """A process with the primary context of `device`, current in this thread."""
    ok("cuInit", 0)
    context = out("cuDevicePrimaryCtxRetain", device)
    ok("cuCtxSetCurrent", context)
    return context


def kernels(source: bytes = KERNELS) -> Callable[[str], int]:
    module = out("cuModuleLoadData", source)
    return lambda name: out("cuModuleGetFunction", module, name.encode())


def _held(value: Any) -> Any:
    """An integer as 32 bits, or as 64 when it needs them; ctypes objects as they are."""
    if not isinstance(value, int):
        return value
    return ctypes.c_uint64(value) if value > 0xFFFFFFFF else ctypes.c_uint32(value)


def pack(values: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    held = [_held(value) for value in values]
    pointers = (ctypes.c_void_p * max(len(held), 1))(*[ctypes.addressof(v) for v in held])
    return pointers, held


def launch(
    function: int, *values: Any, threads: int = 256, blocks: int = 1, stream: int = 0
) -> None:
    pointers, _held = pack(values)
    ok("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, 0)


def alloc(size: int) -> int:
    return out("cuMemAlloc_v2", size)


def words(address: int, count: int) -> list[int]:
    host = (ctypes.c_uint32 * count)()
    ok("cuMemcpyDtoH_v2", host, address, 4 * count)
    return list(host)


def free_memory() -> int:
    total = ctypes.c_uint64()
    free = ctypes.c_uint64()
    ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def main(cases: dict[str, Any]) -> None:
    signal.alarm(60)  # nothing here takes more than a few seconds: a hang ends as a failure
    cases["case_" + sys.argv[1]]()
    print("done", flush=True)
