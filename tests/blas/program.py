# SPDX-License-Identifier: Apache-2.0
"""An unmodified program on cuBLAS through ctypes: python program.py FOLDER OUT.bin ROUNDS"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

F32, COMPUTE_32F, DEFAULT = 0, 68, -1


def check(result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        raise RuntimeError(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


def ok(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"cuBLAS status {status}")


def matmul(
    lt: Any,
    handle: Any,
    transposes: tuple[int, int],
    n: int,
    scalars: tuple[Any, Any],
    matrices: tuple[Any, Any, Any],
    lds: tuple[int, int],
    workspace: Any,
    stream: Any,
) -> None:
    """One product of square matrices through cuBLASLt."""
    operation = ctypes.c_void_p()
    ok(lt.cublasLtMatmulDescCreate(ctypes.byref(operation), COMPUTE_32F, F32))
    for number, transpose in zip((3, 4), transposes, strict=True):
        value = ctypes.c_int32(transpose)
        size = ctypes.c_size_t(4)
        ok(lt.cublasLtMatmulDescSetAttribute(operation, number, ctypes.byref(value), size))
    layouts = [ctypes.c_void_p() for _ in range(2)]
    for layout, ld in zip(layouts, lds, strict=True):
        sizes = ctypes.c_uint64(n), ctypes.c_uint64(n), ctypes.c_int64(ld)
        ok(lt.cublasLtMatrixLayoutCreate(ctypes.byref(layout), F32, *sizes))
    a, b, c = matrices
    first, second = layouts
    ok(
        lt.cublasLtMatmul(
            handle, operation, scalars[0], a, first, b, second, scalars[1], c, second, c, second,
            None, ctypes.c_void_p(int(workspace)), ctypes.c_size_t(1 << 16),
            ctypes.c_void_p(int(stream)),
        )
    )  # fmt: skip
    for layout in layouts:
        ok(lt.cublasLtMatrixLayoutDestroy(layout))
    ok(lt.cublasLtMatmulDescDestroy(operation))


def main() -> None:
    path, out, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    blas = ctypes.CDLL(f"{path}/libcublas.so.13")
    lt = ctypes.CDLL(f"{path}/libcublasLt.so.13")
    lt_handle = ctypes.c_void_p()
    ok(lt.cublasLtCreate(ctypes.byref(lt_handle)))
    handle = ctypes.c_void_p()
    ok(blas.cublasCreate_v2(ctypes.byref(handle)))
    stream = check(driver.cuStreamCreate(1))
    ok(blas.cublasSetStream_v2(handle, ctypes.c_void_p(int(stream))))
    ok(blas.cublasSetMathMode(handle, 1))
    workspace = check(driver.cuMemAlloc(1 << 20))
    ok(
        blas.cublasSetWorkspace_v2(
            handle, ctypes.c_void_p(int(workspace)), ctypes.c_size_t(1 << 20)
        )
    )
    n, ld = 24, 40
    rng = np.random.default_rng(7)
    host = [rng.integers(-3, 4, ld * n * 4).astype(np.float32) for _ in range(4)]
    memory = [int(check(driver.cuMemAlloc(a.nbytes))) for a in host]
    for address, array in zip(memory, host, strict=True):
        check(driver.cuMemcpyHtoD(address, array, array.nbytes))
    draw = np.random.default_rng(11)
    for step in range(rounds):
        if step % 5 == 4:  # written at home, wherever it lies
            fresh = rng.integers(-3, 4, ld * n * 4).astype(np.float32)
            check(driver.cuMemcpyHtoDAsync(memory[step % 4], fresh, fresh.nbytes, stream))
            check(driver.cuStreamSynchronize(stream))
        a, b, c = (ctypes.c_void_p(memory[i]) for i in draw.permutation(4)[:3])
        alpha = ctypes.c_float(0.015625)
        beta = ctypes.c_float(float(draw.integers(0, 2)) / 4)
        ta, tb, wide = (int(x) for x in draw.integers(0, 2, 3))
        lda = ld if wide else n
        scalars = ctypes.byref(alpha), ctypes.byref(beta)
        kind = step % 4
        if kind == 0:
            ok(
                blas.cublasSgemm_v2(
                    handle, ta, tb, n, n, n, scalars[0], a, lda, b, ld, scalars[1], c, lda
                )
            )
        elif kind == 1:
            ok(
                blas.cublasGemmEx(
                    handle, ta, tb, n, n, n, scalars[0], a, F32, lda, b, F32, n,
                    scalars[1], c, F32, ld, COMPUTE_32F, DEFAULT,
                )
            )  # fmt: skip
        elif kind == 3:
            matmul(lt, lt_handle, (ta, tb), n, scalars, (a, b, c), (lda, ld), workspace, stream)
        else:
            stride = ctypes.c_longlong(ld * n)
            ok(
                blas.cublasGemmStridedBatchedEx(
                    handle, ta, tb, n, n, n, scalars[0], a, F32, lda, stride, b, F32, ld, stride,
                    scalars[1], c, F32, ld, stride, 3, COMPUTE_32F, DEFAULT,
                )
            )  # fmt: skip
    check(driver.cuStreamSynchronize(stream))
    for address, array in zip(memory, host, strict=True):
        check(driver.cuMemcpyDtoH(array, address, array.nbytes))
    ok(blas.cublasDestroy_v2(handle))
    out.write_bytes(b"".join(array.tobytes() for array in host))


if __name__ == "__main__":
    main()
