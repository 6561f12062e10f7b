# SPDX-License-Identifier: Apache-2.0
"""Triton kernels in the manner of its tutorials, for the tests to compile."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, stride, n, block: tl.constexpr):
    column = tl.arange(0, block)
    row = tl.program_id(0) * stride
    value = tl.load(x + row + column, mask=column < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + column, power / tl.sum(power, 0), mask=column < n)


@triton.jit
def matmul(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    at_a = a + rows[:, None] * stride_a + inner[None, :]
    at_b = b + inner[:, None] * stride_b + columns[None, :]
    sums = tl.zeros((block_m, block_n), dtype=kind)
    for step in range(0, k, block_k):
        left = tl.load(at_a, mask=inner[None, :] < k - step, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < k - step, other=0.0)
        sums = tl.dot(left, right, sums)
        at_a += block_k
        at_b += block_k * stride_b
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], sums, mask=inside)


@triton.jit
def attention(
    q, k, v, out, length, stride, block_m: tl.constexpr, block_n: tl.constexpr, width: tl.constexpr
):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    keys = tl.arange(0, block_n)
    inner = tl.arange(0, width)
    query = tl.load(q + rows[:, None] * stride + inner[None, :])
    highest = tl.zeros((block_m,), tl.float32) - float("inf")
    total = tl.zeros((block_m,), tl.float32)
    sums = tl.zeros((block_m, width), tl.float32)
    for start in range(0, length, block_n):
        key = tl.load(k + (keys[:, None] + start) * stride + inner[None, :])
        value = tl.load(v + (keys[:, None] + start) * stride + inner[None, :])
        score = tl.dot(query, tl.trans(key))
        score = tl.where(rows[:, None] >= (start + keys)[None, :], score, -1e6)
        higher = tl.maximum(highest, tl.max(score, 1))
        power = tl.math.exp2(score - higher[:, None])
        scale = tl.math.exp2(highest - higher)
        total = total * scale + tl.sum(power, 1)
        sums = tl.dot(power.to(value.dtype), value, sums * scale[:, None])
        highest = higher
    result = (sums / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * stride + inner[None, :], result)


@triton.jit
def layer_norm(x, weight, bias, out, stride, n, epsilon, block: tl.constexpr):
    row = tl.program_id(0) * stride
    column = tl.arange(0, block)
    inside = column < n
    value = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, 0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n + epsilon)
    shift = tl.load(bias + column, mask=inside)
    tl.store(
        out + row + column,
        centred * scale * tl.load(weight + column, mask=inside) + shift,
        mask=inside,
    )


@triton.jit
def atomics(x, counts, lock, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + value % 64, 1, mask=i < n)
    tl.atomic_max(counts + 64, tl.max(value, 0))
    tl.atomic_cas(lock, 0, 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
    tl.device_print("value", value)
    tl.device_assert(value >= 0, "negative")


@triton.jit
def mixture(x, out, n, block: tl.constexpr):
    i = tl.arange(0, block)
    value = tl.load(x + i)
    value = libdevice.sin(value) + libdevice.erf(value) + libdevice.pow(value, 2.5)
    value = tl.inline_asm_elementwise(
        "{ .reg .b32 t; add.f32 $0, $1, 0f3F800000; mov.b32 t, $0; }",
        "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    value = tl.sort(tl.cumsum(value, 0))
    tl.store(out + i, tl.where(tl.rand(7, i) > 0.5, value, -value))
    tl.store(out + n + i, tl.flip(value, 0))
    tl.store(out + tl.argmax(value, 0), 1.0)
    counts = tl.histogram((value * 10).to(tl.int32), 64)
    tl.store(out + 2 * n + tl.arange(0, 64), counts.to(tl.float32))


@triton.jit
def descriptors(x, out, m, n, block_m: tl.constexpr, block_n: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [block_m, block_n])
    target = tl.make_tensor_descriptor(out, [m, n], [n, 1], [block_m, block_n])
    for i in range(0, m, block_m):
        at = [i, tl.program_id(0) * block_n]
        target.store(at, source.load(at) * 2)


@triton.jit(noinline=True)
def not_inlined(at, value):
    tl.store(at, value * 3)
    return value * 2 + 1


@triton.jit
def calls(x, out, n):
    i = tl.program_id(0)
    value = not_inlined(out + i, tl.load(x + i))
    if i < n:
        value = value * 2 + 1
    while value > 3:
        value = value - 1
    tl.store(out + i + n, value)


def _matmul(kind: str, sums: Any, out: str) -> tuple[Any, dict[str, str], dict[str, Any]]:
    pointers = {"a": f"*{kind}", "b": f"*{kind}", "c": f"*{out}"}
    scalars = dict.fromkeys(("m", "n", "k", "stride_a", "stride_b", "stride_c"), "i32")
    blocks = {"block_m": 64, "block_n": 64, "block_k": 32, "kind": sums}
    return matmul, pointers | scalars, blocks


def _pointers(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"*{kind}")


KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
    "add_f32": (add, _pointers("fp32", "x", "y", "out") | {"n": "i32"}, {"block": 256}),
    "add_bf16": (add, _pointers("bf16", "x", "y", "out") | {"n": "i32"}, {"block": 256}),
    "add_i8": (add, _pointers("i8", "x", "y", "out") | {"n": "i32"}, {"block": 256}),
    "add_f64": (add, _pointers("fp64", "x", "y", "out") | {"n": "i64"}, {"block": 256}),
    "softmax": (
        softmax,
        _pointers("fp32", "x", "out") | {"stride": "i32", "n": "i32"},
        {"block": 1024},
    ),
    "matmul_f16": _matmul("fp16", tl.float32, "fp32"),
    "matmul_bf16": _matmul("bf16", tl.float32, "fp32"),
    "matmul_f32": _matmul("fp32", tl.float32, "fp32"),
    "matmul_i8": _matmul("i8", tl.int32, "i32"),
    "matmul_f8": _matmul("fp8e5", tl.float32, "fp32"),
    "attention": (
        attention,
        _pointers("fp16", "q", "k", "v", "out") | {"length": "i32", "stride": "i32"},
        {"block_m": 64, "block_n": 32, "width": 64},
    ),
    "layer_norm": (
        layer_norm,
        _pointers("fp16", "x", "weight", "bias", "out")
        | {"stride": "i32", "n": "i32", "epsilon": "fp32"},
        {"block": 1024},
    ),
    "atomics": (atomics, _pointers("i32", "x", "counts", "lock") | {"n": "i32"}, {"block": 256}),
    "mixture": (mixture, _pointers("fp32", "x", "out") | {"n": "i32"}, {"block": 256}),
    "descriptors": (
        descriptors,
        _pointers("fp16", "x", "out") | {"m": "i32", "n": "i32"},
        {"block_m": 64, "block_n": 64},
    ),
    "calls": (calls, _pointers("i32", "x", "out") | {"n": "i32"}, {}),
}
