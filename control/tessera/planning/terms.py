# SPDX-License-Identifier: Apache-2.0
"""The placement problem as arrays, and a placement's figures from them. Seconds, bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tessera.planning.problem import Assignment, Floats, Objective, Problem

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lists:
    """For each of some rows the numbers that belong to it."""

    begin: Ints
    items: Ints

    @classmethod
    def of(cls, rows: Ints, items: Ints, count: int) -> Lists:
        order = np.argsort(rows, kind="stable")
        begin = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=begin[1:])
        return cls(begin, items[order])

    def __getitem__(self, row: int) -> Ints:
        return self.items[self.begin[row] : self.begin[row + 1]]

    def several(self, rows: Ints) -> tuple[Ints, Ints]:
        """(which of `rows`, item) of all items of these rows."""
        lengths = self.begin[rows + 1] - self.begin[rows]
        which = np.repeat(np.arange(len(rows)), lengths)
        inside = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return which, self.items[self.begin[rows][which] + inside]


@dataclass(frozen=True)
class Terms:
    """A problem as arrays. Seconds, bytes."""

    loads: Floats  # node by device
    allowed: npt.NDArray[np.bool_]
    alone: Floats  # seconds by node, stream and device
    depth: Floats  # 0 to 1: where in its job a node is
    producer: Ints  # by value
    weight: Floats  # bytes in a unit of work, by value
    count: Floats  # transfers in a unit of work, by value
    stream: Ints  # that waits for the value; -1: none
    uses: tuple[Ints, Ints]  # (node, value): the node reads it
    sizes: Floats  # by buffer
    holds: tuple[Ints, Ints]  # (node, buffer): the node reads it
    slow: Floats  # seconds a byte, from and to
    late: Floats  # seconds a transfer, from and to
    limits: Floats  # period in which a resource's seconds have to fit is their quotient
    room: Floats  # bytes by device
    held: npt.NDArray[np.bool_]  # device holds every buffer, whoever reads it

    @property
    def devices(self) -> int:
        return int(self.loads.shape[1])

    @property
    def nodes(self) -> int:
        return int(self.loads.shape[0])

    @property
    def travel(self) -> int:
        """The resource that counts all transfers: latency is made of it."""
        return len(self.limits)

    @property
    def memory(self) -> int:
        """The first of the resources that are memory."""
        return len(self.limits) + 1

    @property
    def resources(self) -> int:
        return len(self.limits) + 1 + self.devices


def terms_of(problem: Problem) -> Terms:
    """The arrays of a problem; ties have to be contracted before."""
    devices, streams = problem.machine.size, problem.streams
    values = [one for one in problem.values if one.size * one.count > 0]
    room = np.array([problem.machine.memory(device) for device in range(devices)])
    total = sum(buffer.size for buffer in problem.buffers)
    buffers = problem.buffers if (total > room).any() else ()
    slow, late = np.zeros((devices, devices)), np.zeros((devices, devices))
    for (a, b), link in problem.machine.links.items():
        slow[a, b], late[a, b] = link.time(1.0), link.latency
    slack = max(problem.slack, 1e-9)
    limits = [1.0] * devices + [slack] * (2 * devices)
    limits += [slack * problem.in_flight] * len(streams)
    names = [problem.stream_of(value) for value in values]
    return Terms(
        loads=problem.loads,
        allowed=problem.allowed(),
        alone=_alone(problem),
        depth=np.array([node.depth for node in problem.nodes]),
        producer=np.array([one.producer for one in values], dtype=np.int64),
        weight=np.array([one.size * one.count for one in values]),
        count=np.array([one.count for one in values]),
        stream=np.array([streams.index(s) if s else -1 for s in names], dtype=np.int64),
        uses=_pairs([one.consumers for one in values]),
        sizes=np.array([one.size for one in buffers]),
        holds=_pairs([one.readers for one in buffers]),
        slow=slow,
        late=late,
        limits=np.array(limits),
        room=room,
        held=np.arange(devices) < (1 if problem.home_holds_all else 0),
    )


def _alone(problem: Problem) -> Floats:
    """Loads, each in the stream of its node."""
    streams = problem.streams
    alone = np.zeros((len(problem.nodes), len(streams), problem.machine.size))
    job = [streams.index(node.job) for node in problem.nodes]
    alone[np.arange(len(job)), job] = problem.loads
    return alone


def _pairs(lists: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """(item, row) for every item of every list."""
    items = [item for one in lists for item in one]
    rows = [row for row, one in enumerate(lists) for _ in one]
    return np.array(items, dtype=np.int64), np.array(rows, dtype=np.int64)


def coarse(terms: Terms, group_of: Ints) -> Terms:
    """The same with the nodes of each group as one."""
    groups = int(group_of.max()) + 1
    alone = np.zeros((groups, *terms.alone.shape[1:]))
    np.add.at(alone, group_of, terms.alone)
    allowed = np.ones((groups, terms.devices), dtype=np.bool_)
    np.logical_and.at(allowed, group_of, terms.allowed)
    depth = np.zeros(groups)
    depth[group_of] = terms.depth
    producer = group_of[terms.producer]
    uses = _unique(group_of[terms.uses[0]], terms.uses[1])
    apart = uses[0] != producer[uses[1]]
    return replace(
        terms, loads=alone.sum(axis=1), allowed=allowed, alone=alone, depth=depth,
        producer=producer,
        uses=(uses[0][apart], uses[1][apart]),
        holds=_unique(group_of[terms.holds[0]], terms.holds[1]),
    )  # fmt: skip


def _unique(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    if not len(left):
        return left, right
    both = np.unique(np.stack([left, right]), axis=1)
    return both[0], both[1]


def spread(terms: Terms, where: Assignment) -> tuple[Ints, Ints]:
    """How many consumers of each value, and readers of each buffer, each device has."""
    there = np.zeros((len(terms.producer), terms.devices), dtype=np.int64)
    np.add.at(there, (terms.uses[1], where[terms.uses[0]]), 1)
    kept = np.zeros((len(terms.sizes), terms.devices), dtype=np.int64)
    kept += terms.held
    np.add.at(kept, (terms.holds[1], where[terms.holds[0]]), 1)
    return there, kept


def totals(terms: Terms, where: Assignment, there: Ints, kept: Ints) -> Floats:
    """By resource: seconds of devices, ports out, ports in, streams and of all transfers, then
    bytes of devices.
    """
    devices, travel = terms.devices, terms.travel
    total = np.zeros(terms.resources)
    np.add.at(total, where, terms.loads[np.arange(terms.nodes), where])
    total[3 * devices : travel] = terms.alone[np.arange(terms.nodes), :, where].sum(axis=0)
    source = where[terms.producer]
    value, target = np.nonzero(there)
    apart = target != source[value]
    value, target = value[apart], target[apart]
    seconds = terms.weight[value] * terms.slow[source[value], target]
    late = seconds + terms.count[value] * terms.late[source[value], target]
    np.add.at(total, devices + source[value], seconds)
    np.add.at(total, 2 * devices + target, seconds)
    waits = terms.stream[value] >= 0
    np.add.at(total, 3 * devices + terms.stream[value][waits], late[waits])
    total[travel] = late.sum()
    total[terms.memory :] = ((kept > 0) * terms.sizes[:, None]).sum(axis=0)
    return total


def value_of(terms: Terms, objective: Objective, total: Floats) -> float:
    """Seconds by the objective, whatever the memory."""
    if objective == "latency":
        return float(total[: terms.devices].sum() + total[terms.travel])
    return float((total[: terms.travel] / terms.limits).max())


def rank(terms: Terms, objective: Objective, where: Assignment) -> tuple[float, float]:
    """What tells good placements from bad ones: bytes that do not fit in shares of the room,
    then seconds.
    """
    total = totals(terms, where, *spread(terms, where))
    excess = np.maximum(total[terms.memory :] / terms.room - 1.0 - 1e-9, 0.0)
    return float(excess.sum()), value_of(terms, objective, total)
