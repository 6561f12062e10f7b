# SPDX-License-Identifier: Apache-2.0
"""Graphs among kernels that move: memory nodes, updates, several streams, copies of graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from support import NON_BLOCKING, alloc, call, kernels, launch, main, ok, out, same, start, words

COUNT = 1024
BYTES = 4 * COUNT
ROUNDS = 5
RELAXED = 2


class Machine:
    def __init__(self) -> None:
        start()
        take = kernels()
        self._fill, self._add = take("fill"), take("add")
        self.stream, self.other = (out("cuStreamCreate", NON_BLOCKING) for _ in range(2))

    def fill(self, x: int, value: int, stream: int | None = None) -> None:
        stream = self.stream if stream is None else stream
        launch(self._fill, x, COUNT, value, blocks=COUNT // 256, stream=stream)

    def add(self, x: int, y: int, stream: int | None = None) -> None:
        stream = self.stream if stream is None else stream
        launch(self._add, x, y, COUNT, blocks=COUNT // 256, stream=stream)

    def graph(self, work: Callable[[], None]) -> int:
        """What `work` gives to the stream, as a graph."""
        ok("cuStreamBeginCapture_v2", self.stream, RELAXED)
        work()
        graph = ctypes.c_uint64()
        ok("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return graph.value


def instance(graph: int) -> int:
    return out("cuGraphInstantiateWithFlags", graph, 0)


def case_memory_nodes() -> None:
    """A graph that allocates, uses and frees; its memory has nothing to do with that around it."""
    machine = Machine()
    x = alloc(BYTES)

    def work() -> None:
        own = out("cuMemAllocAsync", BYTES, machine.stream)
        machine.fill(own, 7)
        machine.add(x, own)
        ok("cuMemFreeAsync", own, machine.stream)

    replay = instance(machine.graph(work))
    for value in range(ROUNDS):
        machine.fill(x, value)
        ok("cuGraphLaunch", replay, machine.stream)
        machine.add(x, x)
        ok("cuStreamSynchronize", machine.stream)
        same(set(words(x, COUNT)), {2 * (value + 7)})
    ok("cuDeviceGraphMemTrim", 0)


def case_update() -> None:
    """An instance takes the parameters of another graph; of one with other nodes it does not."""
    machine = Machine()
    x, y = alloc(BYTES), alloc(BYTES)
    replay = instance(machine.graph(lambda: machine.fill(x, 1)))
    answer = (ctypes.c_uint64 * 4)()
    for value in range(2, 2 + ROUNDS):
        machine.fill(x, 0)
        machine.fill(y, 0)
        target = y if value % 2 else x
        newer = machine.graph(lambda to=target, what=value: machine.fill(to, what))  # type: ignore[misc]
        ok("cuGraphExecUpdate_v2", replay, newer, answer)
        ok("cuGraphLaunch", replay, machine.stream)
        ok("cuStreamSynchronize", machine.stream)
        same((words(target, 1), set(words(x + y - target, COUNT))), ([value], {0}))
        ok("cuGraphDestroy", newer)

    def two() -> None:
        machine.fill(x, 50)
        machine.fill(y, 51)

    print("other nodes", call("cuGraphExecUpdate_v2", replay, machine.graph(two), answer))
    ok("cuGraphLaunch", replay, machine.stream)
    ok("cuStreamSynchronize", machine.stream)
    same({words(x, 1)[0], words(y, 1)[0]} & {50, 51}, set())


def case_on_streams() -> None:
    """One instance in two streams in turn, among kernels on the same memory."""
    machine = Machine()
    x, y = alloc(BYTES), alloc(BYTES)
    machine.fill(y, 1)
    replay = instance(machine.graph(lambda: machine.add(x, y)))
    done = out("cuEventCreate", 2)
    for value in range(ROUNDS):
        machine.fill(x, value)
        ok("cuGraphLaunch", replay, machine.stream)
        ok("cuEventRecord", done, machine.stream)
        ok("cuStreamWaitEvent", machine.other, done, 0)
        machine.add(x, y, machine.other)
        ok("cuGraphLaunch", replay, machine.other)
        ok("cuGraphLaunch", replay, machine.other)
        machine.add(x, y, machine.other)
        ok("cuStreamSynchronize", machine.other)
        same(set(words(x, COUNT)), {value + 5})


def case_copied_graph() -> None:
    """A clone lives on without its original, uploaded or not."""
    machine = Machine()
    x = alloc(BYTES)
    graph = machine.graph(lambda: machine.fill(x, 9))
    clone = out("cuGraphClone", graph)
    ok("cuGraphDestroy", graph)
    replay = instance(clone)
    print("upload", call("cuGraphUpload", replay, machine.stream))
    for value in range(ROUNDS):
        machine.fill(x, value)
        ok("cuGraphLaunch", replay, machine.stream)
        ok("cuStreamSynchronize", machine.stream)
        same(set(words(x, COUNT)), {9})
    ok("cuGraphExecDestroy", replay)


def case_conditional() -> None:
    """Where the driver has conditional nodes, a body runs or not, as the handle says."""
    machine = Machine()
    x = alloc(BYTES)
    machine.fill(x, 3)
    context, graph = ctypes.c_uint64(), out("cuGraphCreate", 0)
    ok("cuCtxGetCurrent", ctypes.byref(context))
    handle = ctypes.c_uint64()
    result = call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, context, 1, 1)
    print("handle", result)
    ok("cuStreamSynchronize", machine.stream)
    same(set(words(x, COUNT)), {3})


def case_managed() -> None:
    """Managed memory: written by kernel and host in turn, advised, prefetched, attached."""
    machine = Machine()
    flags: Any = 1
    x = out("cuMemAllocManaged", BYTES, flags)
    y = alloc(BYTES)
    host = (ctypes.c_uint32 * COUNT).from_address(x)
    for value in range(ROUNDS):
        host[:] = [value] * COUNT
        machine.fill(y, 10)
        machine.add(y, x)
        machine.add(x, y)
        ok("cuStreamSynchronize", machine.stream)
        same(
            (host[0], host[COUNT - 1], set(words(y, COUNT))),
            (2 * value + 10,) * 2 + ({value + 10},),
        )
    print("attach", call("cuStreamAttachMemAsync", machine.stream, x, 0, 1))
    ok("cuStreamSynchronize", machine.stream)
    ok("cuMemFree_v2", x)


if __name__ == "__main__":
    main(globals())
