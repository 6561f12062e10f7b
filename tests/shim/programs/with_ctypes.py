# SPDX-License-Identifier: Apache-2.0
"""The driver through ctypes, from threads; then in a child that multiprocessing forked."""

import ctypes
import multiprocessing
import threading


def count() -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    number = ctypes.c_int(-1)
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGetCount(ctypes.byref(number)) == 0
    return number.value


def in_child(queue) -> None:
    queue.put(count())


if __name__ == "__main__":
    method = multiprocessing.get_context("fork")
    queue = method.Queue()
    child = method.Process(target=in_child, args=(queue,))
    child.start()
    print("forked before first use:", queue.get(timeout=30))
    child.join()

    results = []
    threads = [threading.Thread(target=lambda: results.append(count())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("threads:", results)
