# SPDX-License-Identifier: Apache-2.0
"""Batches of copies: bytes that were elsewhere, sources out of order, ends of allocations."""

from __future__ import annotations

import ctypes
from typing import Any

from support import (
    INVALID_VALUE,
    NON_BLOCKING,
    PER_THREAD,
    SUCCESS,
    alloc,
    call,
    expect,
    kernels,
    launch,
    main,
    ok,
    out,
    same,
    start,
    words,
)

COUNT = 1024
BYTES = 4 * COUNT
ROUNDS = 6
IN_ORDER, DURING_THE_CALL, ANY_TIME = 1, 2, 3
POINTER = 1
UNKNOWN = (1 << 64) - 1


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Attributes(ctypes.Structure):
    _fields_ = [
        ("order", ctypes.c_int),
        ("source", Location),
        ("target", Location),
        ("flags", ctypes.c_uint),
    ]


class Operand(ctypes.Structure):
    """A pointer; the other member of the union, an array with an offset, is as large."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("pointer", ctypes.c_uint64),
        ("row", ctypes.c_size_t),
        ("layer", ctypes.c_size_t),
        ("hint", Location),
    ]


class Box(ctypes.Structure):
    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]


def batch(copies: list[tuple[int, int, int]], orders: dict[int, int], stream: int) -> int:
    """The driver's answer to copies of (target, source, bytes); `orders`: by the first copy."""
    count, kinds = len(copies), len(orders)
    columns = [(ctypes.c_uint64 * count)(*column) for column in zip(*copies, strict=True)]
    attributes = (Attributes * kinds)(*[Attributes(order) for order in orders.values()])
    first = (ctypes.c_size_t * kinds)(*orders)
    return call("cuMemcpyBatchAsync_v2", *columns, count, attributes, first, kinds, stream)


def box(target: int, source: int, width: int, height: int, depth: int, **rest: Any) -> Box:
    row, layer = rest.get("row", 0), rest.get("layer", 0)
    there = Operand(POINTER, target, row, layer)
    here = Operand(POINTER, source, row, layer)
    return Box(here, there, width, height, depth, rest.get("order", IN_ORDER))


def boxes(*list_: Box, stream: int) -> int:
    return call("cuMemcpy3DBatchAsync_v2", len(list_), (Box * len(list_))(*list_), 0, stream)


class Machine:
    def __init__(self) -> None:
        start()
        self._fill = kernels()("fill")
        self.stream = out("cuStreamCreate", NON_BLOCKING)

    def fill(self, x: int, value: int) -> None:
        launch(self._fill, x, COUNT, value, blocks=COUNT // 256, stream=self.stream)


def case_flat() -> None:
    """Sources that kernels wrote elsewhere, targets that were valid elsewhere."""
    machine = Machine()
    a, b, c, d = (alloc(BYTES) for _ in range(4))
    for value in range(1, ROUNDS):
        machine.fill(a, value)
        machine.fill(b, value + 100)
        machine.fill(c, 7)
        machine.fill(d, 8)
        same(
            batch([(c, a, BYTES), (d + 64, b, BYTES - 64)], {0: IN_ORDER}, machine.stream), SUCCESS
        )
        machine.fill(a, 0)  # behind the batch
        ok("cuStreamSynchronize", machine.stream)
        same(set(words(c, COUNT)), {value})
        same(words(d, COUNT), [8] * 16 + [value + 100] * (COUNT - 16))
        same(set(words(a, COUNT)), {0})


def case_out_of_order() -> None:
    """A source that the driver may read at once has to be home before the call."""
    machine = Machine()
    a, b, c, d = (alloc(BYTES) for _ in range(4))
    host = (ctypes.c_uint32 * COUNT)()
    for value in range(1, ROUNDS):
        machine.fill(a, value)
        machine.fill(b, value + 100)
        ok("cuStreamSynchronize", machine.stream)
        host[:] = [value + 200] * COUNT
        copies = [(c, a, BYTES), (d, b, BYTES), (b, ctypes.addressof(host), BYTES)]
        orders = {0: ANY_TIME, 1: DURING_THE_CALL, 2: DURING_THE_CALL}
        same(batch(copies[:2], {0: ANY_TIME, 1: DURING_THE_CALL}, machine.stream), SUCCESS)
        ok("cuStreamSynchronize", machine.stream)
        same(set(words(c, COUNT)), {value})
        same(set(words(d, COUNT)), {value + 100})
        same(batch([copies[0], copies[2]], {0: orders[0], 1: orders[2]}, machine.stream), SUCCESS)
        host[:] = [0] * COUNT
        ok("cuStreamSynchronize", machine.stream)
        same(set(words(b, COUNT)), {value + 200})


def case_boxes() -> None:
    """Rows and layers with gaps: what lies in the gaps of the target stays."""
    machine = Machine()
    a, b = alloc(BYTES), alloc(BYTES)
    for value in range(1, ROUNDS):
        machine.fill(a, value)
        machine.fill(b, 9)
        tiles = box(b, a, 16, 4, 2, row=64, layer=8)
        same(boxes(tiles, box(b + 2048, a + 2048, 1024, 1, 1), stream=machine.stream), SUCCESS)
        ok("cuStreamSynchronize", machine.stream)
        wanted = [9] * 512 + [value] * 256 + [9] * 256
        for layer in range(2):
            for row in range(4):
                at = (layer * 8 + row) * 16
                wanted[at : at + 4] = [value] * 4
        same(words(b, COUNT), wanted)


def case_per_thread() -> None:
    machine = Machine()
    a, b = alloc(BYTES), alloc(BYTES)
    machine.fill(a, 5)
    ok("cuStreamSynchronize", machine.stream)
    same(batch([(b, a, BYTES)], {0: IN_ORDER}, PER_THREAD), SUCCESS)
    same(boxes(box(a, b, BYTES, 1, 1), stream=PER_THREAD), SUCCESS)
    ok("cuStreamSynchronize", PER_THREAD)
    same((set(words(b, COUNT)), set(words(a, COUNT))), ({5}, {5}))


def case_ends() -> None:
    """What leaves an allocation is refused, and the neighbour stays as it was."""
    machine = Machine()
    a, b = alloc(BYTES), alloc(BYTES)
    machine.fill(a, 1)
    machine.fill(b, 2)
    stream = machine.stream
    print(batch([(b, a, BYTES + 4)], {0: IN_ORDER}, stream))
    print(batch([(b, a + 4, BYTES)], {0: IN_ORDER}, stream))
    print(batch([(b + 4, a, BYTES)], {0: ANY_TIME}, stream))
    print(boxes(box(b, a, 64, 64, 1, row=65), stream=stream))
    print(boxes(box(b, a, 64, 4, 16, row=64, layer=5), stream=stream))
    print(boxes(box(b, a, 64, 4, 16, row=64, layer=4), stream=stream))
    ok("cuStreamSynchronize", stream)
    same(set(words(a, COUNT)), {1})
    same(set(words(b, COUNT)), {1})


def case_refused() -> None:
    """Wrong arguments, and a batch that fails half way, of both versions."""
    machine = Machine()
    a, b = alloc(BYTES), alloc(BYTES)
    machine.fill(a, 3)
    machine.fill(b, 4)
    good, bad = (b, a, BYTES), (0, a, BYTES)
    for copies, orders in (
        ([good], {1: IN_ORDER}),
        ([good], {0: IN_ORDER, 1: 1, 2: 1}),
        ([bad], {0: 1}),
    ):
        same(batch(copies, orders, machine.stream), INVALID_VALUE)
    same(batch([good], {0: IN_ORDER}, 0), INVALID_VALUE)
    expect(INVALID_VALUE, "cuMemcpyBatchAsync_v2", 0, 0, 0, 1, 0, 0, 1, machine.stream)
    expect(INVALID_VALUE, "cuMemcpy3DBatchAsync_v2", 1, 0, 0, machine.stream)
    same(boxes(box(b, a, 0, 1, 1), stream=machine.stream), INVALID_VALUE)
    same(boxes(box(b, a, 8, 1, 1, order=0), stream=machine.stream), INVALID_VALUE)
    columns = [(ctypes.c_uint64 * 1)(value) for value in good]
    failed = ctypes.c_size_t()
    arguments = (*columns, 1, (Attributes * 1)(Attributes(IN_ORDER)), (ctypes.c_size_t * 1)(0), 1)
    ok("cuMemcpyBatchAsync", *arguments, ctypes.byref(failed), machine.stream)
    same(failed.value, UNKNOWN)
    ok("cuStreamSynchronize", machine.stream)
    same(set(words(b, COUNT)), {3})


if __name__ == "__main__":
    main(globals())
