# SPDX-License-Identifier: Apache-2.0
"""The placement problem of a program that runs under Tessera, or ran: from its counters.

A kernel is one node, or one for each of the launch classes that a recording has told apart. What
kernels hand to each other comes from a recorded stretch of launches, or from the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.planning.costs import CostModel, Sample, UnknownCostError
from tessera.planning.launches import Launch
from tessera.planning.machine import Device, Machine, connect, find_by_name
from tessera.planning.problem import Node, Problem, Value


@dataclass(frozen=True)
class Measured:
    """One kernel, or one of its launch classes, as counters tell of it; devices are numbered as
    in the placement table.
    """

    id: int  # of its own among those that are planned for
    name: str
    image: str
    launches: int
    times: Mapping[int, tuple[float, int]]  # device: seconds of all timed launches, how many
    allowed: frozenset[int]
    pinned: int | None = None  # a rule holds it there
    launch_class: str = ""  # its name; empty: the kernel as a whole

    @property
    def key(self) -> str:
        return f"{self.image}/{self.name}" + (f" {self.launch_class}" if self.launch_class else "")


def devices_of(
    home: str, workers: Sequence[Mapping[str, Any]], catalogue: Mapping[str, Device]
) -> list[Device]:
    """Home and the workers' devices; bandwidth 0 where the catalogue does not know one."""
    found = [_device(home, 0.0, catalogue)]
    found += [
        _device(str(one["device"]["name"]), float(one["device"]["memory_bytes"]), catalogue)
        for one in workers
    ]
    return found


def _device(name: str, memory: float, catalogue: Mapping[str, Device]) -> Device:
    known = find_by_name(catalogue, name, memory)
    return known or Device(name or "home", name, 0, memory or 1e15, 0.0)


MOST_CLASSES = 64  # of one kernel that are planned for one by one


def parts(launches: int, classes: Mapping[str, int]) -> dict[str, int]:
    """The classes of a kernel that are planned for apart, with the launches of each of all that
    there were; the kernel as a whole, named "", where a recording has not told all of them apart.

    `classes`: launches in the recording.
    """
    apart = 2 <= len(classes) <= MOST_CLASSES and "" not in classes
    if not apart:
        return {"": launches}
    told = sum(classes.values())
    return {name: max(1, round(launches * n / told)) for name, n in classes.items()}


def problem(
    kernels: Sequence[Measured],
    devices: Sequence[Device],
    edges: Sequence[Mapping[str, int]] = (),
    in_flight: int = 2,
) -> Problem:
    """The problem of what the counters say. Raises UnknownCostError when no kernel was timed."""
    machine = connect(devices)
    costs = CostModel()
    for kernel in kernels:
        costs.learn(
            Sample(kernel.key, _label(machine, device), count, total)
            for device, (total, count) in kernel.times.items()
            if device < machine.size
        )
    named = [replace(one, key=_label(machine, i)) for i, one in enumerate(machine.devices)]
    machine = Machine(tuple(named), machine.links)
    nodes: list[Node] = []
    places: dict[int, int] = {}
    for kernel in kernels:
        node = _node(kernel, machine, costs)
        if node is not None:
            places[kernel.id] = len(nodes)
            nodes.append(node)
    if not nodes:
        raise UnknownCostError(
            "no kernel has been timed yet: run the program under tessera-ctl run, then plan again"
        )
    return Problem(machine, tuple(nodes), _values(edges, places), in_flight=in_flight)


def scaled(
    edges: Sequence[Mapping[str, int]], recorded: Mapping[int, int], kernels: Sequence[Measured]
) -> list[dict[str, int]]:
    """Edges of a recorded stretch, as many as all launches of their sources make.

    `recorded`: launches of each kernel in the stretch.
    """
    launches = {kernel.id: kernel.launches for kernel in kernels}
    found = []
    for edge in edges:
        source = edge["source"]
        share = launches.get(source, 0) / max(1, recorded.get(source, 0))
        times = max(1, round(edge["launches"] * share))
        size = edge["bytes"] // max(1, edge["launches"])
        found.append(dict(edge) | {"launches": times, "bytes": size * times})
    return found


def _label(machine: Machine, device: int) -> str:
    return f"{device} {machine.devices[device].name}"


def _node(kernel: Measured, machine: Machine, costs: CostModel) -> Node | None:
    """None for a kernel that was never timed anywhere: it is left where it is."""
    if not any(count for _, count in kernel.times.values()):
        return None
    launch = Launch(kernel.name, kernel.key)
    known = [device.bandwidth > 0 or kernel.times.get(i, (0, 0))[1] > 0
             for i, device in enumerate(machine.devices)]  # fmt: skip
    comparable = [one if one.bandwidth > 0 else replace(one, bandwidth=1.0)
                  for one in machine.devices]  # fmt: skip
    times = tuple(costs.estimate(launch, one, comparable) for one in comparable)
    allowed = frozenset(i for i in kernel.allowed if known[i]) | {0}
    if kernel.pinned is not None:
        allowed = frozenset({kernel.pinned}) & kernel.allowed or frozenset({0})
    return Node(kernel.name, kernel.key, "program", "", kernel.launches, times, allowed=allowed)


def _values(edges: Sequence[Mapping[str, int]], places: Mapping[int, int]) -> tuple[Value, ...]:
    return tuple(
        Value(
            places[edge["source"]],
            (places[edge["target"]],),
            edge["bytes"] / max(1, edge["launches"]),
            edge["launches"],
        )
        for edge in edges
        if edge["source"] in places and edge["target"] in places
        and edge["source"] != edge["target"]
    )  # fmt: skip
