# SPDX-License-Identifier: Apache-2.0
"""Launches of corpus/effects.cu, as far as they run without special devices."""

from __future__ import annotations

import random

from kernel_corpus.launches import REGISTRY, Launch, floats, i32, line, one, room

kernel = REGISTRY("effects")


def simple(*names: str, extra: int = 1) -> None:
    """Kernels of (out, a, n)."""

    def maker(rng: random.Random) -> Launch:
        grid, block, n = line(rng)
        return one(grid, block, room(max(n, grid * block)), floats(rng, n * extra + 2), i32(n))

    for name in names:
        REGISTRY.makers.setdefault("effects", {})[name] = maker


def filling(*names: str) -> None:
    """Kernels of (out, n)."""

    def maker(rng: random.Random) -> Launch:
        grid, block, n = line(rng)
        return one(grid, block, room(max(n, grid * block)), i32(n))

    for name in names:
        REGISTRY.makers.setdefault("effects", {})[name] = maker


simple("calls", "warp_sum", "shared_sum", "async_copy", "read_only_cache")
simple("calls_with_struct", extra=2)
filling("asserts", "traps", "reads_constant", "reads_host_constant", "reads_table", "reductions",
        "fenced", "counts", "reads_scratch")  # fmt: skip


@kernel
def cached_otherwise(rng: random.Random) -> Launch:
    grid, block, n = line(rng)
    return one(grid, block, room(n), floats(rng, n), i32(n))


@kernel
def dynamic_shared(rng: random.Random) -> Launch:
    n = rng.randint(1, 300)
    return one(1, 64, room(n), floats(rng, n), i32(n), shared=4 * n)


@kernel
def matrix_fragments(rng: random.Random) -> Launch:
    grid, stride = rng.randint(1, 3), rng.choice([48, 64])
    return one(grid, 32, room(16 * stride + 64), room(16 * stride + 64, 2), i32(stride))
