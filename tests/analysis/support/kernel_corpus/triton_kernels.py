# SPDX-License-Identifier: Apache-2.0
"""Triton kernels in the manner of its tutorials and of model code, with random launches."""

from __future__ import annotations

import random
import struct

import triton
import triton.language as tl

from kernel_corpus.launches import Launch, floats, i32, ints, room
from kernel_corpus.triton_support import Variant, halves, launch, signature


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(out, x, stride_x, stride_out, rows, columns, block: tl.constexpr):
    first = tl.program_id(0)
    for row in tl.range(first, rows, tl.num_programs(0)):
        column = tl.arange(0, block)
        inside = column < columns
        value = tl.load(x + row * stride_x + column, mask=inside, other=-float("inf"))
        power = tl.exp(value - tl.max(value, 0))
        tl.store(out + row * stride_out + column, power / tl.sum(power, 0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, stride, n, block: tl.constexpr):
    row = tl.program_id(0) * stride
    total = tl.zeros((block,), tl.float32)
    for start in range(0, n, block):
        column = start + tl.arange(0, block)
        total += tl.load(x + row + column, mask=column < n, other=0.0)
    mean = tl.sum(total, 0) / n
    for start in range(0, n, block):
        column = start + tl.arange(0, block)
        inside = column < n
        value = tl.load(x + row + column, mask=inside, other=0.0)
        w, b = tl.load(weight + column, mask=inside), tl.load(bias + column, mask=inside)
        tl.store(out + row + column, (value - mean) * w + b, mask=inside)


@triton.jit
def matmul(
    a, b, c, m, n, k, am, ak, bk, bn, cm, cn,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, block_m), tl.cdiv(n, block_n)
    in_group = group * tiles_n
    first = (pid // in_group) * group
    size = min(tiles_m - first, group)
    pm, pn = first + ((pid % in_group) % size), (pid % in_group) // size
    rows = (pm * block_m + tl.arange(0, block_m)) % m
    columns = (pn * block_n + tl.arange(0, block_n)) % n
    inner = tl.arange(0, block_k)
    at_a = a + rows[:, None] * am + inner[None, :] * ak
    at_b = b + inner[:, None] * bk + columns[None, :] * bn
    sums = tl.zeros((block_m, block_n), dtype=tl.float32)
    for step in range(tl.cdiv(k, block_k)):
        left = tl.load(at_a, mask=inner[None, :] < k - step * block_k, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < k - step * block_k, other=0.0)
        sums = tl.dot(left, right, sums)
        at_a += block_k * ak
        at_b += block_k * bk
    rows_c = pm * block_m + tl.arange(0, block_m)
    columns_c = pn * block_n + tl.arange(0, block_n)
    inside = (rows_c[:, None] < m) & (columns_c[None, :] < n)
    at_c = c + cm * rows_c[:, None] + cn * columns_c[None, :]
    tl.store(at_c, sums.to(tl.float16), mask=inside)


@triton.jit
def attention(
    q, k, v, out, heads, length, scale, stride_h,
    block_m: tl.constexpr, block_n: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(1) * stride_h
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    inner = tl.arange(0, width)
    at = base + rows[:, None] * width + inner[None, :]
    inside = rows[:, None] < length
    query = tl.load(q + at, mask=inside, other=0.0)
    highest = tl.zeros((block_m,), tl.float32) - float("inf")
    total = tl.zeros((block_m,), tl.float32)
    sums = tl.zeros((block_m, width), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * block_m, block_n):
        keys = start + tl.arange(0, block_n)
        there = base + keys[:, None] * width + inner[None, :]
        key = tl.load(k + there, mask=keys[:, None] < length, other=0.0)
        value = tl.load(v + there, mask=keys[:, None] < length, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(rows[:, None] >= keys[None, :], score, -1e6)
        higher = tl.maximum(highest, tl.max(score, 1))
        power = tl.math.exp2(score - higher[:, None])
        factor = tl.math.exp2(highest - higher)
        total = total * factor + tl.sum(power, 1)
        sums = tl.dot(power.to(value.dtype), value, sums * factor[:, None])
        highest = higher
    tl.store(out + at, (sums / total[:, None]).to(tl.float16), mask=inside)


@triton.jit
def embedding(out, table, index, width, block: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(index + token)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        inside = column < width
        value = tl.load(table + row * width + column, mask=inside)
        tl.store(out + token * width + column, value, mask=inside)


@triton.jit
def paged_keys(out, pool, table, lengths, pages, width: tl.constexpr, page: tl.constexpr):
    sequence, slot = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    if slot * page < length:
        where = tl.load(table + sequence * pages + slot)
        at = tl.arange(0, page)[:, None] * width + tl.arange(0, width)[None, :]
        value = tl.load(pool + where * page * width + at)
        tl.store(out + (sequence * pages + slot) * page * width + at, value)


@triton.jit
def route(scores, chosen, weights, experts, tokens, block: tl.constexpr):
    token = tl.program_id(0)
    column = tl.arange(0, block)
    value = tl.load(scores + token * experts + column, mask=column < experts, other=-1e9)
    best = tl.argmax(value, 0)
    tl.store(chosen + token, best)
    tl.store(weights + token, tl.max(value, 0))


@triton.jit
def scan(out, x, length, channels, block: tl.constexpr):
    channel = tl.program_id(0) * block + tl.arange(0, block)
    inside = channel < channels
    state = tl.zeros((block,), tl.float32)
    for t in range(length):
        state = state * 0.9 + tl.load(x + t * channels + channel, mask=inside, other=0.0)
        tl.store(out + t * channels + channel, state, mask=inside)


@triton.jit
def transpose(out, x, rows, columns, block: tl.constexpr):
    r = tl.program_id(0) * block + tl.arange(0, block)
    c = tl.program_id(1) * block + tl.arange(0, block)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    value = tl.load(x + r[:, None] * columns + c[None, :], mask=inside)
    tl.store(out + c[None, :] * rows + r[:, None], value, mask=inside)


@triton.jit
def dropout(out, x, n, seed, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < n
    keep = tl.rand(seed, i) > 0.5
    tl.store(out + i, tl.where(keep, tl.load(x + i, mask=inside), 0.0), mask=inside)


@triton.jit
def histogram(counts, x, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + value % 64, 1, mask=i < n)


def of_add(rng: random.Random) -> Launch:
    n = 16 * rng.randint(1, 90)
    return launch((-(-n // 256),), 4, floats(rng, n), floats(rng, n), room(n), i32(n))


def of_add_odd(rng: random.Random) -> Launch:
    n = rng.randint(1, 900)
    return launch((-(-n // 256),), 4, floats(rng, n), floats(rng, n), room(n), i32(n))


def of_softmax(rng: random.Random) -> Launch:
    rows, columns = rng.randint(1, 20), rng.randint(1, 256)
    sx, so = columns + rng.randint(0, 5), columns + rng.randint(0, 5)
    return launch(
        (rng.randint(1, 6),), 4, room(rows * so), floats(rng, rows * sx), i32(sx), i32(so),
        i32(rows), i32(columns),
    )  # fmt: skip


def of_layer_norm(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 9), rng.randint(1, 500)
    stride = n + rng.randint(0, 7)
    return launch(
        (rows,), 4, floats(rng, rows * stride), floats(rng, n), floats(rng, n),
        room(rows * stride), i32(stride), i32(n),
    )  # fmt: skip


def of_matmul(rng: random.Random, step: int = 1) -> Launch:
    m, n, k = (step * rng.randint(1, 150 // step) for _ in range(3))
    transposed = rng.random() < 0.5 and step == 1
    bk, bn = (1, k) if transposed else (n, 1)
    grid = -(-m // 32) * -(-n // 32)
    strides = [i32(v) for v in (k, 1, bk, bn, n, 1)]
    return launch(
        (grid,), 4, halves(rng, m * k), halves(rng, k * n), room(m * n, 2), i32(m), i32(n),
        i32(k), *strides,
    )  # fmt: skip


def of_matmul_aligned(rng: random.Random) -> Launch:
    return of_matmul(rng, 16)


def of_attention(rng: random.Random) -> Launch:
    heads, length, width = rng.randint(1, 3), rng.randint(1, 150), 32
    size = length * width
    buffers = [halves(rng, heads * size) for _ in range(3)]
    return launch(
        (-(-length // 64), heads), 4, *buffers, room(heads * size, 2), i32(heads), i32(length),
        struct.pack("<f", 0.2), i32(size),
    )  # fmt: skip


def of_embedding(rng: random.Random) -> Launch:
    tokens, width = rng.randint(1, 9), rng.randint(1, 300)
    index = ints([rng.randrange(20) for _ in range(tokens)])
    return launch((tokens,), 4, room(tokens * width), floats(rng, 20 * width), index, i32(width))


def of_paged_keys(rng: random.Random) -> Launch:
    sequences, pages = rng.randint(1, 4), rng.randint(1, 5)
    table = ints([rng.randrange(8) for _ in range(sequences * pages)])
    lengths = ints([rng.randint(0, pages * 16) for _ in range(sequences)])
    pool = floats(rng, 8 * 16 * 32)
    out = room(sequences * pages * 16 * 32)
    return launch((sequences, pages), 4, out, pool, table, lengths, i32(pages))


def of_route(rng: random.Random) -> Launch:
    tokens, experts = rng.randint(1, 20), rng.randint(1, 64)
    scores = floats(rng, tokens * experts)
    return launch((tokens,), 1, scores, room(tokens), room(tokens), i32(experts), i32(tokens))


def of_scan(rng: random.Random) -> Launch:
    length, channels = rng.randint(1, 30), rng.randint(1, 300)
    n = length * channels
    return launch((-(-channels // 128),), 4, room(n), floats(rng, n), i32(length), i32(channels))


def of_transpose(rng: random.Random) -> Launch:
    rows, columns = rng.randint(1, 90), rng.randint(1, 90)
    n = rows * columns
    grid = (-(-rows // 32), -(-columns // 32))
    return launch(grid, 4, room(n), floats(rng, n), i32(rows), i32(columns))


def of_dropout(rng: random.Random) -> Launch:
    n = rng.randint(1, 900)
    return launch((-(-n // 256),), 4, room(n), floats(rng, n), i32(n), i32(7))


def of_histogram(rng: random.Random) -> Launch:
    n = rng.randint(1, 900)
    values = ints([rng.randrange(10_000) for _ in range(n)])
    return launch((-(-n // 256),), 4, room(64), values, i32(n))


_MATMUL = signature("a b c", "fp16", "m n k am ak bk bn cm cn")
_TILES = {"block_m": 32, "block_n": 32, "block_k": 32, "group": 4}
_ATTENTION = {
    **signature("q k v out", "fp16", "heads length"), "scale": "fp32", "stride_h": "i32",
}  # fmt: skip

VARIANTS: dict[str, Variant] = {
    "add": Variant(
        add, signature("x y out", "fp32", "n"), {"block": 256}, of_add, ("x", "y", "out", "n")
    ),
    "add_odd": Variant(add, signature("x y out", "fp32", "n"), {"block": 256}, of_add_odd),
    "softmax": Variant(
        softmax,
        signature("out x", "fp32", "stride_x stride_out rows columns"),
        {"block": 256},
        of_softmax,
    ),
    "layer_norm": Variant(
        layer_norm, signature("x weight bias out", "fp32", "stride n"), {"block": 128}, of_layer_norm  # noqa: E501
    ),
    "matmul": Variant(matmul, _MATMUL, _TILES, of_matmul),
    "matmul_aligned": Variant(
        matmul, _MATMUL, _TILES, of_matmul_aligned, ("a", "b", "c", "m", "n", "k", "am", "bk", "cm")
    ),
    "attention": Variant(
        attention, _ATTENTION, {"block_m": 64, "block_n": 32, "width": 32}, of_attention,
        ("q", "k", "v", "out"),
    ),
    "embedding": Variant(
        embedding,
        {"out": "*fp32", "table": "*fp32", "index": "*i32", "width": "i32"},
        {"block": 128},
        of_embedding,
    ),
    "paged_keys": Variant(
        paged_keys,
        {"out": "*fp32", "pool": "*fp32", "table": "*i32", "lengths": "*i32", "pages": "i32"},
        {"width": 32, "page": 16},
        of_paged_keys,
    ),
    "route": Variant(
        route,
        {"scores": "*fp32", "chosen": "*i32", "weights": "*fp32", "experts": "i32", "tokens": "i32"},  # noqa: E501
        {"block": 64},
        of_route,
        warps=1,
    ),
    "scan": Variant(scan, signature("out x", "fp32", "length channels"), {"block": 128}, of_scan),
    "transpose": Variant(
        transpose, signature("out x", "fp32", "rows columns"), {"block": 32}, of_transpose
    ),
    "dropout": Variant(dropout, signature("out x", "fp32", "n seed"), {"block": 256}, of_dropout),
    "histogram": Variant(histogram, signature("counts x", "i32", "n"), {"block": 256}, of_histogram),  # noqa: E501
}  # fmt: skip
