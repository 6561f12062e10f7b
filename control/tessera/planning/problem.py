# SPDX-License-Identifier: Apache-2.0
"""The placement problem: folded launches, what they hand on, what they hold, and where.

All figures are for one unit of work (a decode step with its share of prefill, a denoising
step): seconds, bytes, and how often each node runs in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from tessera.planning.costs import CostModel, Estimate
from tessera.planning.dataflow import Flow, flows
from tessera.planning.folding import Folded, fold
from tessera.planning.launches import Job, Launch, Workload
from tessera.planning.machine import Machine

Objective = Literal["throughput", "latency"]
Floats = npt.NDArray[np.float64]
Assignment = npt.NDArray[np.int64]  # device of each node


class InfeasibleError(Exception):
    """No placement keeps all constraints; the message says which stand in the way."""


@dataclass(frozen=True)
class Node:
    """Launches that are placed together: a position of the folded sequence."""

    name: str  # of the kernel
    launch_class: str
    job: str
    role: str
    count: float  # launches in a unit of work
    times: tuple[Estimate, ...]  # by device
    depth: float = 0.0  # 0 to 1: where in its job; what a pipeline by layers goes by
    allowed: frozenset[int] | None = None  # devices that can run it; None: all
    tie: str = ""  # nodes of one tie are placed together; empty: free


@dataclass(frozen=True)
class Value:
    """Bytes that a node writes and others read: they travel where a reader is elsewhere.

    A device gets them once, however many readers it has.
    """

    producer: int
    consumers: tuple[int, ...]
    size: float  # bytes of one transfer
    count: float  # transfers in a unit of work


@dataclass(frozen=True)
class Buffer:
    """Memory that lasts: held by each device where a node reads it."""

    name: str
    size: float  # bytes, for all units in flight
    readers: tuple[int, ...]
    per_slot: bool = False  # each unit in flight has its own


@dataclass(frozen=True)
class Problem:
    """Nodes in launch order, and the machine they are to be placed on."""

    machine: Machine
    nodes: tuple[Node, ...]
    values: tuple[Value, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    home_holds_all: bool = False  # the program allocates at home, and home keeps everything
    outputs: float = 1.0  # of a unit of work
    requests: float = 1.0
    in_flight: int = 1  # units of work that are under way at once
    slack: float = 1.0  # share of a period that links and streams may be filled with: queues
    # at a link that is always busy keep devices waiting, and each unit's stream is serial
    name: str = ""
    jobs: tuple[Job, ...] = ()
    folded: Folded | None = None  # from positions in the jobs' launches to nodes

    @cached_property
    def loads(self) -> Floats:
        """Seconds in a unit of work, node by device; not to be written to."""
        rows = [[node.count * one.time for one in node.times] for node in self.nodes]
        loads = np.array(rows, dtype=np.float64).reshape(len(self.nodes), self.machine.size)
        loads.flags.writeable = False
        return loads

    @property
    def streams(self) -> list[str]:
        """The jobs, each with a stream of its own."""
        return list(dict.fromkeys(node.job for node in self.nodes))

    def stream_of(self, value: Value) -> str:
        """The stream that waits for a value on its way; empty when only others do."""
        job = self.nodes[value.producer].job
        return job if any(self.nodes[i].job == job for i in value.consumers) else ""

    @cached_property
    def _allowed(self) -> npt.NDArray[np.bool_]:
        result = np.ones((len(self.nodes), self.machine.size), dtype=np.bool_)
        for i, node in enumerate(self.nodes):
            if node.allowed is not None:
                result[i] = [device in node.allowed for device in range(self.machine.size)]
        result.flags.writeable = False
        return result

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Whether a node may run on a device; not to be written to."""
        return self._allowed

    def everything_on(self, device: int) -> Assignment:
        return np.full(len(self.nodes), device, dtype=np.int64)


@dataclass(frozen=True)
class Options:
    """What a problem is built with."""

    parts: int = 4  # stretches that each repetition is cut into
    most_nodes: int = 4000
    in_flight: int = 1
    home_holds_all: bool = False
    tie_kernels: bool = False  # one device for each kernel, as the placement table has it
    allowed: Callable[[Launch], frozenset[int] | None] | None = None  # None: everywhere


def build(
    workload: Workload, machine: Machine, costs: CostModel, options: Options | None = None
) -> Problem:
    """The folded problem of a workload. Raises UnknownCostError."""
    options = options or Options()
    pairs = workload.launches
    launches = [launch for _, launch in pairs]
    keys = [(job.name, launch.kernel, launch.launch_class) for job, launch in pairs]
    folded = fold(keys, options.parts)
    if folded.size > options.most_nodes and options.parts > 1:
        return build(workload, machine, costs, replace(options, parts=options.parts // 2))
    depths = _depths(workload.jobs)
    nodes = [
        _node(folded.members[i], pairs, depths, machine, costs, options) for i in range(folded.size)
    ]
    counts = [job.count for job, _ in pairs]
    return Problem(
        machine=machine,
        nodes=tuple(nodes),
        values=_values(flows(launches), folded, counts),
        buffers=_buffers(workload, launches, folded, options.in_flight),
        home_holds_all=options.home_holds_all,
        outputs=workload.outputs,
        requests=workload.requests,
        in_flight=options.in_flight,
        name=workload.name,
        jobs=workload.jobs,
        folded=folded,
    )


def _depths(jobs: Iterable[Job]) -> list[float]:
    return [i / max(1, len(job.launches) - 1) for job in jobs for i in range(len(job.launches))]


def _node(
    members: Sequence[int],
    pairs: Sequence[tuple[Job, Launch]],
    depths: Sequence[float],
    machine: Machine,
    costs: CostModel,
    options: Options,
) -> Node:
    job, launch = pairs[members[0]]
    times = tuple(costs.estimate(launch, one, machine.devices) for one in machine.devices)
    return Node(
        name=launch.kernel,
        launch_class=launch.launch_class,
        job=job.name,
        role=launch.role,
        count=len(members) * job.count,
        times=times,
        depth=sum(depths[i] for i in members) / len(members),
        allowed=options.allowed(launch) if options.allowed else None,
        tie=launch.kernel if options.tie_kernels else "",
    )


def _values(found: Iterable[Flow], folded: Folded, counts: Sequence[float]) -> tuple[Value, ...]:
    """Flows between nodes. What stays within a node never travels."""
    totals: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for flow in found:
        producer = folded.node_of[flow.producer]
        consumers = tuple(sorted({folded.node_of[i] for i in flow.consumers} - {producer}))
        if not consumers:
            continue
        # What a job hands to one that runs more often travels once for each time it is made.
        count = counts[flow.producer]
        size, times = totals.get((producer, consumers), (0.0, 0.0))
        totals[producer, consumers] = (size + flow.size * count, times + count)
    return tuple(
        Value(producer, consumers, size / times, times)
        for (producer, consumers), (size, times) in totals.items()
    )


def _buffers(
    workload: Workload, launches: Sequence[Launch], folded: Folded, in_flight: int
) -> tuple[Buffer, ...]:
    """Regions by the nodes that touch them; regions of the same readers are one buffer."""
    order = sorted(workload.regions, key=lambda region: region.range.begin)
    begins = np.array([region.range.begin for region in order], dtype=np.int64)
    readers: list[set[int]] = [set() for _ in order]
    for position, launch in enumerate(launches):
        for touched in launch.reads:
            last = int(np.searchsorted(begins, touched.end, side="left"))
            first = int(np.searchsorted(begins, touched.begin, side="right")) - 1
            for i in range(max(0, first), last):
                if order[i].range.begin < touched.end and touched.begin < order[i].range.end:
                    readers[i].add(folded.node_of[position])
    merged: dict[tuple[bool, tuple[int, ...]], tuple[str, float]] = {}
    for region, nodes in zip(order, readers, strict=True):
        key = (region.per_slot, tuple(sorted(nodes)))
        size = region.range.size * (in_flight if region.per_slot else 1)
        name, before = merged.get(key, (region.name, 0.0))
        merged[key] = (name, before + size)
    return tuple(
        Buffer(name, size, nodes, per_slot)
        for (per_slot, nodes), (name, size) in merged.items()
        if nodes
    )


def with_in_flight(problem: Problem, units: int) -> Problem:
    """The same with another number of units of work under way at once."""
    factor = units / problem.in_flight
    buffers = tuple(
        replace(one, size=one.size * factor) if one.per_slot else one for one in problem.buffers
    )
    return replace(problem, buffers=buffers, in_flight=units)


@dataclass(frozen=True)
class Contracted:
    """A problem whose tied nodes are one, and the way back."""

    problem: Problem
    group_of: Assignment  # by node of the original

    def expand(self, assignment: Assignment) -> Assignment:
        return assignment[self.group_of]


def contract(problem: Problem) -> Contracted:
    """Makes one node of all nodes of a tie. Raises InfeasibleError when no device may run it."""
    numbers: dict[object, int] = {}
    group_of = np.array(
        [numbers.setdefault(node.tie or i, len(numbers)) for i, node in enumerate(problem.nodes)],
        dtype=np.int64,
    )
    members: list[list[Node]] = [[] for _ in numbers]
    for node, group in zip(problem.nodes, group_of, strict=True):
        members[int(group)].append(node)
    nodes = tuple(_tied(group, problem.machine.size) for group in members)
    values = _contracted_values(problem.values, group_of)
    buffers = tuple(
        replace(one, readers=tuple(sorted({int(group_of[i]) for i in one.readers})))
        for one in problem.buffers
    )
    return Contracted(
        replace(problem, nodes=nodes, values=values, buffers=buffers, jobs=(), folded=None),
        group_of,
    )


def _tied(group: Sequence[Node], devices: int) -> Node:
    """One node for several, of count 1, with the sums of their times."""
    allowed = frozenset(range(devices))
    for node in group:
        allowed &= node.allowed if node.allowed is not None else allowed
    first = group[0]
    if not allowed:
        raise InfeasibleError(
            f"no device may run {first.name}: rules and what it needs exclude all"
        )
    if len(group) == 1:
        return first if first.allowed is not None else replace(first, allowed=allowed)
    times = tuple(
        Estimate(sum(node.count * node.times[d].time for node in group), 0.0, 0)
        for d in range(devices)
    )
    return replace(first, count=1.0, times=times, allowed=allowed)


def _contracted_values(values: Iterable[Value], group_of: Assignment) -> tuple[Value, ...]:
    totals: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for value in values:
        producer = int(group_of[value.producer])
        consumers = tuple(sorted({int(group_of[i]) for i in value.consumers} - {producer}))
        if consumers and value.size * value.count > 0:
            size, times = totals.get((producer, consumers), (0.0, 0.0))
            totals[producer, consumers] = (size + value.size * value.count, times + value.count)
    return tuple(
        Value(producer, consumers, size / times, times)
        for (producer, consumers), (size, times) in totals.items()
    )


def pinned(problem: Problem, device_of: Mapping[str, int]) -> Problem:
    """The problem with kernels held to devices by their names."""
    nodes = tuple(
        replace(node, allowed=frozenset({device_of[node.name]})) if node.name in device_of else node
        for node in problem.nodes
    )
    return replace(problem, nodes=nodes)
