# SPDX-License-Identifier: Apache-2.0
"""Random launches of the kernels in corpus/: shapes, scalars and buffers that fit them.

Kernels that do not end by themselves, or that would touch memory out of bounds, get arguments
with which they behave: a summary is a promise about correct programs.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Buffer:
    """Device memory of exactly `size` bytes. `offset`: where in it the argument points. `shares`:
    it is the memory of an equal buffer among the arguments before it."""

    size: int
    data: bytes = b""
    offset: int = 0
    shares: bool = False


Argument = bytes | Buffer | list["bytes | Buffer"]  # a list is a struct, members aligned by size


@dataclass(frozen=True)
class Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: list[Argument]
    shared: int = 0


Maker = Callable[[random.Random], Launch]


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def floats(rng: random.Random, count: int, low: float = -1.0, high: float = 1.0) -> Buffer:
    count = max(count, 1)
    return Buffer(
        4 * count, struct.pack(f"<{count}f", *(rng.uniform(low, high) for _ in range(count)))
    )


def ints(values: list[int]) -> Buffer:
    values = values or [0]
    return Buffer(4 * len(values), struct.pack(f"<{len(values)}i", *values))


def room(count: int, size: int = 4) -> Buffer:
    """Zeroed memory for `count` values."""
    return Buffer(max(count, 1) * size)


def line(rng: random.Random, most: int = 700) -> tuple[int, int, int]:
    """A one-dimensional launch and a count that may be smaller or larger than it."""
    block = rng.choice([32, 64, 96, 128, 256])
    grid = rng.randint(1, 4)
    return grid, block, rng.choice([rng.randint(1, most), grid * block, grid * block - 5])


def one(grid: int, block: int, *arguments: Argument, shared: int = 0) -> Launch:
    return Launch((grid, 1, 1), (block, 1, 1), list(arguments), shared)


def two(grid: tuple[int, int], block: tuple[int, int], *arguments: Argument) -> Launch:
    return Launch((*grid, 1), (*block, 1), list(arguments))


def plane(rng: random.Random) -> tuple[tuple[int, int], tuple[int, int], int, int]:
    block = rng.choice([(16, 16), (32, 4), (8, 8)])
    width, height = rng.randint(1, 70), rng.randint(1, 50)
    grid = (-(-width // block[0]), -(-height // block[1]))
    return grid, block, width, height


@dataclass
class Registry:
    """Makers by corpus file and kernel."""

    makers: dict[str, dict[str, Maker]] = field(default_factory=dict)

    def __call__(self, corpus: str) -> Callable[[Maker], Maker]:
        def register(maker: Maker) -> Maker:
            self.makers.setdefault(corpus, {})[maker.__name__] = maker
            return maker

        return register


REGISTRY = Registry()
