# SPDX-License-Identifier: Apache-2.0
"""Placements to begin with, without a solver: single devices, cuts by depth, prices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tessera.planning.problem import Assignment, Floats, Objective, Problem


def along_the_sequence(problem: Problem, prices: Floats, link_price: float) -> Assignment:
    """The cheapest placement at given prices of a second on each device, found by dynamic
    programming over the launch order: transfers count between neighbours only.
    """
    devices = problem.machine.size
    loads = np.where(problem.allowed(), problem.loads, np.inf) * prices
    transfer = _neighbour_transfers(problem) * link_price
    cost = loads[0].copy()
    came = np.zeros((len(loads), devices), dtype=np.int64)
    for node in range(1, len(loads)):
        options = cost[:, None] + transfer[node]
        came[node] = options.argmin(axis=0)
        cost = options.min(axis=0) + loads[node]
    assignment = np.zeros(len(loads), dtype=np.int64)
    assignment[-1] = int(cost.argmin())
    for node in range(len(loads) - 1, 0, -1):
        assignment[node - 1] = came[node, assignment[node]]
    return assignment


def _neighbour_transfers(problem: Problem) -> Floats:
    """Seconds of what arrives at a node when it changes the device, by node, from and to."""
    devices = problem.machine.size
    arriving = np.zeros(len(problem.nodes))
    for value in problem.values:
        arriving[min(value.consumers)] += value.size * value.count
    slowness = np.zeros((devices, devices))
    for (a, b), link in problem.machine.links.items():
        slowness[a, b] = 1.0 / link.bandwidth
    return np.asarray(arriving[:, None, None] * slowness)


def simple(problem: Problem) -> Iterator[Assignment]:
    """Placements to improve on that cost nothing to find: single devices, cuts by depth."""
    allowed = problem.allowed()
    for device in range(problem.machine.size):
        yield _repaired(problem.everything_on(device), allowed, problem.loads)
    for one in (*_by_depth(problem), *_stages(problem)):
        yield _repaired(one, allowed, problem.loads)


def starts(problem: Problem, objective: Objective, rounds: int = 12) -> Iterator[Assignment]:
    """The simple ones, and those of prices that balance the devices."""
    devices = problem.machine.size
    yield from simple(problem)
    if objective == "latency":
        yield along_the_sequence(problem, np.ones(devices), 1.0)
        return
    for link_price in (0.0, 0.5, 2.0):
        prices = np.ones(devices) / devices
        for step in range(rounds):
            found = along_the_sequence(problem, prices, link_price)
            yield found
            busy = np.bincount(
                found, weights=problem.loads[np.arange(len(found)), found], minlength=devices
            )
            prices *= np.exp(0.8 / (1 + 0.3 * step) * (busy / max(busy.max(), 1e-30) - 0.5))
            prices /= prices.sum()


def _by_depth(problem: Problem) -> Iterator[Assignment]:
    """Layers shared out by memory, the same for all jobs: what fits where little else does."""
    devices = problem.machine.size
    depths = np.array([node.depth for node in problem.nodes])
    room = np.array([problem.machine.memory(device) for device in range(devices)])
    bounds = np.cumsum(room) / room.sum()
    yield np.minimum(np.searchsorted(bounds, depths, side="left"), devices - 1).astype(np.int64)


def _stages(problem: Problem) -> Iterator[Assignment]:
    """Stretches of the launch order, one a device, as long as the devices' speed says."""
    loads, devices = problem.loads, problem.machine.size
    speed = 1.0 / np.maximum(loads.sum(axis=0), 1e-30)
    for order in (list(range(devices)), list(range(devices))[::-1]):
        bounds = np.cumsum(speed[order]) / speed.sum()
        progress = np.cumsum(loads.mean(axis=1)) / loads.mean(axis=1).sum()
        stage = np.minimum(np.searchsorted(bounds, progress, side="left"), devices - 1)
        yield np.array(order, dtype=np.int64)[stage]


def _repaired(assignment: Assignment, allowed: np.ndarray, loads: Floats) -> Assignment:
    """The same, with each node that may not be where it is on its fastest device."""
    fastest = np.where(allowed, loads, np.inf).argmin(axis=1)
    here = allowed[np.arange(len(assignment)), assignment]
    return np.where(here, assignment, fastest).astype(np.int64)
