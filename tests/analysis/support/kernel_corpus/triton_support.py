# SPDX-License-Identifier: Apache-2.0
"""What the Triton corpora share: how a kernel is compiled, and how its launches are made."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import triton

from kernel_corpus.launches import Buffer, Launch


@dataclass(frozen=True)
class Variant:
    """One compilation of a kernel. Pointers and integers in `aligned` are multiples of 16."""

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    maker: Callable[[random.Random], Launch]
    aligned: tuple[str, ...] = ()
    warps: int = 4
    options: dict[str, Any] = field(default_factory=dict)


SCRATCH = [b"\0" * 8, b"\0" * 8]  # pointers that Triton adds at the end of every kernel


def launch(grid: tuple[int, ...], warps: int, *arguments: Any) -> Launch:
    x, y, z = (*grid, 1, 1)[:3]
    return Launch((x, y, z), (32 * warps, 1, 1), [*arguments, *SCRATCH])


def halves(rng: random.Random, count: int) -> Buffer:
    values = (rng.uniform(-1, 1) for _ in range(max(count, 1)))
    return Buffer(2 * max(count, 1), struct.pack(f"<{max(count, 1)}e", *values))


def signature(pointers: str, kind: str, integers: str) -> dict[str, str]:
    return dict.fromkeys(pointers.split(), f"*{kind}") | dict.fromkeys(integers.split(), "i32")


def variants() -> dict[str, Variant]:
    """All compilations of all Triton kernels, by name."""
    from kernel_corpus import triton_kernels, triton_models

    return triton_kernels.VARIANTS | triton_models.VARIANTS


def compile_variant(name: str, architecture: int = 80) -> tuple[str, int]:
    """PTX of a variant, and the bytes of shared memory that it is launched with."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    variant = variants()[name]
    types = variant.signature | dict.fromkeys(variant.constants, "constexpr")
    names = list(types)
    constants = {(names.index(k),): v for k, v in variant.constants.items()}
    attributes = {(names.index(k),): [["tt.divisibility", 16]] for k in variant.aligned}
    source = ASTSource(variant.kernel, types, constants, attributes)
    options = {"num_warps": variant.warps, "num_stages": 3} | variant.options
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    return str(compiled.asm["ptx"]), int(compiled.metadata.shared)
