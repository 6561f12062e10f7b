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


def add_row(
    total: dict[str, Any], row: Mapping[str, Mapping[str, int]], launch_class: str | None = None
) -> None:
    """Adds the counters of a row to a kernel's; where it counts a launch class, to that one's of
    the kernel's `classes`, too."""
    for name in OF_KERNELS:
        add_counts(total.setdefault(name, {}), row[name])
    if launch_class is not None:
        add_row(total.setdefault("classes", {}).setdefault(launch_class, {}), row)


def by_kernel(programs: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The sums of each kernel's counters, by its number in ascending order. `programs`: counters
    of programs, as a status has them."""
    sums: dict[int, dict[str, Any]] = {}
    for counters in programs:
        for kernel in counters["kernels"]:
            total = sums.setdefault(kernel["id"], {})
            add_row(total, kernel)
            for launch_class, counts in kernel.get("classes", {}).items():
                add_row(total.setdefault("classes", {}).setdefault(launch_class, {}), counts)
    return dict(sorted(sums.items()))
