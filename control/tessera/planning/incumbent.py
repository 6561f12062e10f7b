# SPDX-License-Identifier: Apache-2.0
"""The best placement that was found so far, and ways to make it better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tessera.planning import clock
from tessera.planning.descent import improve
from tessera.planning.neighbourhood import Neighbourhood, Uses
from tessera.planning.objective import evaluate
from tessera.planning.problem import Assignment, Floats, Objective, Problem
from tessera.planning.terms import Ints, rank, terms_of

ROUNDS = 4000
MIXED = 6  # every so many steps of refinement mix placements, the others ask the solver
FREE = (30, 600)  # nodes that the solver places anew at once
FIRST = 100  # so many in the first step
SECONDS = 0.5  # for one such step
QUICK = 0.12  # seconds below which the next one has more nodes
GAP = 0.002  # at which it stops


class Incumbent:
    """The best placement so far that fits."""

    def __init__(
        self, problem: Problem, objective: Objective, given: Iterable[Assignment] = ()
    ) -> None:
        self.problem, self.objective = problem, objective
        self.terms = terms_of(problem)
        self.assignment: Assignment | None = None
        self.value = float("inf")
        self.method = ""
        self.given = list(given)
        for one in self.given:
            self.offer(one, "given")

    def offer(self, assignment: Assignment, method: str) -> float:
        """Keeps it if it is the best that fits. What it is worth, in seconds."""
        outcome = evaluate(self.problem, assignment)
        value = outcome.latency if self.objective == "latency" else outcome.period
        if outcome.fits and value < self.value:
            self.assignment, self.value, self.method = assignment, value, method
        return value if outcome.fits else float("inf")

    def polish(
        self, assignment: Assignment, deadline: float, method: str, enough: float = 0.0
    ) -> Assignment:
        """Local search from one placement, until clock.now() is `deadline`."""
        found = improve(self.terms, self.objective, assignment, deadline, enough).where
        self.offer(found, method)
        return found

    def polish_best_of(
        self, starts: Iterable[Assignment], deadline: float, method: str, enough: float, most: int
    ) -> list[Assignment]:
        """Local search from the most promising of some placements. What it found."""
        ranked = [
            (rank(self.terms, self.objective, start), i, start) for i, start in enumerate(starts)
        ]
        found = []
        for _, _, start in sorted(ranked, key=lambda entry: entry[:2])[:most]:
            found.append(self.polish(start, deadline, method, enough))
            if self.value <= enough or clock.now() > deadline:
                break
        return found


def refine(
    best: Incumbent, found: Sequence[Assignment], deadline: float, enough: float, solver: bool
) -> None:
    """Changes parts of the best placement, in turn by two ways, until clock.now() is
    `deadline` or it is worth `enough`: stretches taken from other placements (`found`) with
    local search behind; and, with `solver`, integral programs of a few devices.
    """
    generator = np.random.default_rng(0)
    depth = np.array([node.depth for node in best.problem.nodes])
    searched = Vicinity(best, generator) if solver and best.problem.machine.size > 1 else None
    for i in range(ROUNDS):
        if best.value <= enough or clock.now() > deadline:
            return
        if best.assignment is None:
            if found:
                best.polish(found[i % len(found)], deadline, "heuristic", enough)
            continue
        if searched is not None and i % MIXED:
            searched.step(deadline)
        else:
            mixed = _mixed(best.assignment, found, depth, best.terms.allowed, generator)
            best.polish(mixed, deadline, best.method, enough)


class Vicinity:
    """Looks for better placements in which few nodes of few devices are elsewhere. Those that
    are as good as the best are gone on from, too: they may have what the next step needs.
    """

    def __init__(self, best: Incumbent, generator: np.random.Generator) -> None:
        self.best, self.generator = best, generator
        self.uses = Uses.of(best.terms)
        self.where: Assignment | None = None
        self.value = float("inf")
        self.most = FIRST

    def step(self, deadline: float) -> None:
        """One integral program."""
        best = self.best
        if self.where is None or best.value < self.value:
            self.where, self.value = best.assignment, best.value
        assert self.where is not None
        around = Neighbourhood(best.terms, best.objective, self.uses, self.where)
        devices = self._devices(around)
        free = self._free(devices)
        seconds = min(SECONDS, deadline - clock.now())
        if not len(free) or seconds <= 0.02:
            return
        begun = clock.now()
        placed = around.best(free, devices, seconds, GAP)
        quick = clock.now() - begun < QUICK
        self.most = int(np.clip(self.most * (1.2 if quick else 0.7), *FREE))
        if placed is not None and best.offer(placed, "neighbourhood") <= self.value:
            self.where = placed

    def _devices(self, around: Neighbourhood) -> list[int]:
        """Two to four; the busiest device, or that of the busiest port, among them."""
        count = self.best.terms.devices
        number = min(count, int(self.generator.integers(2, 5)))
        devices = [int(d) for d in self.generator.permutation(count)[:number]]
        busy = around.busy()
        hot = int(busy.argmax())
        if hot < 3 * count and hot % count not in devices:
            devices[0] = hot % count
        return devices

    def _free(self, devices: list[int]) -> Ints:
        """Nodes on these devices; of too many those of a stretch of the depth."""
        assert self.where is not None
        free = np.flatnonzero(np.isin(self.where, devices))
        if len(free) > self.most:
            order = np.argsort(self.best.terms.depth[free], kind="stable")
            begin = int(self.generator.integers(0, len(free) - self.most + 1))
            free = np.sort(free[order[begin : begin + self.most]])
        return free


def _mixed(
    base: Assignment,
    found: Sequence[Assignment],
    depth: Floats,
    allowed: np.ndarray,
    generator: np.random.Generator,
) -> Assignment:
    """A stretch of the depth as another placement has it."""
    begin, width = generator.random(), generator.uniform(0.03, 0.4)
    inside = (depth >= begin) & (depth <= begin + width)
    other = found[int(generator.integers(len(found)))] if found else base
    mixed = np.where(inside, other, base)
    return _shaken(base, inside, allowed, generator) if (mixed == base).all() else mixed


def _shaken(
    base: Assignment, inside: np.ndarray, allowed: np.ndarray, generator: np.random.Generator
) -> Assignment:
    """Exchanges two devices in a stretch."""
    a, b = generator.permutation(allowed.shape[1])[:2]
    other = np.where(base == a, b, np.where(base == b, a, base))
    swapped = np.where(inside & allowed[np.arange(len(base)), other], other, base)
    return np.asarray(swapped, dtype=np.int64)
