# SPDX-License-Identifier: Apache-2.0
"""Launches of corpus/loops.cu."""

from __future__ import annotations

import random

from kernel_corpus.launches import (
    REGISTRY,
    Argument,
    Buffer,
    Launch,
    floats,
    i32,
    i64,
    ints,
    line,
    one,
    plane,
    room,
    two,
)

kernel = REGISTRY("loops")


def simple(*names: str, wide: bool = False) -> None:
    """Kernels of (out, a, n) in which a has n elements and out n or one per thread."""

    def maker(rng: random.Random) -> Launch:
        grid, block, n = line(rng)
        out = room(max(n, grid * block))
        return one(grid, block, out, floats(rng, n), i64(n) if wide else i32(n))

    for name in names:
        REGISTRY.makers.setdefault("loops", {})[name] = maker


simple("grid_stride", "grid_stride_unsigned", "no_unroll", "do_while", "count_down",
       "count_down_unsigned", "not_equal", "pointer_walk", "early_exit", "conditional_step",
       "overrunning_rows")  # fmt: skip
simple("grid_stride_size", wide=True)


@kernel
def block_stride(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(grid * n), floats(rng, grid * n), i32(n))


def matrix(rng: random.Random) -> tuple[int, int]:
    return rng.randint(1, 60), rng.choice([rng.randint(1, 40), 4 * rng.randint(1, 10)])


@kernel
def row_sum(rng: random.Random) -> Launch:
    rows, columns = matrix(rng)
    return one(2, 32, room(rows), floats(rng, rows * columns), i32(rows), i32(columns))


@kernel
def column_sum(rng: random.Random) -> Launch:
    rows, columns = matrix(rng)
    return one(2, 32, room(columns), floats(rng, rows * columns), i32(rows), i32(columns))


@kernel
def count_down_unrolled(rng: random.Random) -> Launch:
    n = rng.randint(1, 99)
    return one(1, 32, room(n), i32(n))


@kernel
def by_steps(rng: random.Random) -> Launch:
    n = rng.randint(1, 500)
    return one(1, 64, room(64), floats(rng, n), i32(n), i32(rng.randint(1, 70)))


@kernel
def by_four(rng: random.Random) -> Launch:
    n = rng.randint(1, 500)
    return one(1, 64, room(64), floats(rng, n + 4), i32(n))


@kernel
def pointer_walk_not_equal(rng: random.Random) -> Launch:
    n = rng.randint(1, 300)
    a = floats(rng, n)
    return one(1, 32, room(32), a, Buffer(a.size, a.data, a.size, shares=True))


@kernel
def fixed_trips(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def fixed_trips_rolled(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    return one(grid, block, room(grid * block), floats(rng, 298))


@kernel
def nested(rng: random.Random) -> Launch:
    rows, columns, depth = rng.randint(1, 5), rng.randint(1, 9), rng.randint(1, 60)
    a = floats(rng, rows * columns * depth)
    return one(2, 32, room(depth), a, i32(rows), i32(columns), i32(depth))


@kernel
def triangle(rng: random.Random) -> Launch:
    n = rng.randint(1, 50)
    return one(2, 32, room(n), floats(rng, n * n), i32(n))


@kernel
def skipping(rng: random.Random) -> Launch:
    n = rng.randint(1, 200)
    return one(1, 32, room(32), floats(rng, n), floats(rng, n), i32(n))


@kernel
def until_found(rng: random.Random) -> Launch:
    n = rng.randint(1, 50)
    return one(1, 32, room(32), ints([1] * n + [0]))


@kernel
def rows_of_lists(rng: random.Random) -> Launch:
    rows, columns = rng.randint(1, 60), rng.randint(1, 30)
    counts = [rng.randint(0, 5) for _ in range(rows)]
    first = [sum(counts[:i]) for i in range(rows + 1)]
    chosen = [rng.randrange(columns) for _ in range(first[-1])]
    arguments: list[Argument] = [
        room(rows), ints(first), ints(chosen), floats(rng, first[-1]), floats(rng, columns),
        i32(rows),
    ]  # fmt: skip
    return one(2, 32, *arguments)


@kernel
def halving(rng: random.Random) -> Launch:
    n = rng.choice([2, 8, 64, 128])
    return one(1, 64, floats(rng, max(n, 64)), i32(n))


@kernel
def two_in_a_row(rng: random.Random) -> Launch:
    n, m = rng.randint(1, 90), rng.randint(1, 90)
    return one(1, 32, room(32), floats(rng, max(n, m)), i32(n), i32(m))


def product(rng: random.Random, block: tuple[int, int]) -> Launch:
    m, n, k = rng.randint(1, 40), rng.randint(1, 40), rng.randint(1, 37)
    grid = (-(-n // block[0]), -(-m // block[1]))
    return two(
        grid, block, room(m * n), floats(rng, m * k), floats(rng, k * n), i32(m), i32(n), i32(k)
    )


@kernel
def matmul(rng: random.Random) -> Launch:
    return product(rng, rng.choice([(16, 16), (32, 2)]))


@kernel
def matmul_tiled(rng: random.Random) -> Launch:
    return product(rng, (16, 16))


@kernel
def batched(rng: random.Random) -> Launch:
    m, n, z = rng.randint(1, 20), rng.randint(1, 30), rng.randint(1, 4)
    stride = m * n + rng.randint(0, 8)
    grid = (-(-n // 16), -(-m // 8), z)
    arguments: list[Argument] = [
        room(z * m * n), floats(rng, z * stride), floats(rng, n), i32(m), i32(n), i64(stride)
    ]  # fmt: skip
    return Launch(grid, (16, 8, 1), arguments)


@kernel
def convolution(rng: random.Random) -> Launch:
    grid, block, width, height = plane(rng)
    size = rng.choice([1, 3, 4, 5])
    n = width * height
    return two(
        grid, block, room(n), floats(rng, n), floats(rng, size * size), i32(height), i32(width),
        i32(size),
    )  # fmt: skip
