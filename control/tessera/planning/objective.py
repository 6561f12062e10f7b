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
    alone: dict[str, float]  # seconds of each job when nothing else runs
    in_flight: int
    slack: float
    latency: float  # seconds of one unit alone: launches and transfers one after another
    memory: Floats  # bytes by device
    capacity: Floats
    allowed: bool

    @property
    def period(self) -> float:
        """Seconds from one unit of work to the next: what is busiest never rests."""
        return max(self._bounds())[0]

    def _bounds(self) -> list[tuple[float, int, str | int]]:
        """(seconds, kind, which) of everything that may bound the period."""
        links = max(self.slack, 1e-9)
        found: list[tuple[float, int, str | int]] = []
        for kind, loads in enumerate((self.busy, self.leaving / links, self.arriving / links)):
            i = int(loads.argmax())
            found.append((float(loads[i]), kind, i))
        job = max(self.alone, key=lambda name: self.alone[name])
        found.append((self.alone[job] / (self.in_flight * links), -1, job))
        return found

    @property
    def fits(self) -> bool:
        return bool(self.allowed and (self.memory <= self.capacity * (1 + 1e-9)).all())

    def bottleneck(self, labels: list[str]) -> str:
        """What bounds the throughput, in words."""
        _, kind, which = max(self._bounds())
        if isinstance(which, str):
            return f"one {which} after another: {self.in_flight} in flight are too few"
        return (
            f"{labels[which]}",
            f"the link out of {labels[which]}",
            f"the link into {labels[which]}",
        )[kind]


def evaluate(problem: Problem, assignment: Assignment) -> Outcome:
    """All figures of a placement. Seconds and bytes."""
    devices, count = problem.machine.size, len(problem.nodes)
    loads = problem.loads
    own = loads[np.arange(count), assignment]
    busy = np.bincount(assignment, weights=own, minlength=devices).astype(np.float64)
    leaving, arriving = np.zeros(devices), np.zeros(devices)
    latency = float(own.sum())
    alone = dict.fromkeys(problem.streams, 0.0)
    for node, seconds in zip(problem.nodes, own, strict=True):
        alone[node.job] += float(seconds)
    for value in problem.values:
        source = int(assignment[value.producer])
        stream = problem.stream_of(value)
        for target in {int(assignment[i]) for i in value.consumers} - {source}:
            link = problem.machine.links[source, target]
            time = value.count * link.time(value.size)
            leaving[source] += time
            arriving[target] += time
            latency += time + value.count * link.latency
            if stream:
                alone[stream] += time + value.count * link.latency
    allowed = bool(problem.allowed()[np.arange(count), assignment].all())
    capacity = np.array([problem.machine.memory(device) for device in range(devices)])
    memory = held(problem, assignment)
    return Outcome(
        busy, leaving, arriving, alone, problem.in_flight, problem.slack,
        latency, memory, capacity, allowed,
    )  # fmt: skip


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
