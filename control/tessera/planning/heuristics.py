# SPDX-License-Identifier: Apache-2.0
"""Placements without a solver: dynamic programming under prices, rounding, local search."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np

from tessera.planning.problem import Assignment, Floats, Objective, Problem, Value

PENALTY = 1e3  # times the excess of memory, in shares of the capacity


class Search:
    """A placement that is changed node by node, with its figures kept up to date."""

    def __init__(self, problem: Problem, objective: Objective, assignment: Assignment) -> None:
        self.problem, self.objective = problem, objective
        self.devices = problem.machine.size
        self.loads = problem.loads
        self.allowed = problem.allowed()
        self.where = [int(device) for device in assignment]
        self.touching: list[list[Value]] = [[] for _ in problem.nodes]
        for value in problem.values:
            for node in {value.producer, *value.consumers}:
                self.touching[node].append(value)
        self.holding: list[list[int]] = [[] for _ in problem.nodes]
        self.readers = [[0] * self.devices for _ in problem.buffers]
        for m, buffer in enumerate(problem.buffers):
            for node in buffer.readers:
                self.holding[node].append(m)
                self.readers[m][self.where[node]] += 1
        names = problem.streams
        self.stream_of_node = [names.index(node.job) for node in problem.nodes]
        self.stream_of = {
            id(value): names.index(name) if (name := problem.stream_of(value)) else -1
            for value in problem.values
        }
        self.room = max(1e-9, problem.in_flight * problem.slack)
        self.capacity = [problem.machine.memory(device) for device in range(self.devices)]
        self._start()

    def _start(self) -> None:
        self.busy = [0.0] * self.devices
        self.leaving, self.arriving = [0.0] * self.devices, [0.0] * self.devices
        self.memory = [0.0] * self.devices
        self.travel = 0.0
        self.alone = [0.0] * len(self.problem.streams)
        for node, device in enumerate(self.where):
            self.busy[device] += self.loads[node, device]
            self.alone[self.stream_of_node[node]] += self.loads[node, device]
        for value in self.problem.values:
            self._count(value, 1.0)
        for m, buffer in enumerate(self.problem.buffers):
            for device in range(self.devices):
                if self._held(m, device):
                    self.memory[device] += buffer.size

    def _held(self, buffer: int, device: int) -> bool:
        home = device == 0 and self.problem.home_holds_all
        return home or self.readers[buffer][device] > 0

    def _count(self, value: Value, sign: float) -> None:
        source = self.where[value.producer]
        stream = self.stream_of[id(value)]
        for target in {self.where[i] for i in value.consumers}:
            if target != source:
                link = self.problem.machine.links[source, target]
                seconds = sign * value.count * link.time(value.size)
                self.leaving[source] += seconds
                self.arriving[target] += seconds
                late = sign * value.count * link.latency
                self.travel += seconds + late
                if stream >= 0:
                    self.alone[stream] += seconds + late

    def score(self) -> float:
        """Seconds to be made small; memory that is not there costs much."""
        excess = sum(
            max(0.0, used / room - 1.0)
            for used, room in zip(self.memory, self.capacity, strict=True)
        )
        if self.objective == "latency":
            score = sum(self.busy) + self.travel
        else:
            slack = self.problem.slack
            ports = [load / slack for load in (*self.leaving, *self.arriving)]
            loads = (*self.busy, *ports)
            score = max(*loads, max(self.alone) / self.room) + 1e-3 * sum(
                load * load for load in loads
            ) / sum(loads)
        return score * (1.0 + PENALTY * excess)

    def move(self, nodes: Iterable[int], device: int) -> None:
        """Places nodes on a device."""
        moved = [node for node in nodes if self.where[node] != device]
        values = {id(value): value for node in moved for value in self.touching[node]}
        for value in values.values():
            self._count(value, -1.0)
        for node in moved:
            before, self.where[node] = self.where[node], device
            self.busy[before] -= self.loads[node, before]
            self.busy[device] += self.loads[node, device]
            change = self.loads[node, device] - self.loads[node, before]
            self.alone[self.stream_of_node[node]] += change
            for m in self.holding[node]:
                self._hold(m, before, device)
        for value in values.values():
            self._count(value, 1.0)

    def _hold(self, buffer: int, before: int, device: int) -> None:
        size = self.problem.buffers[buffer].size
        had, has = self._held(buffer, before), self._held(buffer, device)
        self.readers[buffer][before] -= 1
        self.readers[buffer][device] += 1
        if had and not self._held(buffer, before):
            self.memory[before] -= size
        if not has and self._held(buffer, device):
            self.memory[device] += size

    def assignment(self) -> Assignment:
        return np.array(self.where, dtype=np.int64)

    def improve(self, deadline: float) -> float:
        """Moves stretches of nodes, and swaps nodes, while that helps, until
        time.perf_counter() is `deadline`. Returns the score reached.
        """
        best = self.score()
        while True:
            before = best
            for length in (1, 2, 4, 8, 16, 32, 3, 1):
                best = self._stretches(length, best, deadline)
            best = self._swaps(best, deadline)
            if best > before * (1 - 1e-4) or time.perf_counter() > deadline:
                return best

    def _stretches(self, length: int, best: float, deadline: float) -> float:
        improved = True
        while improved:
            improved = False
            hot = self._hot()
            for begin in range(len(self.where) - length + 1):
                if not any(self.where[i] in hot for i in range(begin, begin + length)):
                    continue
                if time.perf_counter() > deadline:
                    return best
                found = self._try_stretch(range(begin, begin + length), best)
                if found < best:
                    best, improved, hot = found, True, self._hot()
        return best

    def _hot(self) -> set[int]:
        """Devices from which something has to go for the score to fall."""
        if self.objective == "latency" or any(
            used > room for used, room in zip(self.memory, self.capacity, strict=True)
        ):
            return set(range(self.devices))
        loads = [max(three) for three in zip(self.busy, self.leaving, self.arriving, strict=True)]
        most = max(*loads, max(self.alone) / self.room)
        if max(self.busy) < 0.98 * most:
            return set(range(self.devices))  # a link or a stream: all of its nodes matter
        return {device for device, load in enumerate(self.busy) if load >= 0.995 * most}

    def _swaps(self, best: float, deadline: float, tries: int = 24) -> float:
        """Exchanges a node of a busy device with one of another."""
        generator = np.random.default_rng(len(self.where))
        hot = self._hot()
        for node in generator.permutation(len(self.where)):
            if self.where[node] not in hot:
                continue
            for other in generator.integers(0, len(self.where), tries):
                if time.perf_counter() > deadline:
                    return best
                here, there = self.where[node], self.where[other]
                if here == there or not (self.allowed[node, there] and self.allowed[other, here]):
                    continue
                self.move((int(node),), there)
                self.move((int(other),), here)
                score = self.score()
                if score < best * (1 - 1e-9):
                    best, hot = score, self._hot()
                    break
                self.move((int(other),), there)
                self.move((int(node),), here)
        return best

    def _try_stretch(self, nodes: range, best: float) -> float:
        before = [self.where[node] for node in nodes]
        for device in range(self.devices):
            if all(device == was for was in before):
                continue
            if not self.allowed[nodes.start : nodes.stop, device].all():
                continue
            self.move(nodes, device)
            score = self.score()
            if score < best - 1e-9 * best:
                return score
            for node, was in zip(nodes, before, strict=True):
                self.move((node,), was)
        return best


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


def starts(problem: Problem, objective: Objective, rounds: int = 24) -> Iterator[Assignment]:
    """Placements to improve on: single devices, cuts by depth, and prices that balance."""
    allowed = problem.allowed()
    devices = problem.machine.size
    for device in range(devices):
        yield _repaired(problem.everything_on(device), allowed, problem.loads)
    yield from (_repaired(one, allowed, problem.loads) for one in _by_depth(problem))
    if objective == "latency":
        yield along_the_sequence(problem, np.ones(devices), 1.0)
        return
    yield from (_repaired(one, allowed, problem.loads) for one in _stages(problem))
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


def search(
    problem: Problem,
    objective: Objective,
    seconds: float,
    given: Iterable[Assignment] = (),
    enough: float = 0.0,
) -> Assignment:
    """The best placement that local search finds from several starts, in about `seconds`;
    it stops when the score is below `enough`.
    """
    begun = time.perf_counter()
    ranked: list[tuple[float, int, Assignment]] = []
    for i, start in enumerate([*given, *starts(problem, objective)]):
        ranked.append((Search(problem, objective, start).score(), i, start))
        if time.perf_counter() - begun > seconds / 2 and i >= problem.machine.size:
            break
    ranked.sort(key=lambda entry: entry[:2])
    best_score, best = float("inf"), ranked[0][2]
    for _, _, start in ranked[:4]:
        one = Search(problem, objective, start)
        score = one.improve(begun + seconds)
        if score < best_score:
            best_score, best = score, one.assignment()
        if best_score < enough or time.perf_counter() - begun > seconds:
            break
    return best


def rounded(shares: Floats) -> Iterator[Assignment]:
    """Placements near a fractional one."""
    yield shares.argmax(axis=1).astype(np.int64)
    if shares.shape[1] == 2:
        for threshold in (0.1, 0.25, 0.4, 0.6, 0.75, 0.9):
            yield (shares[:, 1] > threshold).astype(np.int64)
    generator = np.random.default_rng(0)
    bounds = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    for _ in range(4):
        # One number for all: neighbours with like shares fall on the same side.
        common = np.clip(generator.random() + 0.02 * generator.standard_normal(len(shares)), 0, 1)
        place = (common[:, None] > bounds).sum(axis=1)
        yield np.minimum(place, shares.shape[1] - 1).astype(np.int64)
