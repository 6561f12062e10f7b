# SPDX-License-Identifier: Apache-2.0
"""What numba-cuda emits through NVVM, with and without debug information."""

from __future__ import annotations

import math

import pytest
from tessera.native import ptx

cuda = pytest.importorskip("numba.cuda")
numba = pytest.importorskip("numba")


def kernel(a, b, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    tile = cuda.shared.array(64, numba.float32)
    local = cuda.local.array(16, numba.float64)
    tile[cuda.threadIdx.x] = a[i]
    cuda.syncthreads()
    for j in range(16):
        local[j] = a[j]
    if i < n:
        b[i] = math.sin(a[i]) + tile[cuda.threadIdx.x ^ 1] + local[n % 16]
        cuda.atomic.add(b, 0, a[i])
    if n > 100:
        print(i, b[i])


@pytest.mark.parametrize("mode", ["plain", "lines", "debug"])
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (12, 0)])
def test_kernel(capability: tuple[int, int], mode: str) -> None:
    signature = (numba.float32[:], numba.float32[:], numba.int32)
    text, _ = cuda.compile_ptx(
        kernel,
        signature,
        cc=capability,
        lineinfo=mode == "lines",
        debug=mode == "debug",
        opt=mode != "debug",
    )
    module = ptx.parse(text)
    assert not module.errors
    (entry,) = module.entries
    # An array is passed as seven words: meminfo, parent, count, item size, data, shape, strides.
    assert len(entry.parameters) == 15
    assert any(i.opcode == "call" for f in module.functions for i in f.instructions)
