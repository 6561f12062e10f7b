# SPDX-License-Identifier: Apache-2.0
"""Kernels before and in a green context, over the same memory."""

from __future__ import annotations

import ctypes

from support import NON_BLOCKING, alloc, kernels, launch, main, ok, out, same, start, words

COUNT = 1024
ROUNDS = 8
_all = ctypes.CDLL(None)  # as a program that is linked with the driver finds its names


def green(name: str, *arguments: object) -> int:
    """The value that a successful call gives through its first parameter."""
    value = ctypes.c_uint64()
    same(getattr(_all, name)(ctypes.byref(value), *arguments), 0, name)
    return value.value


def case_green() -> None:
    start()
    fill = kernels()("fill")
    x = alloc(4 * COUNT)
    plain = out("cuStreamCreate", NON_BLOCKING)
    for value in range(ROUNDS):
        launch(fill, x, COUNT, value, blocks=COUNT // 256, stream=plain)
        ok("cuStreamSynchronize", plain)
        same(set(words(x, COUNT)), {value})
    launch(fill, x, COUNT, 99, blocks=COUNT // 256, stream=plain)
    context = green("cuGreenCtxCreate", ctypes.c_void_p(), 0, 1)
    converted = green("cuCtxFromGreenCtx", ctypes.c_void_p(context))
    stream = green("cuGreenCtxStreamCreate", ctypes.c_void_p(context), NON_BLOCKING, 0)
    ok("cuCtxSetCurrent", converted)
    for value in range(100, 100 + ROUNDS):
        launch(fill, x, COUNT // 2, value, blocks=COUNT // 512, stream=stream)
        ok("cuStreamSynchronize", stream)
        same(words(x, COUNT), [value] * (COUNT // 2) + [99] * (COUNT // 2))
    ok("cuStreamDestroy_v2", stream)
    same(_all.cuGreenCtxDestroy(ctypes.c_void_p(context)), 0)


if __name__ == "__main__":
    main(globals())
