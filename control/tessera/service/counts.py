# SPDX-License-Identifier: Apache-2.0
"""Sums of the counters that programs keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

OF_KERNELS = ("launches", "stayed", "bytes_in", "time_ns", "timed")
"""What is counted of each kernel, by device; `stayed` by reason."""


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Adds counters by device or by reason."""
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def by_kernel(programs: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, dict[str, int]]]:
    """The sums of each kernel's counters, by its number in ascending order. `programs`: counters
    of programs, as a status has them."""
    sums: dict[int, dict[str, dict[str, int]]] = {}
    for counters in programs:
        for kernel in counters["kernels"]:
            total = sums.setdefault(kernel["id"], {})
            for name in OF_KERNELS:
                add_counts(total.setdefault(name, {}), kernel[name])
    return dict(sorted(sums.items()))
