# SPDX-License-Identifier: Apache-2.0
"""Words in local memory that are chosen by an index: which ones a load may meet, and from when."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from kernel_corpus.compiler import compile_source
from tessera.analysis import Mode, analyze_module, evaluate

SOURCE = """
extern "C" __global__ void of_earlier_iterations(
    float* out, const float* a, int n, int start, int chosen) {
  const float* p[2] = {a, a};
  float s = 0.0f;
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    if (k < 5) {
      p[0] = a + start + 10 * k;
      p[1] = a + start + 20 * k;
    }
    if (k >= 5) s += *p[(chosen + k) & 1];
  }
  out[threadIdx.x] = s;
}

extern "C" __global__ void counted_up(float* out, const float* a, int n, int chosen) {
  int at[4] = {0, n, 2 * n, 3 * n};
#pragma unroll 1
  for (int k = 0; k < n; ++k) at[(chosen + k) & 3] += 5;
  out[threadIdx.x] = a[at[chosen & 3]];
}

extern "C" __global__ void from_a_table(float* out, const float* a, int n, int first) {
  int at[4] = {first, first + n, first + 3 * n, first + 7 * n};
  out[threadIdx.x] = a[at[threadIdx.x & 3]];
}
"""
OUT, A = 0x1000000, 0x2000000


def read(kernel: str, *scalars: int) -> set[int]:
    """The elements of `a` that a launch may read."""
    summary = analyze_module(compile_source(SOURCE))[kernel]
    assert not summary.is_unknown
    parameters = struct.pack(f"<QQ{len(scalars)}i", OUT, A, *scalars)
    found = evaluate(summary, (1, 1, 1), (32, 1, 1), parameters)
    elements: set[int] = set()
    for r in found:
        if r.mode & Mode.READ:
            assert r.pointer == A
            rows = [(A, A + 4096)] if r.unbounded else r.rows()
            elements |= {(b - A) // 4 for begin, end in rows for b in range(begin, end, 4)}
    return elements


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_word_is_that_of_the_iteration_that_stored_it(chosen: int) -> None:
    # Iterations from the fifth on read what the fourth has stored.
    assert {3 + 40, 3 + 80} <= read("of_earlier_iterations", 12, 3, chosen)


def test_a_word_that_depends_on_itself() -> None:
    assert {2 * 8 + 5 * 2} <= read("counted_up", 8, 2)


def test_words_that_never_change_are_told_apart() -> None:
    assert read("from_a_table", 9, 2) == {2, 11, 29, 65}
