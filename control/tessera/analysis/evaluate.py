# SPDX-License-Identifier: Apache-2.0
"""One launch of a summary: what the shim would find, as Python objects."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tessera.analysis.model import KernelSummary
from tessera.native import access
from tessera.native.access import Range

Dim = int | Sequence[int]


def evaluate(
    summary: KernelSummary,
    grid: Dim,
    block: Dim,
    parameters: bytes | Sequence[int | bytes],
    cluster: Dim = 1,
    dynamic_shared: int = 0,
) -> list[Range]:
    """The byte ranges of one launch. `parameters` is the parameter block, or one value for each
    parameter: an integer of its size, or its bytes."""
    data = parameters if isinstance(parameters, bytes) else pack(summary, parameters)
    return access.evaluate(
        summary.to_blob(), _dim(grid), _dim(block), data, _dim(cluster), dynamic_shared
    )


def pack(summary: KernelSummary, values: Sequence[int | bytes]) -> bytes:
    """The parameter block for one value per parameter; missing ones at the end are 0."""
    out = bytearray(summary.parameter_block_size)
    for parameter, value in zip(summary.parameters, values, strict=False):
        mask = 2 ** (8 * parameter.size) - 1
        word = (
            struct.pack("<Q", value & mask)[: parameter.size] if isinstance(value, int) else value
        )
        if len(word) != parameter.size:
            raise ValueError(f"{parameter.name} has {parameter.size} bytes, not {len(word)}")
        out[parameter.offset : parameter.offset + parameter.size] = word
    return bytes(out)


def _dim(value: Dim) -> tuple[int, int, int]:
    parts = [value] if isinstance(value, int) else list(value)
    x, y, z = [*parts, 1, 1, 1][:3] if len(parts) < 3 else parts
    return x, y, z
