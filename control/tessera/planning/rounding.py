# SPDX-License-Identifier: Apache-2.0
"""From shares of nodes on kinds of devices to placements.

Where every layer is to be shared out in the same way (a third of it here, the rest there), no
single node tells where it should go: the first third of the layers goes here, whole, and the
rest there. So all nodes of a layer are rounded with one threshold, and thresholds rise with
the depth; a layer then gets a pattern that fits together, and all layers get the shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tessera.planning.problem import Assignment, Floats, Problem

MOST_ORDERS = 24
SHIFTS = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Kinds:
    """Devices that nothing tells apart, together: every placement has twins that exchange them."""

    members: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(one) for one in self.members)

    @property
    def size(self) -> int:
        return len(self.members)

    def first(self, kind: int) -> int:
        """A device that stands for its kind."""
        return self.members[kind][0]

    def link(self, a: int, b: int) -> tuple[int, int]:
        """Devices of two kinds, whose link stands for all between these kinds."""
        return self.first(a), self.first(b)


def apart(problem: Problem) -> Kinds:
    """Every device a kind of its own."""
    return Kinds(tuple((device,) for device in range(problem.machine.size)))


def kinds(problem: Problem) -> Kinds:
    """Devices with the same times of all nodes, the same rules, memory and links."""
    loads, allowed = problem.loads, problem.allowed()
    found: list[list[int]] = []
    for device in range(problem.machine.size):
        for kind in found:
            if _alike(problem, loads, allowed, kind, device):
                kind.append(device)
                break
        else:
            found.append([device])
    return Kinds(tuple(tuple(one) for one in found))


def _alike(
    problem: Problem, loads: Floats, allowed: np.ndarray, kind: list[int], device: int
) -> bool:
    first = kind[0]
    machine = problem.machine
    if problem.home_holds_all and 0 in (first, device):
        return False
    if machine.memory(first) != machine.memory(device):
        return False
    same = (loads[:, first] == loads[:, device]) & (allowed[:, first] == allowed[:, device])
    links = machine.links
    between = {links[a, device] for a in kind} | {links[device, a] for a in kind}
    if len(kind) > 1:
        between |= {links[a, b] for a in kind for b in kind if a != b}
    others = [d for d in range(machine.size) if d not in (*kind, device)]
    return bool(
        same.all()
        and len(between) == 1
        and all(links[first, d] == links[device, d] for d in others)
        and all(links[d, first] == links[d, device] for d in others)
    )


def swept(problem: Problem, shares: Floats, groups: Kinds) -> Iterator[Assignment]:
    """Placements with these shares (node by kind): thresholds along the depth, for several
    orders of the kinds, both directions, and from several depths on.
    """
    depth = _spread(np.array([node.depth for node in problem.nodes]))
    orders = itertools.islice(itertools.permutations(range(groups.size)), MOST_ORDERS)
    for order in orders:
        if order > order[::-1]:
            continue
        devices = [device for kind in order for device in groups.members[kind]]
        wide = np.concatenate(
            [
                np.repeat(shares[:, [kind]] / groups.sizes[kind], groups.sizes[kind], axis=1)
                for kind in order
            ],
            axis=1,
        )
        bounds = np.cumsum(wide / wide.sum(axis=1, keepdims=True), axis=1)
        for threshold in (depth, 1.0 - depth):
            place = np.minimum((threshold[:, None] > bounds).sum(axis=1), len(devices) - 1)
            yield np.array(devices, dtype=np.int64)[place]


def banded(problem: Problem, shares: Floats, groups: Kinds) -> Iterator[Assignment]:
    """Placements with these shares: a kind for each node by thresholds along the depth; then
    the nodes of each kind in stretches of the depth, one a device, with equal loads, so that
    what is at one depth is on one device of the kind.
    """
    depth = _spread(np.array([node.depth for node in problem.nodes]))
    along = np.argsort(depth, kind="stable")
    shares = shares / shares.sum(axis=1, keepdims=True)
    for order in itertools.islice(itertools.permutations(range(groups.size)), MOST_ORDERS):
        if groups.size > 1 and order > order[::-1]:
            continue
        bounds = np.cumsum(shares[:, order], axis=1)
        for threshold in (depth, 1.0 - depth):
            place = np.minimum((threshold[:, None] > bounds).sum(axis=1), groups.size - 1)
            kind_of = np.array(order)[place]
            for balanced in (True, False):
                yield _stretches(problem, groups, along, kind_of, balanced)


def _stretches(
    problem: Problem, groups: Kinds, along: Assignment, kind_of: Assignment, balanced: bool
) -> Assignment:
    """One stretch of the nodes of its kind for each device, of equal load or as many nodes."""
    where = np.zeros(len(along), dtype=np.int64)
    for kind, members in enumerate(groups.members):
        mine = along[kind_of[along] == kind]
        loads = problem.loads[mine, groups.first(kind)] if balanced else np.ones(len(mine))
        middle = np.cumsum(loads) - loads / 2
        stretch = (middle / max(loads.sum(), 1e-30) * len(members)).astype(np.int64)
        where[mine] = np.array(members)[np.minimum(stretch, len(members) - 1)]
    return where


def _spread(depth: Floats) -> Floats:
    """Depths kept off both ends, where a threshold would say the same for all shares."""
    return np.asarray(np.clip(depth, 1e-6, 1 - 1e-6))
