# SPDX-License-Identifier: Apache-2.0
"""The best placement that was found so far, and ways to make it better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tessera.planning import clock, milp
from tessera.planning.descent import improve
from tessera.planning.objective import evaluate
from tessera.planning.problem import Assignment, Floats, Objective, Problem
from tessera.planning.terms import rank, terms_of

ROUNDS = 400
WINDOW = (0.04, 0.14)  # of the depth that the solver places anew at once
SECONDS = 0.5  # for one such step


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
    best: Incumbent,
    found: Sequence[Assignment],
    deadline: float,
    enough: float,
    model: milp.Model | None = None,
    shares: Floats | None = None,
) -> None:
    """Changes parts of the best placement, in turn by two ways, until clock.now() is
    `deadline` or it is worth `enough`: stretches taken from other placements (`found`) with
    local search behind; and the integral program (`model`, where given) with all else fixed.
    """
    generator = np.random.default_rng(0)
    depth = np.array([node.depth for node in best.problem.nodes])
    for i in range(ROUNDS):
        if best.value <= enough or clock.now() > deadline:
            return
        if best.assignment is None:
            if found:
                best.polish(found[i % len(found)], deadline, "heuristic", enough)
            continue
        if model is not None and i % 3:
            free = _free(depth, shares, i, generator)
            _place_anew(best, model, free, min(SECONDS, deadline - clock.now()))
        else:
            mixed = _mixed(best.assignment, found, depth, best.terms.allowed, generator)
            best.polish(mixed, deadline, best.method, enough)


def _free(
    depth: Floats, shares: Floats | None, i: int, generator: np.random.Generator
) -> np.ndarray:
    """Nodes to place anew: those of a stretch, or half of those that the relaxation splits."""
    if shares is not None and i % 3 == 2:
        split = shares.max(axis=1) < milp.SETTLED
        return np.asarray(split & (generator.random(len(depth)) < 0.5))
    width = generator.uniform(*WINDOW)
    begin = generator.random() * (1.0 - width)
    return np.asarray((depth >= begin) & (depth <= begin + width))


def _place_anew(best: Incumbent, model: milp.Model, free: np.ndarray, seconds: float) -> None:
    """What the solver makes of some nodes when all others stay."""
    assert best.assignment is not None
    fixed = np.zeros((len(free), model.devices))
    fixed[np.arange(len(free)), best.assignment] = 1.0
    fixed[free] = 1.0 / model.devices
    solved = milp.solve(model, max(0.05, seconds), 0.002, best.assignment, fixed)
    if solved.assignment is not None:
        best.offer(solved.assignment, "relaxation and milp")


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
