# SPDX-License-Identifier: Apache-2.0
"""numba-cuda passes an array as seven words: meminfo, parent, count, item size, data, shape..."""

from __future__ import annotations

import pytest

cuda = pytest.importorskip("numba.cuda")
numba = pytest.importorskip("numba")

from tessera.analysis import Flag, KernelSummary, Mode, analyze_module, evaluate

F32 = numba.float32


def scale(a, b, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < n:
        b[i] = a[i] * 2


def plane(a, b):  # type: ignore[no-untyped-def]
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[i, j] = a[i, j] + 1


def gather(a, b, index):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < index.size:
        b[i] = a[index[i]]


def summary_of(kernel: object, *signature: object) -> KernelSummary:
    text, _ = cuda.compile_ptx(kernel, signature, cc=(8, 0))
    (summary,) = analyze_module(text).values()
    return summary


def array(pointer: int, *shape: int) -> list[int]:
    """The words of a C-contiguous array of float32."""
    count = 1
    for extent in shape:
        count *= extent
    strides = [4 * shape[1], 4] if len(shape) == 2 else [4]
    return [0, 0, count, 4, pointer, *shape, *strides]


def test_contiguous() -> None:
    summary = summary_of(scale, F32[::1], F32[::1], numba.int32)
    ranges = evaluate(summary, 4, 64, [*array(0x10000, 200), *array(0x20000, 200), 200])
    assert {(r.mode, r.begin, r.end) for r in ranges} == {
        (Mode.READ, 0x10000, 0x10000 + 800),
        (Mode.WRITE, 0x20000, 0x20000 + 800),
    }
    assert all(r.flags & Flag.EXACT for r in ranges)


def test_two_dimensions() -> None:
    summary = summary_of(plane, F32[:, ::1], F32[:, ::1])
    words = [*array(0x10000, 20, 30), *array(0x20000, 20, 30)]
    ranges = evaluate(summary, (2, 2), (16, 16), words)
    assert {(r.mode, r.begin, r.end) for r in ranges} == {
        (Mode.READ, 0x10000, 0x10000 + 2400),
        (Mode.WRITE, 0x20000, 0x20000 + 2400),
    }
    assert any(r.flags & Flag.MUST_WRITE for r in ranges)


def test_gather_is_bounded_by_the_allocation() -> None:
    summary = summary_of(gather, F32[::1], F32[::1], numba.int64[::1])
    words = [*array(0x10000, 50), *array(0x20000, 40), *array(0x30000, 40)]
    by_pointer = {r.pointer: r for r in evaluate(summary, 2, 32, words)}
    assert by_pointer[0x10000].unbounded
    assert by_pointer[0x10000].flags & Flag.INDIRECT
    assert by_pointer[0x20000].end == 0x20000 + 160


def test_debug_code_is_read_too() -> None:
    """Without optimisation everything goes through local memory; nothing may be missed."""
    text, _ = cuda.compile_ptx(
        scale, (F32[::1], F32[::1], numba.int32), cc=(8, 0), debug=True, opt=False
    )
    (summary,) = analyze_module(text).values()
    assert summary.is_unknown or {a.mode for a in summary.accesses} >= {Mode.READ, Mode.WRITE}
