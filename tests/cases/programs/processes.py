# SPDX-License-Identifier: Apache-2.0
"""Processes and threads: fork, exec, spawn, starts from many threads at once."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from support import NON_BLOCKING, alloc, call, kernels, launch, main, ok, out, same, start, words


def in_child(body: Callable[[], int]) -> int:
    """The exit status of `body` in a forked child that has ten seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            status = body()
        except BaseException as error:  # nothing may leave the child
            print(f"child: {error}", file=sys.stderr, flush=True)
            status = 99
        os._exit(status)
    return os.waitpid(child, 0)[1]


def work(value: int = 3) -> None:
    """The whole life of a program, in a process that has not used the driver yet."""
    start()
    take = kernels()
    x, y = alloc(1024), alloc(1024)
    for _ in range(3):
        launch(take("fill"), x, 256, value)
        launch(take("fill"), y, 256, 1)
        launch(take("add"), x, y, 256)
        same(set(words(x, 256)), {value + 1})


def answers() -> list[int]:
    """What a forked child hears: its parent's driver did not come along."""
    host = (ctypes.c_uint32 * 4)()
    return [
        call("cuInit", 0),
        call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 64),
        call("cuMemcpyHtoD_v2", 0x1234, host, 16),
        call("cuStreamSynchronize", 0),
        call("cuCtxSynchronize"),
    ]


def case_fork_first() -> None:
    """Fork, then CUDA in both."""
    same(in_child(lambda: work(5) or 0), 0)
    work()


def case_fork_after_use() -> None:
    """A child forked while work is elsewhere gets the driver's answers, at once."""
    work()
    take = kernels()
    x = alloc(1024)
    for value in range(8):
        launch(take("fill"), x, 256, value)  # not waited for: the world is not calm

    def child() -> int:
        print(answers(), flush=True)
        return 0

    sys.stdout.flush()
    same(in_child(child), 0)
    same(set(words(x, 256)), {7})


def case_fork_beside_threads() -> None:
    """Children forked while other threads are in the middle of calls."""
    context = start()
    take = kernels()
    fill, add = take("fill"), take("add")
    stop = threading.Event()

    def busy() -> None:
        ok("cuCtxSetCurrent", context)
        stream = out("cuStreamCreate", NON_BLOCKING)
        a, b = alloc(4096), alloc(4096)
        while not stop.is_set():
            launch(fill, a, 1024, 1, blocks=4, stream=stream)
            launch(fill, b, 1024, 1, blocks=4, stream=stream)
            launch(add, a, b, 1024, blocks=4, stream=stream)
            ok("cuMemFreeAsync", out("cuMemAllocAsync", 4096, stream), stream)
            ok("cuStreamSynchronize", stream)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    results = {in_child(lambda: 0 if answers()[1] != 0 else 7) for _ in range(15)}
    stop.set()
    for thread in threads:
        thread.join()
    same(results, {0})


def case_exec() -> None:
    """Programs started by a program that works: they start anew, and inherit no descriptors."""
    work()
    command = [sys.executable, str(Path(__file__).resolve()), "worker"]
    for close_fds in (True, False):  # vfork and exec; all but close-on-exec descriptors stay open
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, close_fds=close_fds
        )
        print(done.returncode, done.stdout, done.stderr)
    listing = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    done = subprocess.run(
        [sys.executable, "-c", listing],
        capture_output=True,
        text=True,
        check=False,
        close_fds=False,
    )
    print(done.stdout)
    work_again = os.posix_spawn(sys.executable, command, dict(os.environ))
    same(os.waitpid(work_again, 0)[1], 0)


def case_spawn() -> None:
    """multiprocessing with fresh interpreters, two at once."""
    work()
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work, args=(value,)) for value in (7, 8)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        same(child.exitcode, 0)


def case_threads_at_once() -> None:
    """Eight threads whose first call of all is another one each."""
    barrier = threading.Barrier(8)
    results: list[int] = []
    number = ctypes.c_int()
    first: list[Callable[[], int]] = [
        lambda: call("cuInit", 0),
        lambda: call("cuDriverGetVersion", ctypes.byref(number)),
        lambda: call("cuDeviceGetCount", ctypes.byref(ctypes.c_int())) in (0, 3) and 0,
        lambda: call("cuInit", 0),
    ]

    def begin(index: int) -> None:
        barrier.wait()
        results.append(first[index % 4]())
        ok("cuInit", 0)
        ok("cuCtxSetCurrent", out("cuDevicePrimaryCtxRetain", 0))
        x = alloc(1024)
        launch(kernels()("fill"), x, 256, index)
        same(set(words(x, 256)), {index})
        results.append(100)

    threads = [threading.Thread(target=begin, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(sorted(results), [0] * 8 + [100] * 8)


def case_first_call_is_no_init() -> None:
    """Kind 1.5: cuGetProcAddress first of all, and all calls through what it gives."""
    address, status = ctypes.c_void_p(), ctypes.c_int()

    def get(name: bytes, version: int) -> Callable[..., int]:
        ok("cuGetProcAddress_v2", name, ctypes.byref(address), version, 0, ctypes.byref(status))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 3)
        assert address.value is not None
        return kind(address.value)

    same(get(b"cuInit", 2000)(0, 0, 0), 0)
    context, memory = ctypes.c_uint64(), ctypes.c_uint64()
    same(get(b"cuDevicePrimaryCtxRetain", 7000)(ctypes.addressof(context), 0, 0), 0)
    ok("cuCtxSetCurrent", context.value)
    same(get(b"cuMemAlloc", 3020)(ctypes.addressof(memory), 1024, 0), 0)
    launch(kernels()("fill"), memory.value, 256, 4)
    same(set(words(memory.value, 256)), {4})


def case_exit_with_work() -> None:
    """A program that ends without waiting, with threads still calling."""
    context = start()
    take = kernels()
    fill = take("fill")

    def forever() -> None:
        ok("cuCtxSetCurrent", context)
        x = alloc(4096)
        stream = out("cuStreamCreate", NON_BLOCKING)
        while True:
            launch(fill, x, 1024, 1, blocks=4, stream=stream)
            call("cuStreamSynchronize", stream)  # fails where the process has begun to end

    for _ in range(2):
        threading.Thread(target=forever, daemon=True).start()
    for _ in range(50):
        ok("cuMemFree_v2", alloc(4096))
    print("done", flush=True)
    os._exit(0)


def case_signals() -> None:
    """Signals reach the program's own thread, not one of the shim's."""
    work()
    seen: list[str] = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread().name))
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
    work_with_timer()
    same(set(seen), {"MainThread"})
    same(len(seen) > 0, True)


def work_with_timer() -> None:
    """Calls that a timer's signal interrupts every few milliseconds."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        x = alloc(1024)
        fill = kernels()("fill")
        for value in range(200):
            launch(fill, x, 256, value)
            same(set(words(x, 256)), {value})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
        print("worked")
    else:
        main(globals())
