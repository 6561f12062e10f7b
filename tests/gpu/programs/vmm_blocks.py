# SPDX-License-Identifier: Apache-2.0
"""Memory that the program maps itself, as JAX and as PyTorch's expandable segments do; prints sums.

The driver through ctypes, and no framework. What is printed is the same in every run.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

PIECE = 2 << 20
KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 x, .param .u32 n, .param .u32 value) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p1;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [value];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  mad.lo.s32 %r7, %r6, 40503, %r2;
  st.global.u32 [%rd3], %r7;
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
  mad.lo.s32 %r7, %r7, 3, %r8;
  st.global.u32 [%rd3], %r7;
done:
  ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def ok(name: str, *arguments: Any) -> None:
    held = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
    result = getattr(cuda, name)(*held)
    if result:
        raise SystemExit(f"{name}: error {result}")


def out(name: str, *arguments: Any) -> int:
    value = ctypes.c_uint64()
    ok(name, ctypes.byref(value), *arguments)
    return value.value


class Kernels:
    def __init__(self) -> None:
        module = out("cuModuleLoadData", KERNELS)
        self.functions = {
            name: out("cuModuleGetFunction", module, name.encode()) for name in ("fill", "add")
        }

    def launch(self, name: str, count: int, *addresses_and_value: int) -> None:
        *addresses, last = addresses_and_value
        held: list[Any] = [ctypes.c_uint64(a) for a in addresses]
        held += [ctypes.c_uint32(count), ctypes.c_uint32(last)] if name == "fill" else []
        if name == "add":
            held += [ctypes.c_uint64(last), ctypes.c_uint32(count)]
        pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(h) for h in held])
        blocks = (count + 255) // 256
        ok("cuLaunchKernel", self.functions[name], blocks, 1, 1, 256, 1, 1, 0, 0, pointers, 0)


def create(size: int, types: int) -> int:
    properties = Properties(type=1, handle_types=types, location=Location(1, 0))
    return out("cuMemCreate", size, ctypes.byref(properties), 0)


def place(address: int, size: int, handle: int) -> None:
    ok("cuMemMap", address, size, 0, handle, 0)
    ok("cuMemSetAccess", address, size, ctypes.byref(Access(Location(1, 0), 3)), 1)


def total(address: int, count: int) -> int:
    host = (ctypes.c_uint32 * count)()
    ok("cuMemcpyDtoH_v2", host, address, 4 * count)
    return sum(host) & 0xFFFFFFFFFFFF


def one_block(kernels: Kernels, size: int) -> None:
    """As JAX: one block with a file descriptor for handle, and arrays within it."""
    base, handle = out("cuMemAddressReserve", size, 0, 0, 0), create(size, 1)
    place(base, size, handle)
    count = 300_000
    arrays = [base + i * (size // 12 // 256 * 256 + 256) for i in range(11)]
    arrays.append(base + size - 4 * count)
    for turn in range(5):
        for i, array in enumerate(arrays):
            kernels.launch("fill", count, array, 100 * turn + i)
        for i in range(11):
            kernels.launch("add", count, arrays[i + 1], arrays[i])
        print("block", turn, [total(array, count) for array in arrays[::5]])
    ok("cuMemUnmap", base, size)
    ok("cuMemRelease", handle)
    ok("cuMemAddressFree", base, size)


def segment(kernels: Kernels, pieces: int) -> None:
    """As expandable segments: pieces without a shareable handle come, and some go."""
    base = out("cuMemAddressReserve", 64 << 30, 0, 0, 0)
    handles: dict[int, int] = {}
    for turn in range(pieces):
        for piece in range(turn + 2):
            if piece not in handles:
                handles[piece] = create(PIECE, 0)
                place(base + piece * PIECE, PIECE, handles[piece])
        count = (turn + 2) * PIECE // 4
        kernels.launch("fill", count, base, turn)
        kernels.launch("add", count // 2, base, base + 2 * count)
        print("segment", turn, total(base, count))
        ok("cuCtxSynchronize")
        gone = turn % (turn + 2)
        ok("cuMemUnmap", base + gone * PIECE, PIECE)
        ok("cuMemRelease", handles.pop(gone))
    for piece, handle in handles.items():
        ok("cuMemUnmap", base + piece * PIECE, PIECE)
        ok("cuMemRelease", handle)
    ok("cuMemAddressFree", base, 64 << 30)


def shared(kernels: Kernels) -> None:
    """Memory at two addresses, and memory that moves from one address to another."""
    first, second = (out("cuMemAddressReserve", PIECE, 0, 0, 0) for _ in range(2))
    handle, count = create(PIECE, 1), PIECE // 4
    place(first, PIECE, handle)
    kernels.launch("fill", count, first, 7)
    place(second, PIECE, handle)
    for turn in range(4):
        kernels.launch("fill", count, (first, second)[turn % 2], turn)
        print("two addresses", turn, total(first, count), total(second, count))
    ok("cuCtxSynchronize")
    ok("cuMemUnmap", first, PIECE)
    for turn in range(4):
        kernels.launch("fill", count, second, 40 + turn)
        ok("cuCtxSynchronize")
        ok("cuMemUnmap", second, PIECE)
        first, second = second, first
        place(second, PIECE, handle)
        print("moved", turn, total(second, count))
    ok("cuMemUnmap", second, PIECE)
    ok("cuMemRelease", handle)


def main() -> None:
    """`vmm_blocks.py [MIB]`: the size of the one large block."""
    ok("cuInit", 0)
    ok("cuCtxSetCurrent", out("cuDevicePrimaryCtxRetain", 0))
    kernels = Kernels()
    one_block(kernels, (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20)
    segment(kernels, 8)
    shared(kernels)


if __name__ == "__main__":
    main()
