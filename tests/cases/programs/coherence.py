# SPDX-License-Identifier: Apache-2.0
"""Where bytes are, while contexts go, threads share streams, blocks change hands and hosts wait.

Whether a launch moves is chance: each case is done several times over.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support import (
    KERNELS,
    NON_BLOCKING,
    PER_THREAD,
    alloc,
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
ROUNDS = 6
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MORE = b"""
.visible .entry slow(.param .u64 x, .param .u32 n, .param .u32 turns) {
  .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [turns];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r3, 1; mov.u32 %r4, 0;
turn:
  setp.ge.u32 %p1, %r4, %r2;
  @%p1 bra spun;
  mad.lo.u32 %r3, %r3, 1664525, 1013904223;
  add.u32 %r4, %r4, 1;
  bra turn;
spun:
  mov.u32 %r5, %tid.x; mov.u32 %r6, %ntid.x;
store:
  setp.ge.u32 %p2, %r5, %r1;
  @%p2 bra done;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r3;
  add.u32 %r5, %r5, %r6;
  bra store;
done:
  ret;
}
.visible .entry scatter(.param .u64 x, .param .u64 index, .param .u32 value) {
  .reg .b32 %r<4>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [index]; ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r3, [%rd4];
  mul.wide.u32 %rd5, %r3, 4;
  add.s64 %rd6, %rd1, %rd5;
  st.global.u32 [%rd6], %r1;
  ret;
}
.visible .entry through_pointer(.param .u64 table, .param .u32 value) {
  .reg .b32 %r1; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [table]; ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  ld.global.u64 %rd2, [%rd1];
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


class Machine:
    def __init__(self) -> None:
        self.context = start()
        take = kernels(KERNELS.rstrip(b"\0") + MORE)
        self._fill, self._slow = take("fill"), take("slow")
        self.wait_for = take("wait_for")
        self._scatter, self._through = take("scatter"), take("through_pointer")

    def fill(self, x: int, value: int, stream: int = 0) -> None:
        launch(self._fill, x, COUNT, value, blocks=COUNT // 256, stream=stream)

    def slow(self, x: int, stream: int, turns: int = 200_000) -> None:
        launch(self._slow, x, 32, turns, threads=32, stream=stream)

    def scatter(self, x: int, index: int, value: int, stream: int = 0) -> None:
        launch(self._scatter, x, index, value, threads=64, stream=stream)

    def through(self, table: int, value: int, stream: int) -> None:
        launch(self._through, table, value, threads=1, stream=stream)


def streams(count: int) -> Iterator[int]:
    return (out("cuStreamCreate", NON_BLOCKING) for _ in range(count))


def upload(address: int, values: list[int], word: type = ctypes.c_uint32) -> None:
    host = (word * len(values))(*values)
    ok("cuMemcpyHtoD_v2", address, host, ctypes.sizeof(host))


def case_other_context_destroyed() -> None:
    """Bytes that lie on a worker alone outlive a context that is not theirs."""
    machine = Machine()
    x = alloc(BYTES)
    for value in range(1, ROUNDS):
        other = out("cuCtxCreate_v2", 0, 0)
        ok("cuCtxSetCurrent", machine.context)
        machine.fill(x, value)
        ok("cuCtxDestroy_v2", other)
        same(set(words(x, COUNT)), {value})


def case_primary_retained_and_released() -> None:
    machine = Machine()
    x = alloc(BYTES)
    for value in range(1, ROUNDS):
        out("cuDevicePrimaryCtxRetain", 0)
        machine.fill(x, value)
        ok("cuDevicePrimaryCtxRelease_v2", 0)
        same(set(words(x, COUNT)), {value})


def case_joined_by_another_thread() -> None:
    """What one thread waits for does not let another's per-thread stream go on."""
    machine = Machine()
    x, y = alloc(BYTES), alloc(BYTES)
    results = []

    def other(value: int, begun: threading.Event) -> None:
        ok("cuCtxSetCurrent", machine.context)
        machine.slow(y, PER_THREAD)
        machine.fill(x, value, PER_THREAD)
        begun.set()
        time.sleep(0.01)
        ok("cuMemsetD32Async", x, value + 1000, COUNT // 2, PER_THREAD)
        ok("cuStreamSynchronize", PER_THREAD)
        results.append(words(x, COUNT))

    for value in range(1, ROUNDS):
        begun = threading.Event()
        thread = threading.Thread(target=other, args=(value, begun))
        thread.start()
        begun.wait()
        ok("cuCtxSynchronize")
        thread.join()
        same(results[-1][0], value + 1000)
        same(results[-1][-1], value)


def case_block_freed_in_order() -> None:
    """Copies that are still under way to a block end before its next user begins."""
    machine = Machine()
    x, target, table = alloc(BYTES), alloc(BYTES), alloc(64)
    upload(table, [target], ctypes.c_uint64)
    one, two = streams(2)
    for value in range(1, ROUNDS):
        machine.slow(x, two)
        block = out("cuMemAllocAsync", BYTES, one)
        machine.fill(block, value, one)
        machine.through(table, value, two)  # unknown: everything comes home
        ok("cuMemFreeAsync", block, one)
        block = out("cuMemAllocAsync", BYTES, one)
        ok("cuMemsetD32Async", block, 7, COUNT, one)
        ok("cuStreamSynchronize", one)
        ok("cuCtxSynchronize")
        same(set(words(block, COUNT)), {7})
        ok("cuMemFreeAsync", block, one)
        same(words(target, 1), [value])


@contextmanager
def copy_behind_the_host(
    context: int, stream: int, copied: Callable[[], set[int]]
) -> Iterator[list[set[int]]]:
    """A thread of its own makes a copy behind a function that waits for the end of this.

    `copied()` makes it, and returns the words that arrived: they are in the list afterwards.
    """
    go = threading.Event()
    wait = HOST_FUNCTION(lambda _data: go.wait() and None)
    arrived: list[set[int]] = []

    def copy() -> None:
        ok("cuCtxSetCurrent", context)
        ok("cuLaunchHostFunc", stream, wait, None)
        arrived.append(copied())

    thread = threading.Thread(target=copy)
    thread.start()
    time.sleep(0.01)
    yield arrived
    go.set()
    thread.join()


def copied_behind_the_host(copied: Callable[[int, int, int], set[int]], count: int) -> None:
    """`copied(x, value, stream)` makes a copy behind the host, while this thread launches."""
    machine = Machine()
    x, y = alloc(4 * count), alloc(BYTES)
    one, two = streams(2)
    for value in range(1, ROUNDS):
        ok("cuMemsetD32_v2", x, value, count)
        make = functools.partial(copied, x, value, one)
        with copy_behind_the_host(machine.context, one, make) as arrived:
            machine.fill(y, value, two)
            ok("cuStreamSynchronize", two)
        same(arrived, [{value}])
        same(set(words(y, COUNT)), {value})


def copied_out(x: int, _value: int, stream: int) -> set[int]:
    host = (ctypes.c_uint32 * COUNT)()
    ok("cuMemcpyDtoHAsync_v2", host, x, BYTES, stream)
    ok("cuStreamSynchronize", stream)
    return set(host)


def case_copy_behind_the_host() -> None:
    """A thread in a copy that waits for the host holds no other thread up."""
    copied_behind_the_host(copied_out, COUNT)


def case_copy_in_behind_the_host() -> None:
    """The same for a copy out of pageable memory, too large to be put aside."""
    count = 1 << 18

    def copied(x: int, value: int, stream: int) -> set[int]:
        host = (ctypes.c_uint32 * count)(*[value] * count)
        ok("cuMemcpyHtoDAsync_v2", x, host, 4 * count, stream)
        ok("cuStreamSynchronize", stream)
        return set(words(x, count))

    copied_behind_the_host(copied, count)


def case_frees_beside_a_copy_behind_the_host() -> None:
    """What the shim needs of its own for these is at hand, however many there are."""
    machine = Machine()
    x = alloc(BYTES)
    ok("cuMemsetD32_v2", x, 7, COUNT)
    one, two = streams(2)
    make = functools.partial(copied_out, x, 7, one)
    with copy_behind_the_host(machine.context, one, make) as arrived:
        for value in range(80):
            block = out("cuMemAllocAsync", BYTES, two)
            machine.fill(block, value, two)
            ok("cuMemFreeAsync", block, two)
        quick = HOST_FUNCTION(lambda _data: None)
        for other in streams(24):
            ok("cuLaunchHostFunc", other, quick, None)
            ok("cuStreamSynchronize", other)
    same(arrived, [{7}])


def case_result_before_the_host_goes_on() -> None:
    """A launch of which only a bound is known is not put behind a stream that waits for it."""
    machine = Machine()
    x, index = alloc(BYTES), alloc(256)
    upload(index, list(range(64)))
    one, two = streams(2)
    for value in range(1, ROUNDS):
        go = threading.Event()
        wait = HOST_FUNCTION(lambda _data, go=go: go.wait() and None)
        ok("cuLaunchHostFunc", one, wait, None)
        machine.scatter(x, index, value, two)
        ok("cuStreamSynchronize", two)
        go.set()
        ok("cuStreamSynchronize", one)
        same(set(words(x, 64)), {value})


def case_watched_while_it_is_written() -> None:
    """A kernel that waits in one stream for what a kernel in another one writes."""
    machine = Machine()
    x = alloc(BYTES)
    one, two = streams(2)
    for value in range(1, ROUNDS):
        ok("cuMemsetD32_v2", x, 0, COUNT)
        launch(machine.wait_for, x, blocks=1, threads=1, stream=one)
        machine.fill(x, value, two)
        ok("cuStreamSynchronize", one)
        ok("cuStreamSynchronize", two)
        same(set(words(x, COUNT)), {value})


def case_written_after_it_was_watched() -> None:
    """Memory that a kernel has watched may be written elsewhere once that one has ended."""
    machine = Machine()
    x = alloc(BYTES)
    for value in range(1, ROUNDS):
        ok("cuMemsetD32_v2", x, value, COUNT)
        launch(machine.wait_for, x, blocks=1, threads=1)
        ok("cuCtxSynchronize")
        for stream in streams(4):
            machine.fill(x, value, stream)
            ok("cuStreamSynchronize", stream)
        same(set(words(x, COUNT)), {value})


def case_counted_from_one() -> None:
    """A pointer to before the array, and indices from one."""
    machine = Machine()
    alloc(BYTES)
    x, index = alloc(BYTES), alloc(256)
    upload(index, list(range(1, 65)))
    for value in range(1, ROUNDS):
        machine.scatter(x - 4, index, value)
        same(set(words(x, 64)), {value})


def case_more_streams_than_lanes() -> None:
    machine = Machine()
    x = alloc(BYTES)
    for value, stream in enumerate(streams(700)):
        machine.fill(x, value, stream)
        ok("cuStreamSynchronize", stream)
    same(set(words(x, COUNT)), {699})


if __name__ == "__main__":
    main(globals())
