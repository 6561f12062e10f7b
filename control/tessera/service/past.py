# SPDX-License-Identifier: Apache-2.0
"""What is still told of programs that have ended, for as long as the controller runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.service.counts import add_row
from tessera.service.programs import Program

MOST_CLASSES = 256  # of one kernel that are kept


@dataclass
class HomeWork:
    """Launches at home; their time is an estimate from those that were timed. Nanoseconds."""

    launches: int = 0
    timed: int = 0
    busy_ns: float = 0.0

    def add(self, counters: Mapping[str, Any]) -> None:
        """Adds a program's counters."""
        self.launches += counters["launches_untracked"]
        for kernel in counters["kernels"]:
            launches, timed = kernel["launches"].get("0", 0), kernel["timed"].get("0", 0)
            self.launches += launches
            self.timed += timed
            self.busy_ns += kernel["time_ns"].get("0", 0) / timed * launches if timed else 0.0


@dataclass
class Past:
    """Sums over all programs that have ended."""

    home: HomeWork = field(default_factory=HomeWork)
    kept_home: dict[int, str] = field(default_factory=dict)
    """By kernel: why everything stayed home in the program that launched it last, if it did."""
    classes: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By kernel and name: the counters of launch classes that had rows to themselves."""

    def add(self, program: Program) -> None:
        """Notes a program that ends."""
        counters = program.counters()
        self.home.add(counters)
        for kernel in counters["kernels"]:
            if program.all_home:
                self.kept_home[kernel["id"]] = program.all_home
            else:
                self.kept_home.pop(kernel["id"], None)
            self._add_classes(kernel["id"], kernel.get("classes", {}))

    def _add_classes(self, kernel_id: int, classes: Mapping[str, Any]) -> None:
        kept = self.classes.setdefault(kernel_id, {}) if classes else {}
        for name, counts in classes.items():
            if name in kept or len(kept) < MOST_CLASSES:
                add_row(kept.setdefault(name, {}), counts)
