# SPDX-License-Identifier: Apache-2.0
"""Order: streams of every kind, events, host functions, threads."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

from support import (
    LEGACY,
    NON_BLOCKING,
    NOT_READY,
    PER_THREAD,
    alloc,
    call,
    kernels,
    launch,
    main,
    ok,
    out,
    same,
    start,
    words,
)

COUNT = 4096
BYTES = 4 * COUNT
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
NO_TIMING = 2


class Machine:
    def __init__(self) -> None:
        self.context = start()
        take = kernels()
        self._fill, self._add = take("fill"), take("add")

    def fill(self, x: int, value: int, stream: int) -> None:
        launch(self._fill, x, COUNT, value, blocks=COUNT // 256, stream=stream)

    def add(self, x: int, y: int, stream: int) -> None:
        launch(self._add, x, y, COUNT, blocks=COUNT // 256, stream=stream)


def pinned() -> Any:
    return (ctypes.c_uint32 * COUNT).from_address(out("cuMemHostAlloc", BYTES, 0))


def case_legacy_and_blocking() -> None:
    """Kind 4.1: an event in the legacy stream covers the blocking streams, and them alone."""
    machine = Machine()
    streams = [out("cuStreamCreate", 0) for _ in range(4)]
    buffers = [alloc(BYTES) for _ in streams]
    hosts = [pinned() for _ in streams]
    event = out("cuEventCreate", NO_TIMING)
    for value in range(20):
        for stream, buffer, host in zip(streams, buffers, hosts, strict=True):
            machine.fill(buffer, 2500 + value, stream)
            ok("cuMemcpyDtoHAsync_v2", host, buffer, BYTES, stream)
        ok("cuEventRecord", event, LEGACY if value % 2 else 0)
        ok("cuEventSynchronize", event)
        for host in hosts:
            same(set(host), {2500 + value})


def case_legacy_joins_both_ways() -> None:
    """Work in the legacy stream waits for blocking streams, and they for it."""
    machine = Machine()
    stream = out("cuStreamCreate", 0)
    a, b = alloc(BYTES), alloc(BYTES)
    for value in range(1, 20):
        machine.fill(a, value, stream)
        machine.fill(b, 100, 0)
        machine.add(b, a, 0)  # after the fill of a
        machine.add(a, b, stream)  # after the sum in b
        same(set(words(a, COUNT)), {2 * value + 100})


def case_non_blocking_is_free() -> None:
    """A non-blocking stream does not wait for the legacy stream, nor the other way."""
    machine = Machine()
    free = out("cuStreamCreate", NON_BLOCKING)
    a, gate = alloc(BYTES), threading.Event()
    hold = HOST_FUNCTION(lambda _data: gate.wait(20) and None)
    ok("cuLaunchHostFunc", 0, hold, None)
    machine.fill(a, 3, free)
    ok("cuStreamSynchronize", free)
    same(call("cuStreamQuery", 0), NOT_READY)
    gate.set()
    ok("cuStreamSynchronize", 0)
    same(set(words(a, COUNT)), {3})


def case_per_thread() -> None:
    """Per-thread default streams of four threads, joined by the legacy stream."""
    machine = Machine()
    buffers = [alloc(BYTES) for _ in range(4)]

    def work(index: int) -> None:
        ok("cuCtxSetCurrent", machine.context)
        for value in range(10):
            machine.fill(buffers[index], value, PER_THREAD)
            machine.add(buffers[index], buffers[index], PER_THREAD)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    machine.add(buffers[0], buffers[1], 0)
    same(set(words(buffers[0], COUNT)), {36})


def case_event_covers_its_past() -> None:
    """Kind 4.2: an event covers the work before its record, not what comes later or elsewhere."""
    machine = Machine()
    one, two = (out("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    a, b, gate = alloc(BYTES), alloc(BYTES), threading.Event()
    hold = HOST_FUNCTION(lambda _data: gate.wait(20) and None)
    event = out("cuEventCreate", NO_TIMING)
    host = pinned()
    machine.fill(a, 1, one)
    ok("cuMemcpyDtoHAsync_v2", host, a, BYTES, one)
    ok("cuEventRecord", event, one)
    ok("cuLaunchHostFunc", one, hold, None)
    ok("cuLaunchHostFunc", two, hold, None)
    machine.fill(a, 2, one)
    machine.fill(b, 2, two)
    ok("cuEventSynchronize", event)
    same(set(host), {1})
    same(call("cuStreamQuery", one), NOT_READY)
    gate.set()
    ok("cuCtxSynchronize")
    same((set(words(a, COUNT)), set(words(b, COUNT))), ({2}, {2}))


def case_event_again_and_gone() -> None:
    """An event recorded anew, and destroyed while it is pending and waited for."""
    machine = Machine()
    one, two = (out("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    a, b = alloc(BYTES), alloc(BYTES)
    for value in range(1, 15):
        event = out("cuEventCreate", NO_TIMING)
        machine.fill(a, value, one)
        ok("cuEventRecord", event, one)
        ok("cuStreamWaitEvent", two, event, 0)
        machine.fill(b, 0, two)
        machine.add(b, a, two)
        ok("cuEventRecord", event, two)  # the same event, another meaning
        ok("cuStreamWaitEvent", one, event, 0)
        ok("cuEventDestroy_v2", event)
        machine.fill(a, 77, one)  # must not overtake the sum
        ok("cuStreamSynchronize", two)
        same(set(words(b, COUNT)), {value})
    ok("cuCtxSynchronize")


def case_host_functions() -> None:
    """Kinds 4.4, 4.5: host functions and callbacks run in order and see earlier copies."""
    machine = Machine()
    stream = out("cuStreamCreate", NON_BLOCKING)
    a, host, seen = alloc(BYTES), pinned(), []

    def look(_data: object) -> None:
        seen.append((host[0], host[COUNT - 1]))

    function = HOST_FUNCTION(look)
    callback = CALLBACK(lambda _stream, status, _data: seen.append((status, host[5])))
    for value in range(10):
        machine.fill(a, value, stream)
        ok("cuMemcpyDtoHAsync_v2", host, a, BYTES, stream)
        ok("cuLaunchHostFunc", stream, function, None)
        ok("cuStreamAddCallback", stream, callback, None, 0)
    ok("cuStreamSynchronize", stream)
    same(seen, [pair for value in range(10) for pair in ((value, value), (0, value))])


def case_host_function_of_a_graph() -> None:
    """Kind 4.4: a captured megabyte to the host, then a host function that checks it."""
    machine = Machine()
    stream = out("cuStreamCreate", NON_BLOCKING)
    size = 1 << 20
    host = (ctypes.c_uint32 * (size // 4)).from_address(out("cuMemHostAlloc", size, 0))
    a, seen = alloc(size), []
    function = HOST_FUNCTION(
        lambda _data: seen.append((host[0], host[size // 4 - 1], sum(host[:64])))
    )
    ok("cuStreamBeginCapture_v2", stream, 0)
    ok("cuMemcpyDtoHAsync_v2", host, a, size, stream)
    ok("cuLaunchHostFunc", stream, function, None)
    graph = ctypes.c_uint64()
    ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    instance = out("cuGraphInstantiateWithFlags", graph.value, 0)
    for value in (3, 4, 5):
        ok("cuMemsetD32Async", a, value, size // 4, stream)
        machine.fill(a, value, stream)
        ok("cuGraphLaunch", instance, stream)
        ok("cuStreamSynchronize", stream)
    same(seen, [(v, v, 64 * v) for v in (3, 4, 5)])


def case_host_holds_the_device() -> None:
    """A kernel behind a host function that waits for this thread, which goes on launching."""
    machine = Machine()
    one, two = (out("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    a, b, gate = alloc(BYTES), alloc(BYTES), threading.Event()
    hold = HOST_FUNCTION(lambda _data: gate.wait(20) and None)
    ok("cuLaunchHostFunc", one, hold, None)
    machine.fill(a, 1, one)
    for value in range(10):
        machine.fill(b, value, two)
        ok("cuStreamSynchronize", two)
    gate.set()
    ok("cuStreamSynchronize", one)
    same((set(words(a, COUNT)), set(words(b, COUNT))), ({1}, {9}))


def case_wait_values() -> None:
    """A stream held by a value that another stream, or the host, writes."""
    machine = Machine()
    one, two = (out("cuStreamCreate", NON_BLOCKING) for _ in range(2))
    a, flag = alloc(BYTES), alloc(16)
    ok("cuMemsetD32_v2", flag, 0, 4)
    for value in range(1, 8):
        ok("cuStreamWaitValue32_v2", two, flag, value, 0)
        machine.add(a, a, two)
        machine.fill(a, value, one)
        ok("cuStreamWriteValue32_v2", one, flag, value, 0)
        ok("cuStreamSynchronize", two)
        same(set(words(a, COUNT)), {2 * value})


def case_from_other_threads() -> None:
    """One thread launches, another waits and reads, with events between them."""
    machine = Machine()
    stream = out("cuStreamCreate", NON_BLOCKING)
    a, b = alloc(BYTES), alloc(BYTES)
    events = [out("cuEventCreate", NO_TIMING) for _ in range(30)]
    recorded = [threading.Event() for _ in events]
    wrong: list[int] = []

    def wait() -> None:
        ok("cuCtxSetCurrent", machine.context)
        for value, event in enumerate(events):
            recorded[value].wait(30)
            ok("cuEventSynchronize", event)
            seen = words(b, 1)[0]
            if seen < value:
                wrong.append(value)

    thread = threading.Thread(target=wait)
    thread.start()
    for value, event in enumerate(events):
        machine.fill(a, value, stream)
        ok("cuMemcpyDtoDAsync_v2", b, a, BYTES, stream)
        ok("cuEventRecord", event, stream)
        recorded[value].set()
    thread.join()
    same(wrong, [])


def case_priorities() -> None:
    least, greatest = ctypes.c_int(), ctypes.c_int()
    machine = Machine()
    ok("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    a = alloc(BYTES)
    for wanted in (least.value, greatest.value, 5, -100):
        stream = out("cuStreamCreateWithPriority", NON_BLOCKING, wanted)
        got = ctypes.c_int()
        ok("cuStreamGetPriority", stream, ctypes.byref(got))
        machine.fill(a, 3, stream)
        ok("cuStreamSynchronize", stream)
        print(wanted, got.value, words(a, 1))
        ok("cuStreamDestroy_v2", stream)


def case_stream_destroyed_with_work() -> None:
    """Work of a destroyed stream is still done, and waited for by the context."""
    machine = Machine()
    a, b = alloc(BYTES), alloc(BYTES)
    for value in range(1, 30):
        stream = out("cuStreamCreate", NON_BLOCKING)
        machine.fill(a, value, stream)
        machine.fill(b, 1, stream)
        machine.add(a, b, stream)
        ok("cuStreamDestroy_v2", stream)
        ok("cuCtxSynchronize")
        same(set(words(a, COUNT)), {value + 1})


def case_elapsed_time() -> None:
    """Times between events are those of work in between, wherever it ran: more than none."""
    machine = Machine()
    stream = out("cuStreamCreate", NON_BLOCKING)
    a = alloc(BYTES)
    first, last = out("cuEventCreate", 0), out("cuEventCreate", 0)
    ok("cuEventRecord", first, stream)
    for value in range(20):
        machine.fill(a, value, stream)
    ok("cuEventRecord", last, stream)
    ok("cuEventSynchronize", last)
    elapsed = ctypes.c_float()
    ok("cuEventElapsedTime", ctypes.byref(elapsed), first, last)
    same(elapsed.value > 0, True, f"{elapsed.value} ms;")


def case_many_streams() -> None:
    """Five hundred streams made, used and destroyed."""
    machine = Machine()
    a = alloc(BYTES)
    begin = time.monotonic()
    for value in range(500):
        stream = out("cuStreamCreate", value % 2)
        machine.fill(a, value, stream)
        ok("cuStreamSynchronize", stream)
        ok("cuStreamDestroy_v2", stream)
    same(set(words(a, COUNT)), {499})
    same(time.monotonic() - begin < 30, True)


if __name__ == "__main__":
    main(globals())
