# SPDX-License-Identifier: Apache-2.0
"""Launches of corpus/indirect.cu."""

from __future__ import annotations

import random
import struct

from kernel_corpus.launches import (
    REGISTRY,
    Buffer,
    Launch,
    floats,
    i32,
    ints,
    line,
    one,
    room,
    u32,
)

kernel = REGISTRY("indirect")


def indices(rng: random.Random, count: int, below: int) -> Buffer:
    return ints([rng.randrange(below) for _ in range(count)])


def raw(rng: random.Random, count: int) -> Buffer:
    return Buffer(max(count, 1), rng.randbytes(max(count, 1)))


@kernel
def gather(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 90), indices(rng, n, 90), i32(n))


@kernel
def gather_long(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    where = struct.pack(f"<{n}q", *(rng.randrange(90) for _ in range(n)))
    return one(grid, block, room(n), floats(rng, 90), Buffer(8 * n, where), i32(n))


@kernel
def scatter(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(90), floats(rng, n), indices(rng, n, 90), i32(n))


@kernel
def gather_rows(rng: random.Random) -> Launch:
    rows, columns = rng.randint(1, 5), rng.randint(1, 70)
    table = floats(rng, 9 * columns)
    where = indices(rng, rows, 9)
    return one(rows, 32, room(rows * columns), table, where, i32(rows), i32(columns))


@kernel
def lookup_byte(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 256), raw(rng, n), i32(n))


@kernel
def lookup_masked(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 64), raw(rng, 4 * n), i32(n))


def guarded(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    size = rng.randint(1, 90)
    where = ints([rng.choice([-3, rng.randrange(200), -(1 << 31)]) for _ in range(n)])
    return one(grid, block, room(n), floats(rng, size), where, i32(n), i32(size))


REGISTRY.makers["indirect"]["lookup_guarded"] = guarded
REGISTRY.makers["indirect"]["lookup_guarded_unsigned"] = guarded


@kernel
def histogram(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(256), raw(rng, n), i32(n))


@kernel
def append(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), room(1), floats(rng, n), i32(n))


@kernel
def float_atomics(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(1), floats(rng, n), i32(n))


@kernel
def compare_and_swap(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(4), i32(n))


def wrapping_factor(rng: random.Random) -> bytes:
    return i32(rng.choice([rng.randint(1, 5), 123456789, -7, 0x7FFFFFFF]))


@kernel
def overflow_multiply(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(1024), i32(n), wrapping_factor(rng))


@kernel
def overflow_index(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(1000), i32(n), wrapping_factor(rng))


@kernel
def overflow_widened(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    start = rng.choice([0x7FFFFFFF - 40, -(1 << 31), 5])
    return one(grid, block, room(1200, 1), i32(start), i32(n))


@kernel
def hashed(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 256), i32(n))


@kernel
def narrow_index(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 256), i32(n))


@kernel
def narrow_signed(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 256), i32(n))


@kernel
def ring(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    size = rng.choice([rng.randint(1, 900), n, n + 3, n - 1 or 1])
    return one(grid, block, room(size), i32(rng.randint(0, 2 * size)), i32(n), i32(size))


@kernel
def masked_ring(rng: random.Random) -> Launch:
    grid, block = rng.randint(1, 3), rng.choice([32, 64, 96])
    n = rng.choice([rng.randint(1, 60), rng.randint(120, 200)])
    return one(grid, block, room(n), floats(rng, 128), i32(rng.randint(-300, 300)), i32(n))


@kernel
def masked_after_widening(rng: random.Random) -> Launch:
    first = rng.choice([5, -20, rng.randint(-30000, 30000), 32740])
    return one(1, 64, room(1 << 17, 1), i32(first), i32(rng.randint(1, 64)))


@kernel
def short_arithmetic(rng: random.Random) -> Launch:
    first = rng.choice([0, 32760, -5, -32768, 1000])
    return one(1, 64, room(256), struct.pack("<h", first), i32(rng.randint(1, 64)))


@kernel
def unsigned_below_zero(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, max(n, grid * block) + 1), i32(n))


@kernel
def swizzled(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n + 8), i32(n))


@kernel
def interleaved_bits(rng: random.Random) -> Launch:
    grid = rng.randint(1, 4)
    return one(grid, 128, room(128 * grid), floats(rng, 128))


@kernel
def shifted_by(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n), i32(rng.randint(0, 9)))


@kernel
def mul_high(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    magic = rng.choice([0xFFFFFFFF, 0x80000000, rng.randint(0, 1 << 31)])
    return one(grid, block, room(n), floats(rng, n), i32(n), u32(magic))


@kernel
def signed_division(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n + 8), i32(n))


@kernel
def absolute(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n + 60), i32(n))


@kernel
def ternary(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n + 100), i32(n))


@kernel
def negative_steps(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    stride = rng.randint(-4, 4)
    a = floats(rng, n * max(abs(stride), 1))
    start = a.size - 4 if stride < 0 else 0
    return one(grid, block, room(n), Buffer(a.size, a.data, start), i32(n), i32(stride))


@kernel
def shuffled(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n + 1), i32(n))


@kernel
def voted(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(grid * block), floats(rng, 33), i32(n))
