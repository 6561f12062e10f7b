# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of language models: attention over strided heads and over pages, norms, rotary
embeddings, routing to experts, state space scans, caches, quantisation."""

from __future__ import annotations

import random
import struct
from typing import Any

import triton
import triton.language as tl

from kernel_corpus.launches import Buffer, Launch, floats, i32, ints, room
from kernel_corpus.triton_support import Variant, halves, launch, signature


@triton.jit
def flash_attention(
    q, k, v, out, q_b, q_h, q_s, k_b, k_h, k_s, o_b, o_h, o_s, heads, group, queries, keys, scale,
    block_m: tl.constexpr, block_n: tl.constexpr, width: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    inner = tl.arange(0, width)
    at_q = q + batch * q_b + head * q_h + rows[:, None] * q_s + inner[None, :]
    at_k = k + batch * k_b + (head // group) * k_h
    at_v = v + batch * k_b + (head // group) * k_h
    query = tl.load(at_q, mask=rows[:, None] < queries, other=0.0)
    highest = tl.zeros((block_m,), tl.float32) - 1e30
    total = tl.zeros((block_m,), tl.float32)
    sums = tl.zeros((block_m, width), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * block_m, keys) if causal else keys
    for start in range(0, end, block_n):
        columns = start + tl.arange(0, block_n)
        there = columns[:, None] * k_s + inner[None, :]
        key = tl.load(at_k + there, mask=columns[:, None] < keys, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(columns[None, :] < keys, score, -1e30)
        if causal:
            score = tl.where(rows[:, None] >= columns[None, :], score, -1e30)
        higher = tl.maximum(highest, tl.max(score, 1))
        power = tl.math.exp2(score - higher[:, None])
        factor = tl.math.exp2(highest - higher)
        total = total * factor + tl.sum(power, 1)
        value = tl.load(at_v + there, mask=columns[:, None] < keys, other=0.0)
        sums = tl.dot(power.to(value.dtype), value, sums * factor[:, None])
        highest = higher
    at_out = out + batch * o_b + head * o_h + rows[:, None] * o_s + inner[None, :]
    tl.store(at_out, (sums / total[:, None]).to(tl.float16), mask=rows[:, None] < queries)


@triton.jit
def paged_attention(
    out, q, k_cache, v_cache, table, lengths, pages, heads, scale,
    width: tl.constexpr, page: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    inner = tl.arange(0, width)
    place = (sequence * heads + head) * width + inner
    query = tl.load(q + place)
    highest = -1e30
    total = 0.0
    sums = tl.zeros((width,), tl.float32)
    for slot in range(tl.cdiv(length, page)):
        block = tl.load(table + sequence * pages + slot)
        token = tl.arange(0, page)
        there = ((block * page + token[:, None]) * heads + head) * width + inner[None, :]
        inside = slot * page + token < length
        key = tl.load(k_cache + there, mask=inside[:, None], other=0.0)
        score = tl.where(inside, tl.sum(query[None, :] * key, 1) * scale, -1e30)
        higher = tl.maximum(highest, tl.max(score, 0))
        power = tl.exp(score - higher)
        factor = tl.exp(highest - higher)
        value = tl.load(v_cache + there, mask=inside[:, None], other=0.0)
        sums = sums * factor + tl.sum(power[:, None] * value, 0)
        total = total * factor + tl.sum(power, 0)
        highest = higher
    tl.store(out + place, sums / total)


@triton.jit
def cache_update(key, value, k_cache, v_cache, slots, stride, width: tl.constexpr):
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        at = tl.arange(0, width)
        tl.store(k_cache + slot * width + at, tl.load(key + token * stride + at))
        tl.store(v_cache + slot * width + at, tl.load(value + token * stride + at))


@triton.jit
def rms_norm(out, x, weight, stride_out, stride, n, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < n
    value = tl.load(x + row * stride + column, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / n + 1e-6)
    w = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + row * stride_out + column, value * scale * w, mask=inside)


@triton.jit
def add_rms_norm(x, residual, weight, n, block: tl.constexpr):
    row = tl.program_id(0) * n
    total = tl.zeros((block,), tl.float32)
    for start in range(0, n, block):
        column = start + tl.arange(0, block)
        inside = column < n
        value = tl.load(x + row + column, mask=inside, other=0.0)
        value += tl.load(residual + row + column, mask=inside, other=0.0)
        tl.store(residual + row + column, value, mask=inside)
        total += value * value
    scale = tl.rsqrt(tl.sum(total, 0) / n + 1e-6)
    for start in range(0, n, block):
        column = start + tl.arange(0, block)
        inside = column < n
        value = tl.load(residual + row + column, mask=inside, other=0.0)
        w = tl.load(weight + column, mask=inside, other=0.0)
        tl.store(x + row + column, value * scale * w, mask=inside)


@triton.jit
def layer_norm_backward(
    dx, dy, dw, x, weight, mean, rstd, stride, n, rows, per, block: tl.constexpr
):
    program = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < n
    w = tl.load(weight + column, mask=inside, other=0.0)
    sums = tl.zeros((block,), tl.float32)
    for row in range(program * per, tl.minimum((program + 1) * per, rows)):
        value = tl.load(x + row * stride + column, mask=inside, other=0.0)
        slope = tl.load(dy + row * stride + column, mask=inside, other=0.0)
        hat = (value - tl.load(mean + row)) * tl.load(rstd + row)
        sums += slope * hat
        tl.store(dx + row * stride + column, slope * w * tl.load(rstd + row), mask=inside)
    tl.store(dw + program * n + column, sums, mask=inside)


@triton.jit
def rotary(q, cos, sin, stride_s, stride_h, length, half: tl.constexpr):
    position, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, half)
    c, s = tl.load(cos + position * half + at), tl.load(sin + position * half + at)
    first = q + position * stride_s + head * stride_h + at
    a, b = tl.load(first), tl.load(first + half)
    tl.store(first, a * c - b * s)
    tl.store(first + half, b * c + a * s)


@triton.jit
def silu_and_mul(out, x, n, block: tl.constexpr):
    row = tl.program_id(1)
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < n
    gate = tl.load(x + row * 2 * n + column, mask=inside, other=0.0)
    up = tl.load(x + row * 2 * n + n + column, mask=inside, other=0.0)
    tl.store(out + row * n + column, gate * tl.sigmoid(gate) * up, mask=inside)


@triton.jit
def cross_entropy(loss, logits, labels, stride, n, block: tl.constexpr):
    row = tl.program_id(0)
    highest = -1e30
    total = 0.0
    for start in range(0, n, block):
        column = start + tl.arange(0, block)
        value = tl.load(logits + row * stride + column, mask=column < n, other=-1e30)
        higher = tl.maximum(highest, tl.max(value, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(value - higher), 0)
        highest = higher
    label = tl.load(labels + row)
    tl.store(loss + row, highest + tl.log(total) - tl.load(logits + row * stride + label))


@triton.jit
def expert_matmul(
    a, b, c, sorted_tokens, expert_of, padded, n, k, tokens, top,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(n, block_n)
    pm, pn = pid // tiles_n, pid % tiles_n
    if pm * block_m < tl.load(padded):
        token = tl.load(sorted_tokens + pm * block_m + tl.arange(0, block_m))
        there = token < tokens * top
        columns = (pn * block_n + tl.arange(0, block_n)) % n
        inner = tl.arange(0, block_k)
        expert = tl.load(expert_of + pm)
        at_a = a + (token[:, None] // top) * k + inner[None, :]
        at_b = b + expert * n * k + columns[None, :] * k + inner[:, None]
        sums = tl.zeros((block_m, block_n), tl.float32)
        for step in range(tl.cdiv(k, block_k)):
            left = k - step * block_k
            x = tl.load(at_a, mask=there[:, None] & (inner[None, :] < left), other=0.0)
            w = tl.load(at_b, mask=inner[:, None] < left, other=0.0)
            sums = tl.dot(x, w, sums)
            at_a += block_k
            at_b += block_k
        column = pn * block_n + tl.arange(0, block_n)
        at_c = c + token[:, None] * n + column[None, :]
        tl.store(at_c, sums.to(tl.float16), mask=there[:, None] & (column[None, :] < n))


@triton.jit
def top_two(scores, weights, chosen, tokens, experts: tl.constexpr, block: tl.constexpr):
    token = tl.program_id(0) * block + tl.arange(0, block)
    inside = token < tokens
    column = tl.arange(0, experts)
    at = token[:, None] * experts + column[None, :]
    value = tl.load(scores + at, mask=inside[:, None], other=-1e9)
    for place in tl.static_range(2):
        best = tl.argmax(value, 1)
        tl.store(chosen + token * 2 + place, best, mask=inside)
        tl.store(weights + token * 2 + place, tl.max(value, 1), mask=inside)
        value = tl.where(column[None, :] == best[:, None], -1e9, value)


@triton.jit
def selective_scan(
    out, x, delta, a, b, c, length, channels, state: tl.constexpr, block: tl.constexpr
):
    batch = tl.program_id(1)
    channel = tl.program_id(0) * block + tl.arange(0, block)
    inside = channel < channels
    inner = tl.arange(0, state)
    rate = tl.load(a + channel[:, None] * state + inner[None, :], mask=inside[:, None], other=0.0)
    h = tl.zeros((block, state), tl.float32)
    for t in range(length):
        at = (batch * length + t) * channels + channel
        d = tl.load(delta + at, mask=inside, other=0.0)
        u = tl.load(x + at, mask=inside, other=0.0)
        at_state = (batch * length + t) * state + inner
        h = tl.exp(d[:, None] * rate) * h + (d * u)[:, None] * tl.load(b + at_state)[None, :]
        y = tl.sum(h * tl.load(c + at_state)[None, :], 1)
        tl.store(out + at, y, mask=inside)


@triton.jit
def chunk_scan(out, x, decay, length, channels, block: tl.constexpr):
    row = tl.program_id(0) * channels
    t = tl.program_id(1) * block + tl.arange(0, block)
    column = tl.arange(0, 16)
    inside = (t[:, None] < length) & (column[None, :] < channels)
    at = (tl.program_id(0) * length + t[:, None]) * channels + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0)
    scale = tl.load(decay + row + column, mask=column < channels, other=0.0)
    tl.store(out + at, tl.cumsum(value, 0) * scale[None, :], mask=inside)


@triton.jit
def batched_matmul(
    a, b, c, m, n, k, a_z, b_z, c_z,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(2)
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    sums = tl.zeros((block_m, block_n), tl.float32)
    for step in range(0, k, block_k):
        depth = step + inner
        x = tl.load(
            a + z * a_z + rows[:, None] * k + depth[None, :],
            mask=(rows[:, None] < m) & (depth[None, :] < k), other=0.0,
        )  # fmt: skip
        y = tl.load(
            b + z * b_z + depth[:, None] * n + columns[None, :],
            mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        sums = tl.dot(x, y, sums)
    at = c + z * c_z + rows[:, None] * n + columns[None, :]
    tl.store(at, sums.to(tl.float16), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def persistent_matmul(
    a, b, c, m, n, k,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(n, block_n)
    inner = tl.arange(0, block_k)
    for tile in range(tl.program_id(0), tl.cdiv(m, block_m) * tiles_n, tl.num_programs(0)):
        rows = (tile // tiles_n) * block_m + tl.arange(0, block_m)
        columns = (tile % tiles_n) * block_n + tl.arange(0, block_n)
        sums = tl.zeros((block_m, block_n), tl.float32)
        for step in range(0, k, block_k):
            depth = step + inner
            x = tl.load(
                a + rows[:, None] * k + depth[None, :],
                mask=(rows[:, None] < m) & (depth[None, :] < k), other=0.0,
            )  # fmt: skip
            y = tl.load(
                b + depth[:, None] * n + columns[None, :],
                mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0,
            )  # fmt: skip
            sums = tl.dot(x, y, sums)
        at = c + rows[:, None] * n + columns[None, :]
        tl.store(at, sums.to(tl.float16), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def quantize(out, scales, x, n, block: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    value = tl.load(x + row * n + column, mask=column < n, other=0.0)
    scale = tl.max(tl.abs(value), 0) / 127.0 + 1e-9
    tl.store(out + row * n + column, (value / scale).to(tl.int8), mask=column < n)
    tl.store(scales + row, scale)


@triton.jit
def column_block(out, x, stride, first, columns, rows, block: tl.constexpr):
    """Some columns of a wider matrix, as one rank's share of a tensor."""
    row = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < columns
    value = tl.load(x + row * stride + first + column, mask=inside)
    tl.store(out + row * stride + first + column, value * 2, mask=inside)


def f32(value: float) -> bytes:
    return struct.pack("<f", value)


def of_flash(rng: random.Random, causal: bool = False) -> Launch:
    batches, group, width = rng.randint(1, 2), rng.choice([1, 2]), 32
    heads = group * rng.randint(1, 2)
    queries = rng.randint(1, 100)
    keys = queries if causal else rng.randint(1, 100)
    few = heads // group
    if rng.random() < 0.5:  # [batch, position, head, width]
        qs = (queries * heads * width, width, heads * width)
        ks = (keys * few * width, width, few * width)
    else:  # [batch, head, position, width]
        qs = (heads * queries * width, queries * width, width)
        ks = (few * keys * width, keys * width, width)
    count, others = batches * heads * queries * width, batches * few * keys * width
    return launch(
        (-(-queries // 64), batches * heads), 4, halves(rng, count), halves(rng, others),
        halves(rng, others), room(count, 2), *map(i32, (*qs, *ks, *qs)), i32(heads), i32(group),
        i32(queries), i32(keys), f32(0.2),
    )  # fmt: skip


def of_flash_causal(rng: random.Random) -> Launch:
    return of_flash(rng, True)


def of_paged_attention(rng: random.Random) -> Launch:
    sequences, heads, pages, page, width, pool = rng.randint(1, 3), 2, rng.randint(1, 4), 16, 32, 12
    table = ints([rng.randrange(pool) for _ in range(sequences * pages)])
    lengths = ints([rng.randint(1, pages * page) for _ in range(sequences)])
    size = sequences * heads * width
    cache = pool * page * heads * width
    return launch(
        (sequences, heads), 4, room(size), floats(rng, size), floats(rng, cache),
        floats(rng, cache), table, lengths, i32(pages), i32(heads), f32(0.2),
    )  # fmt: skip


def of_cache_update(rng: random.Random) -> Launch:
    tokens, slots, width = rng.randint(1, 9), 20, 64
    stride = width + 16 * rng.randint(0, 2)
    chosen = [rng.choice([-1, rng.randrange(slots)]) for _ in range(tokens)]
    size = tokens * stride
    return launch(
        (tokens,), 4, floats(rng, size), floats(rng, size), room(slots * width),
        room(slots * width), ints(chosen), i32(stride),
    )  # fmt: skip


def of_rms_norm(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 12), rng.randint(1, 256)
    stride, out = n + rng.choice([0, 0, 5]), n + rng.choice([0, 0, 3])
    return launch(
        (rows,), 4, room(rows * out), floats(rng, rows * stride), floats(rng, n), i32(out),
        i32(stride), i32(n),
    )  # fmt: skip


def of_add_rms_norm(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 12), rng.randint(1, 500)
    count = rows * n
    return launch((rows,), 4, floats(rng, count), floats(rng, count), floats(rng, n), i32(n))


def of_layer_norm_backward(rng: random.Random) -> Launch:
    rows, n, per = rng.randint(1, 20), rng.randint(1, 128), rng.randint(1, 8)
    programs = -(-rows // per)
    size = rows * n
    return launch(
        (programs,), 4, room(size), floats(rng, size), room(programs * n), floats(rng, size),
        floats(rng, n), floats(rng, rows), floats(rng, rows), i32(n), i32(n), i32(rows), i32(per),
    )  # fmt: skip


def of_rotary(rng: random.Random) -> Launch:
    length, heads, half = rng.randint(1, 20), rng.randint(1, 4), 32
    size = length * heads * 2 * half
    table = length * half
    return launch(
        (length, heads), 1, floats(rng, size), floats(rng, table), floats(rng, table),
        i32(heads * 2 * half), i32(2 * half), i32(length),
    )  # fmt: skip


def of_silu(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 9), rng.randint(1, 300)
    grid = (-(-n // 128), rows)
    return launch(grid, 4, room(rows * n), floats(rng, 2 * rows * n), i32(n))


def of_cross_entropy(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 12), rng.randint(1, 400)
    labels = ints([rng.randrange(n) for _ in range(rows)])
    return launch((rows,), 4, room(rows), floats(rng, rows * n), labels, i32(n), i32(n))


def of_expert_matmul(rng: random.Random) -> Launch:
    tokens, top, experts = rng.randint(1, 12), 2, 4
    n, k = 16 * rng.randint(1, 4), 16 * rng.randint(1, 4)
    lists: list[list[int]] = [[] for _ in range(experts)]
    for place in range(tokens * top):
        lists[rng.randrange(experts)].append(place)
    order, owner = [], []
    for expert, found in enumerate(lists):
        for start in range(0, len(found), 16):
            part = found[start : start + 16]
            order += part + [tokens * top] * (16 - len(part))
            owner.append(expert)
    grid = len(owner) * -(-n // 32)
    return launch(
        (grid,), 4, halves(rng, tokens * k), halves(rng, experts * n * k),
        room(tokens * top * n, 2), ints(order), ints(owner), ints([len(order)]), i32(n), i32(k),
        i32(tokens), i32(top),
    )  # fmt: skip


def of_top_two(rng: random.Random) -> Launch:
    tokens = rng.randint(1, 70)
    scores = floats(rng, tokens * 16)
    return launch((-(-tokens // 32),), 4, scores, room(2 * tokens), room(2 * tokens), i32(tokens))


def of_selective_scan(rng: random.Random) -> Launch:
    batches, length, channels, state = rng.randint(1, 2), rng.randint(1, 12), rng.randint(1, 90), 16
    n, s = batches * length * channels, batches * length * state
    return launch(
        (-(-channels // 32), batches), 4, room(n), floats(rng, n), floats(rng, n),
        floats(rng, channels * state), floats(rng, s), floats(rng, s), i32(length), i32(channels),
    )  # fmt: skip


def of_chunk_scan(rng: random.Random) -> Launch:
    batches, length, channels = rng.randint(1, 3), rng.randint(1, 90), rng.randint(1, 16)
    n = batches * length * channels
    return launch(
        (batches, -(-length // 32)), 4, room(n), floats(rng, n), floats(rng, batches * channels),
        i32(length), i32(channels),
    )  # fmt: skip


def of_batched_matmul(rng: random.Random) -> Launch:
    z, m, n, k = rng.randint(1, 3), rng.randint(1, 70), rng.randint(1, 70), rng.randint(1, 70)
    grid = (-(-m // 32), -(-n // 32), z)
    return launch(
        grid, 4, halves(rng, z * m * k), halves(rng, z * k * n), room(z * m * n, 2), i32(m),
        i32(n), i32(k), i32(m * k), i32(k * n), i32(m * n),
    )  # fmt: skip


def of_persistent_matmul(rng: random.Random) -> Launch:
    m, n, k = rng.randint(1, 90), rng.randint(1, 90), rng.randint(1, 70)
    return launch(
        (rng.randint(1, 6),), 4, halves(rng, m * k), halves(rng, k * n), room(m * n, 2), i32(m),
        i32(n), i32(k),
    )  # fmt: skip


def of_quantize(rng: random.Random) -> Launch:
    rows, n = rng.randint(1, 9), rng.randint(1, 256)
    return launch((rows,), 4, room(rows * n, 1), room(rows), floats(rng, rows * n), i32(n))


def of_column_block(rng: random.Random) -> Launch:
    rows, columns = rng.randint(1, 12), rng.randint(1, 64)
    first, stride = rng.randint(0, 40), columns + 40 + rng.randint(0, 30)
    n = rows * stride
    out = Buffer(4 * n)
    return launch((rows,), 1, out, floats(rng, n), i32(stride), i32(first), i32(columns), i32(rows))


_TILES = {"block_m": 32, "block_n": 32, "block_k": 32}
_FLASH = {
    **signature(
        "q k v out", "fp16",
        "q_b q_h q_s k_b k_h k_s o_b o_h o_s heads group queries keys",
    ),
    "scale": "fp32",
}  # fmt: skip
_FLASH_ALIGNED = (
    "q",
    "k",
    "v",
    "out",
    "q_b",
    "q_h",
    "q_s",
    "k_b",
    "k_h",
    "k_s",
    "o_b",
    "o_h",
    "o_s",
)
_FLASH_TILES = {"block_m": 64, "block_n": 32, "width": 32}


def _of(kernel: Any, pointers: str, integers: str, **constants: Any) -> Any:
    return kernel, signature(pointers, "fp32", integers), constants


VARIANTS: dict[str, Variant] = {
    "flash_attention": Variant(
        flash_attention, _FLASH, _FLASH_TILES | {"causal": False}, of_flash, _FLASH_ALIGNED
    ),
    "flash_attention_causal": Variant(
        flash_attention, _FLASH, _FLASH_TILES | {"causal": True}, of_flash_causal, _FLASH_ALIGNED
    ),
    "paged_attention": Variant(
        paged_attention,
        {
            **signature("out q k_cache v_cache", "fp32", ""),
            **signature("table lengths", "i32", "pages heads"),
            "scale": "fp32",
        },
        {"width": 32, "page": 16},
        of_paged_attention,
    ),
    "cache_update": Variant(
        cache_update,
        {**signature("key value k_cache v_cache", "fp32", ""), **signature("slots", "i32", "stride")},  # noqa: E501
        {"width": 64},
        of_cache_update,
    ),
    "rms_norm": Variant(*_of(rms_norm, "out x weight", "stride_out stride n", block=256), of_rms_norm),  # noqa: E501
    "add_rms_norm": Variant(*_of(add_rms_norm, "x residual weight", "n", block=128), of_add_rms_norm),  # noqa: E501
    "layer_norm_backward": Variant(
        *_of(layer_norm_backward, "dx dy dw x weight mean rstd", "stride n rows per", block=128),
        of_layer_norm_backward,
    ),
    "rotary": Variant(
        *_of(rotary, "q cos sin", "stride_s stride_h length", half=32), of_rotary, warps=1
    ),
    "silu_and_mul": Variant(*_of(silu_and_mul, "out x", "n", block=128), of_silu),
    "cross_entropy": Variant(
        cross_entropy,
        {**signature("loss logits", "fp32", ""), **signature("labels", "i32", "stride n")},
        {"block": 128},
        of_cross_entropy,
    ),
    "expert_matmul": Variant(
        expert_matmul,
        {
            **signature("a b c", "fp16", ""),
            **signature("sorted_tokens expert_of padded", "i32", "n k tokens top"),
        },
        _TILES | {"block_m": 16},
        of_expert_matmul,
        ("a", "b", "c", "n", "k"),
    ),
    "top_two": Variant(
        top_two,
        {**signature("scores weights", "fp32", ""), **signature("chosen", "i32", "tokens")},
        {"experts": 16, "block": 32},
        of_top_two,
    ),
    "selective_scan": Variant(
        *_of(selective_scan, "out x delta a b c", "length channels", state=16, block=32),
        of_selective_scan,
    ),
    "chunk_scan": Variant(*_of(chunk_scan, "out x decay", "length channels", block=32), of_chunk_scan),  # noqa: E501
    "batched_matmul": Variant(
        batched_matmul, signature("a b c", "fp16", "m n k a_z b_z c_z"), _TILES, of_batched_matmul
    ),
    "persistent_matmul": Variant(
        persistent_matmul, signature("a b c", "fp16", "m n k"), _TILES, of_persistent_matmul
    ),
    "quantize": Variant(
        quantize,
        {**signature("out", "i8", ""), **signature("scales x", "fp32", "n")},
        {"block": 256},
        of_quantize,
    ),
    "column_block": Variant(
        *_of(column_block, "out x", "stride first columns rows", block=64), of_column_block, warps=1
    ),
}  # fmt: skip
