# SPDX-License-Identifier: Apache-2.0
"""Launches of corpus/elementwise.cu."""

from __future__ import annotations

import random

from kernel_corpus.launches import REGISTRY, Launch, floats, i32, i64, line, one, plane, room, two

kernel = REGISTRY("elementwise")


@kernel
def add(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), floats(rng, n), i32(n))


@kernel
def add_long(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i64(n))


@kernel
def add_unsigned(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def add_size(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n, 8), room(n, 8), i64(n))


@kernel
def unguarded(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    return one(grid, block, room(grid * block), floats(rng, grid * block))


@kernel
def window(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    first = rng.randint(-5, n)
    return one(grid, block, room(n), floats(rng, n), i32(first), i32(rng.randint(first, n)))


@kernel
def window_unsigned(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    first = rng.randint(-5, n)
    count = rng.randint(0, max(n - max(first, 0), 0))
    return one(grid, block, room(n + 8), floats(rng, n + 8), i32(first), i32(count))


@kernel
def shifted(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    shift = rng.randint(0, 9)
    return one(grid, block, room(n + shift), floats(rng, n + 3), i32(n), i32(shift))


@kernel
def strided(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    stride = rng.randint(1, 5)
    return one(grid, block, room(n * stride), floats(rng, n * stride + 1), i32(n), i32(stride))


@kernel
def reversed(rng: random.Random) -> Launch:  # noqa: A001
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def vectors(rng: random.Random) -> Launch:
    grid, block, n = line(rng, 300)
    return one(grid, block, room(n, 16), floats(rng, 4 * n), i32(n))


@kernel
def two_each(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def bytes(rng: random.Random) -> Launch:  # noqa: A001
    grid, block, n = line(rng)
    return one(grid, block, room(n, 1), room(n, 1), i32(n))


@kernel
def plane_(rng: random.Random) -> Launch:
    grid, block, width, height = plane(rng)
    n = width * height
    return two(grid, block, room(n), floats(rng, n), i32(width), i32(height))


plane_.__name__ = "plane"
REGISTRY.makers["elementwise"]["plane"] = REGISTRY.makers["elementwise"].pop("plane_")


@kernel
def pitched(rng: random.Random) -> Launch:
    grid, block, width, height = plane(rng)
    pitch = width + rng.randint(0, 9)
    n = pitch * height
    return two(grid, block, room(n), floats(rng, n), i32(width), i32(height), i32(pitch))


@kernel
def transpose(rng: random.Random) -> Launch:
    grid, block, width, height = plane(rng)
    n = width * height
    return two(grid, block, room(n), floats(rng, n), i32(width), i32(height))


@kernel
def volume(rng: random.Random) -> Launch:
    nx, ny, nz = rng.randint(1, 20), rng.randint(1, 12), rng.randint(1, 7)
    n = nx * ny * nz
    grid = (-(-nx // 8), -(-ny // 4), -(-nz // 2))
    return Launch(grid, (8, 4, 2), [room(n), floats(rng, n), i32(nx), i32(ny), i32(nz)])


@kernel
def stencil(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def clamped(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def wrapped(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def wrapped_constant(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    return one(grid, block, room(grid * block), floats(rng, 100))


@kernel
def divided(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n), i32(rng.randint(1, 9)))


@kernel
def divided_constant(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def rows_and_columns(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    rows, columns = rng.randint(1, 20), rng.randint(1, 30)
    stride = columns + rng.randint(0, 4)
    return one(
        grid, block, room(rows * columns), floats(rng, rows * stride), i32(rows), i32(columns),
        i32(stride),
    )  # fmt: skip


@kernel
def broadcast(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    columns = rng.randint(1, 60)
    return one(grid, block, room(n), floats(rng, columns), floats(rng, 1), i32(n), i32(columns))


@kernel
def flagged(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    flag = rng.randint(0, 1)
    return one(grid, block, room(n), floats(rng, n), floats(rng, n), i32(n), i32(flag))


@kernel
def only_first(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    return one(grid, block, room(4), floats(rng, 8))


@kernel
def one_per_block(rng: random.Random) -> Launch:
    grid, block, _ = line(rng)
    return one(grid, block, room(grid), floats(rng, grid * block))


@kernel
def even_only(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), i32(n))


@kernel
def data_guard(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def overlapping_digits(rng: random.Random) -> Launch:
    return one(1, rng.choice([32, 64, 128]), room(64))


@kernel
def cut_digits(rng: random.Random) -> Launch:
    return one(1, rng.choice([24, 96, 120]), room(16))


@kernel
def turned_digits(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    columns = rng.choice([rng.randint(1, 40), 8, 16])
    rows = -(-n // columns)
    return one(grid, block, room(rows * columns), i32(n), i32(columns), i32(rows))


@kernel
def long_digits(rng: random.Random) -> Launch:
    grid, block, n = line(rng, 1500)
    columns = rng.choice([rng.randint(1, 40), 8, 16])
    pitch = columns + rng.choice([0, 0, 3])
    return one(grid, block, room(-(-n // columns) * pitch), i32(n), i32(columns), i32(pitch))


@kernel
def predicated(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), i32(n))


@kernel
def predicated_by_data(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def half_of_the_columns(rng: random.Random) -> Launch:
    grid, block, width, height = plane(rng)
    columns = 2 * width
    first = rng.choice([0, width])
    n = columns * height
    return two(
        grid, block, room(n), floats(rng, n), i32(columns), i32(height), i32(first), i32(width)
    )


@kernel
def clamped_below(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, max(n, 3)), i32(n))


@kernel
def two_guards(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n // 2 + 2), i32(n), i32(rng.randint(0, n)))
