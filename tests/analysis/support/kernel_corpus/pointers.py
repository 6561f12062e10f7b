# SPDX-License-Identifier: Apache-2.0
"""Launches of corpus/pointers.cu."""

from __future__ import annotations

import random
import struct

from kernel_corpus.launches import (
    REGISTRY,
    Argument,
    Buffer,
    Launch,
    f64,
    floats,
    i32,
    i64,
    line,
    one,
    room,
    u32,
)

kernel = REGISTRY("pointers")


@kernel
def in_struct(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    first = rng.randint(0, 9)
    pair: Argument = [room(n), floats(rng, n + first), i32(n), struct.pack("<h", first), b"\x02"]
    return one(grid, block, pair)


@kernel
def in_nested_struct(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    outer: Argument = [
        i32(n), b"\0" * 4, room(n), floats(rng, n), i32(n), b"\0" * 4, f64(0.5)
    ]  # fmt: skip
    return one(grid, block, outer)


def many(rng: random.Random, n: int) -> Argument:
    return [room(n), *(floats(rng, n) for _ in range(4)), i32(n)]


@kernel
def array_in_struct(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, many(rng, n))


@kernel
def array_in_struct_by_block(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return Launch((grid, rng.randint(1, 4), 1), (block, 1, 1), [many(rng, n)])


@kernel
def concatenated(rng: random.Random) -> Launch:
    """As many arrays as the grid is high; what lies behind them in the struct is left over."""
    counts = [rng.randint(1, 300) for _ in range(rng.randint(1, 6))]
    firsts = [sum(counts[:place]) for place in range(len(counts))]
    left = 32 - len(counts)
    batch: Argument = [
        *(floats(rng, count) for count in counts),
        *(struct.pack("<Q", rng.getrandbits(64)) for _ in range(left)),
        *(u32(number) for number in firsts + left * [rng.getrandbits(32)]),
        *(u32(number) for number in counts + left * [rng.getrandbits(32)]),
    ]
    return Launch((rng.randint(1, 3), len(counts), 1), (64, 1, 1), [room(sum(counts)), batch])


@kernel
def joined(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    m = rng.randint(0, n)
    return one(grid, block, room(n), floats(rng, m), floats(rng, n - m + 3), i32(n), i32(m))


@kernel
def array_in_struct_loop(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, many(rng, n))


def simple(*names: str, inputs: int = 1, scalars: int = 1) -> None:
    """Kernels of (out, inputs..., n, flag...) whose buffers have n elements or a few more."""

    def maker(rng: random.Random) -> Launch:
        grid, block, n = line(rng)
        buffers = [floats(rng, n + 16) for _ in range(inputs)]
        flags = [i32(rng.randint(0, 1)) for _ in range(scalars - 1)]
        return one(grid, block, room(n + 16), *buffers, i32(n), *flags)

    for name in names:
        REGISTRY.makers.setdefault("pointers", {})[name] = maker


simple("chosen_by_flag", scalars=2)
simple("chosen_by_thread", "local_pointers", inputs=2)
simple("local_array", "through_shared")
simple("as_integer", inputs=0)


@kernel
def chosen_in_branches(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    m = rng.randint(0, n)
    return one(grid, block, room(n), floats(rng, m), floats(rng, n - m), i32(n), i32(m))


@kernel
def ping_pong(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), room(n), i32(n), i32(rng.randint(0, 9)))


@kernel
def maybe_null(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    bias: Argument = rng.choice([i64(0), floats(rng, n)])
    return one(grid, block, room(n), floats(rng, n), bias, i32(n))


@kernel
def aligned_down(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n, 1), Buffer(4 * n + 16, b"", rng.randint(0, 15)), i32(n))


@kernel
def byte_offset(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    offset = 4 * rng.randint(0, 20)
    return one(grid, block, room(n), Buffer(4 * n + offset), i64(offset), i32(n))


@kernel
def difference(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    a = floats(rng, n)
    return one(grid, block, room(n), a, Buffer(a.size, a.data, a.size, shares=True))


@kernel
def same_twice(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(2 * n), i32(n))


@kernel
def local_indices(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 8 * n), i32(n))


@kernel
def through_generic(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, 256), i32(n), i32(rng.randint(0, 1)))


@kernel
def stores_a_pointer(rng: random.Random) -> Launch:
    return one(1, 32, room(32, 8), floats(rng, 32))
