# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of a transformer, each with a function that launches it.

Activations are float32 in memory; matrix products read them as float16 and
accumulate in float32. Weights of `linear` are float16, [inputs, outputs].
Every launch goes to the device's default stream.
"""

# Triton reads the annotations of kernel parameters, so they stay as they are written.
import numpy as np
import triton
import triton.language as tl

from .device_array import DeviceArray

BLOCK_M, BLOCK_N, BLOCK_K = 32, 64, 64
ROW_WARPS = 4


@triton.jit
def linear_kernel(
    x, weight, bias, y, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[M, N] = x[M, K] @ weight[K, N] + bias[N]; BLOCK_N divides N and BLOCK_K divides K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    in_rows = rows[:, None] < M
    x_pointers = x + rows[:, None] * K + inner[None, :]
    weight_pointers = weight + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        left = tl.load(x_pointers, mask=in_rows, other=0.0).to(tl.float16)
        total = tl.dot(left, tl.load(weight_pointers), total)
        x_pointers += BLOCK_K
        weight_pointers += BLOCK_K * N
    total += tl.load(bias + columns)[None, :]
    tl.store(y + rows[:, None] * N + columns[None, :], total, mask=in_rows)


def linear(x: DeviceArray, weight: DeviceArray, bias: DeviceArray) -> DeviceArray:
    """x @ weight + bias."""
    (m, k), n = x.shape, weight.shape[1]
    if n % BLOCK_N or k % BLOCK_K or weight.shape[0] != k:
        raise ValueError(f"linear cannot multiply {x.shape} by {weight.shape}")
    y = DeviceArray((m, n), np.float32)
    grid = (triton.cdiv(m, BLOCK_M), n // BLOCK_N)
    linear_kernel[grid](x, weight, bias, y, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=4)
    return y


@triton.jit
def add_layer_norm_kernel(x, residual, gain, bias, y, N, epsilon, BLOCK: tl.constexpr):
    """y[row] = layer_norm(x[row] + residual[row]), one row a program."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    value = tl.load(x + row * N + columns, mask=inside, other=0.0)
    value += tl.load(residual + row * N + columns, mask=inside, other=0.0)
    mean = tl.sum(value, axis=0) / N
    centred = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    scaled = centred / tl.sqrt(variance + epsilon)
    scaled *= tl.load(gain + columns, mask=inside, other=0.0)
    scaled += tl.load(bias + columns, mask=inside, other=0.0)
    tl.store(y + row * N + columns, scaled, mask=inside)


def add_layer_norm(
    x: DeviceArray, residual: DeviceArray, gain: DeviceArray, bias: DeviceArray, epsilon: float
) -> DeviceArray:
    """Layer norm, over the last axis, of the sum of two arrays."""
    m, n = x.shape
    y = DeviceArray((m, n), np.float32)
    block = triton.next_power_of_2(n)
    add_layer_norm_kernel[(m,)](x, residual, gain, bias, y, n, epsilon, block, num_warps=ROW_WARPS)
    return y


@triton.jit
def gelu_kernel(x, y, count, BLOCK: tl.constexpr):
    """The exact GELU, with the error function."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < count)
    tl.store(
        y + index, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=index < count
    )


def gelu(x: DeviceArray) -> DeviceArray:
    """GELU of each element."""
    y = DeviceArray(x.shape, np.float32)
    count = x.nbytes // 4
    gelu_kernel[(triton.cdiv(count, 1024),)](x, y, count, 1024, num_warps=4)
    return y


@triton.jit
def attention_kernel(
    qkv, lengths, out, padded, scale,
    HEADS: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_KV: tl.constexpr,
):  # fmt: skip
    """Flash attention: one block of queries of one head of one sequence a program.

    qkv is [sequences * padded, 3 * HEADS * HEAD]; keys past a sequence's length are left out.
    """
    queries = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    length = tl.load(lengths + sequence)
    width = 3 * HEADS * HEAD
    lane = tl.arange(0, HEAD)
    base = qkv + sequence * padded * width + head * HEAD + lane[None, :]
    in_rows = queries[:, None] < padded
    q = tl.load(base + queries[:, None] * width, mask=in_rows, other=0.0).to(tl.float16)

    highest = tl.full((BLOCK_Q,), -1.0e30, dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q, HEAD), dtype=tl.float32)
    for start in range(0, padded, BLOCK_KV):
        keys = start + tl.arange(0, BLOCK_KV)
        rows = base + keys[:, None] * width
        in_keys = keys[:, None] < padded
        k = tl.load(rows + HEADS * HEAD, mask=in_keys, other=0.0).to(tl.float16)
        v = tl.load(rows + 2 * HEADS * HEAD, mask=in_keys, other=0.0).to(tl.float16)
        allowed = keys[None, :] < length
        if CAUSAL:
            allowed = allowed & (keys[None, :] <= queries[:, None])
        score = tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, -1.0e30)
        raised = tl.maximum(highest, tl.max(score, axis=1))
        weight = tl.where(allowed, tl.exp(score - raised[:, None]), 0.0)
        shrink = tl.exp(highest - raised)
        weight_sum = weight_sum * shrink + tl.sum(weight, axis=1)
        total = tl.dot(weight.to(tl.float16), v, total * shrink[:, None])
        highest = raised
    # A padding query of a causal sequence always sees key 0, so the sum is never zero.
    total = total / weight_sum[:, None]
    target = out + (sequence * padded + queries[:, None]) * (HEADS * HEAD) + head * HEAD
    tl.store(target + lane[None, :], total, mask=in_rows)


def attention(
    qkv: DeviceArray, lengths: DeviceArray, heads: int, causal: bool = False
) -> DeviceArray:
    """Softmax attention of each sequence over itself.

    A row of qkv holds the queries of all heads, then their keys, then their values.
    """
    sequences = lengths.shape[0]
    padded = qkv.shape[0] // sequences
    head = qkv.shape[1] // (3 * heads)
    out = DeviceArray((qkv.shape[0], heads * head), np.float32)
    block = 16 if padded <= 16 else 32
    grid = (triton.cdiv(padded, block), heads, sequences)
    attention_kernel[grid](
        qkv, lengths, out, padded, head**-0.5, heads, head, causal, block, block, num_warps=1
    )
    return out


@triton.jit
def softmax_kernel(x, y, N, BLOCK: tl.constexpr):
    """Softmax of one row a program."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row * N + columns, mask=columns < N, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * N + columns, power / tl.sum(power, axis=0), mask=columns < N)


def softmax(x: DeviceArray) -> DeviceArray:
    """Softmax over the last axis."""
    m, n = x.shape
    y = DeviceArray((m, n), np.float32)
    softmax_kernel[(m,)](x, y, n, triton.next_power_of_2(n), num_warps=ROW_WARPS)
    return y


@triton.jit
def embedding_kernel(
    tokens, words, positions, kinds, gain, bias, y, padded, N, epsilon, BLOCK: tl.constexpr
):
    """The row of a token, of its position and of token type 0, added and layer-normed."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    token = tl.load(tokens + row)
    value = tl.load(words + token * N + columns, mask=inside, other=0.0)
    value += tl.load(positions + (row % padded) * N + columns, mask=inside, other=0.0)
    value += tl.load(kinds + columns, mask=inside, other=0.0)
    mean = tl.sum(value, axis=0) / N
    centred = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    scaled = centred / tl.sqrt(variance + epsilon)
    scaled *= tl.load(gain + columns, mask=inside, other=0.0)
    scaled += tl.load(bias + columns, mask=inside, other=0.0)
    tl.store(y + row * N + columns, scaled, mask=inside)


@triton.jit
def mean_pool_kernel(x, lengths, y, padded, N, BLOCK: tl.constexpr):
    """The mean of a sequence's rows, scaled to length 1; one sequence a program."""
    sequence = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    length = tl.load(lengths + sequence)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(length):
        total += tl.load(x + (sequence * padded + row) * N + columns, mask=inside, other=0.0)
    mean = total / length
    norm = tl.sqrt(tl.sum(mean * mean, axis=0))
    tl.store(y + sequence * N + columns, mean / norm, mask=inside)


def mean_pool(x: DeviceArray, lengths: DeviceArray) -> DeviceArray:
    """One unit vector a sequence: the mean of its rows that are not padding."""
    sequences, n = lengths.shape[0], x.shape[1]
    y = DeviceArray((sequences, n), np.float32)
    padded = x.shape[0] // sequences
    block = triton.next_power_of_2(n)
    mean_pool_kernel[(sequences,)](x, lengths, y, padded, n, block, num_warps=ROW_WARPS)
    return y
