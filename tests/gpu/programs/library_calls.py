# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ways to cuBLAS and cuBLASLt: products of several types and shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from common import run, seeded_torch

ROUNDS = 6


def products(torch: Any) -> Iterator[Any]:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for m, n, k in ((64, 64, 64), (1, 4096, 1024), (333, 127, 65), (512, 2048, 512)):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            bias = torch.randn(n, device="cuda", dtype=dtype)
            for _ in range(ROUNDS):
                yield a @ b
                yield a @ b.t().contiguous().t()
                yield torch.addmm(bias, a, b)
                yield torch.nn.functional.linear(a, b.t().contiguous(), bias)
                yield torch._addmm_activation(bias, a, b, use_gelu=True)
        x = torch.randn(8, 12, 65, 64, device="cuda", dtype=dtype)
        y = torch.randn(8, 65, 12, 64, device="cuda", dtype=dtype).transpose(1, 2)  # rows far apart
        for _ in range(ROUNDS):
            yield x @ y.transpose(-1, -2)
            ones = torch.ones(96, 65, 65, device="cuda", dtype=dtype)
            yield torch.baddbmm(ones, x.reshape(96, 65, 64), y.reshape(96, 65, 64).mT)
            yield (x[0, 0] @ y[0, 0, 0]) + 1


def through_ctypes(torch: Any) -> Iterator[Any]:
    """cublasSgemm with a handle of its own, which has the library's own workspace."""
    version = torch.version.cuda.split(".")[0]
    blas = ctypes.CDLL(f"libcublas.so.{version}")
    handle = ctypes.c_void_p()
    assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert blas.cublasSetStream_v2(handle, stream) == 0
    one, half = ctypes.c_float(1), ctypes.c_float(0.5)
    a, b, c = (torch.randn(256, 256, device="cuda") for _ in range(3))
    for beta in (half, ctypes.c_float(0)) * ROUNDS:
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
        status = blas.cublasSgemm_v2(
            handle, 0, 1, 200, 256, 100, ctypes.byref(one), pointers[0], 256, pointers[1], 256,
            ctypes.byref(beta), pointers[2], 256,
        )  # fmt: skip
        assert status == 0
        yield c.clone()
    assert blas.cublasDestroy_v2(handle) == 0


def main() -> list[Any]:
    torch = seeded_torch()
    return [*products(torch), *through_ctypes(torch)]


run(main)
