# SPDX-License-Identifier: Apache-2.0
"""What a placement is worth: load of each device and port, latency, memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.planning.problem import Assignment, Floats, Problem


@dataclass(frozen=True)
class Outcome:
    """A placement's figures for one unit of work, with no waiting for each other."""

    busy: Floats  # seconds by device
    leaving: Floats  # seconds that each device's port sends
    arriving: Floats
    latency: float  # seconds of one unit alone: launches and transfers one after another
    memory: Floats  # bytes by device
    capacity: Floats
    allowed: bool

    @property
    def period(self) -> float:
        """Seconds from one unit of work to the next, when what is busiest never rests."""
        return float(max(self.busy.max(), self.leaving.max(), self.arriving.max()))

    @property
    def fits(self) -> bool:
        return bool(self.allowed and (self.memory <= self.capacity * (1 + 1e-9)).all())

    def bottleneck(self, labels: list[str]) -> str:
        """What bounds the throughput, in words."""
        parts = [
            *((load, f"arithmetic and memory of {labels[i]}") for i, load in enumerate(self.busy)),
            *((load, f"the link out of {labels[i]}") for i, load in enumerate(self.leaving)),
            *((load, f"the link into {labels[i]}") for i, load in enumerate(self.arriving)),
        ]
        return max(parts)[1]


def evaluate(problem: Problem, assignment: Assignment) -> Outcome:
    """All figures of a placement. Seconds and bytes."""
    devices, count = problem.machine.size, len(problem.nodes)
    loads = problem.loads
    own = loads[np.arange(count), assignment]
    busy = np.bincount(assignment, weights=own, minlength=devices)
    leaving, arriving = np.zeros(devices), np.zeros(devices)
    latency = float(own.sum())
    for value in problem.values:
        source = int(assignment[value.producer])
        for target in {int(assignment[i]) for i in value.consumers} - {source}:
            link = problem.machine.links[source, target]
            time = value.count * link.time(value.size)
            leaving[source] += time
            arriving[target] += time
            latency += time + value.count * link.latency
    allowed = bool(problem.allowed()[np.arange(count), assignment].all())
    capacity = np.array([problem.machine.memory(device) for device in range(devices)])
    memory = held(problem, assignment)
    return Outcome(busy, leaving, arriving, latency, memory, capacity, allowed)


def held(problem: Problem, assignment: Assignment) -> Floats:
    """Bytes of lasting memory that each device has to have."""
    memory = np.zeros(problem.machine.size)
    for buffer in problem.buffers:
        where = {int(assignment[i]) for i in buffer.readers}
        where |= {0} if problem.home_holds_all else set()
        for device in where:
            memory[device] += buffer.size
    return memory


def physical_bound(problem: Problem) -> float:
    """Seconds of a unit that no placement beats: all devices full, links and memory free.

    Launches may be split between devices in any shares; found by linear programming.
    """
    from tessera.planning.milp import fractional_bound

    return fractional_bound(problem)
