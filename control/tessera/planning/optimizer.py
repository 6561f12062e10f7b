# SPDX-License-Identifier: Apache-2.0
"""Finds a placement, and says how far from the best one it can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessera.planning import clock, heuristics, milp
from tessera.planning.descent import improve
from tessera.planning.objective import Outcome, evaluate
from tessera.planning.problem import (
    Assignment,
    InfeasibleError,
    Objective,
    Problem,
    contract,
)
from tessera.planning.rounding import kinds, swept
from tessera.planning.terms import rank, terms_of

INTEGRAL = 12_000  # columns up to which the integral program is of use in seconds
MIXTURES = 200


@dataclass(frozen=True)
class Plan:
    """A placement of all nodes of a problem."""

    problem: Problem
    objective: Objective
    assignment: Assignment
    outcome: Outcome
    bound: float  # seconds: no placement is better
    seconds: float  # spent on it
    method: str  # what found it: heuristic, relaxation, milp

    @property
    def value(self) -> float:
        """Seconds of a unit of work by the plan's objective."""
        return self.outcome.latency if self.objective == "latency" else self.outcome.period

    @property
    def gap(self) -> float:
        """How far the plan is from the best, at most: 0.01 is one percent."""
        return max(0.0, 1.0 - self.bound / self.value) if self.value else 0.0


@dataclass(frozen=True)
class Effort:
    """How long to look, and when a plan is good enough."""

    seconds: float = 5.0
    gap: float = 0.01
    solver: bool = True  # False: heuristics only, and no bound but the trivial one


def optimize(
    problem: Problem,
    objective: Objective = "throughput",
    effort: Effort | None = None,
    start: Iterable[Assignment] = (),
) -> Plan:
    """A plan that keeps memory bounds, rules and what kernels need. Raises InfeasibleError.

    `start`: placements to begin with, such as the plan in force.
    """
    effort = effort or Effort()
    begun = clock.now()
    small = contract(problem)
    given = [_contracted(one, small.group_of) for one in start]
    best = _Best(small.problem, objective, given)
    if effort.solver and small.problem.machine.size > 1:
        bound = _with_solver(best, effort, begun + effort.seconds)
    else:
        bound = _without_solver(best, effort, begun + effort.seconds)
    if best.assignment is None:
        raise InfeasibleError(
            "no placement was found that fits into the memory of the devices "
            f"({effort.seconds:g} s; more time or more memory may help)"
        )
    assignment = small.expand(best.assignment)
    return Plan(
        problem, objective, assignment, evaluate(problem, assignment), bound,
        clock.now() - begun, best.method,
    )  # fmt: skip


def _contracted(assignment: Assignment, group_of: Assignment) -> Assignment:
    """One device for each group: its first node's."""
    _, first = np.unique(group_of, return_index=True)
    return assignment[first]


def _trivial_bound(problem: Problem, objective: Objective) -> float:
    """Seconds: every node on its fastest device; for throughput, spread over all of them."""
    fastest = np.where(problem.allowed(), problem.loads, np.inf).min(axis=1).sum()
    return float(fastest if objective == "latency" else fastest / problem.machine.size)


class _Best:
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


def _without_solver(best: _Best, effort: Effort, deadline: float) -> float:
    """Local search from placements that need no solver. The trivial bound."""
    bound = _trivial_bound(best.problem, best.objective)
    enough = bound / (1 - effort.gap)
    starts = [*best.given, *heuristics.starts(best.problem, best.objective)]
    found = best.polish_best_of(starts, deadline, "heuristic", enough, 6)
    _mix(best, found, deadline, enough, best.method)
    return bound


def _with_solver(best: _Best, effort: Effort, deadline: float) -> float:
    """Relaxation; then, while the gap is too large: rounding with local search, the integral
    program with all that the relaxation has settled, the whole of it, and mixtures of what
    was found. The bound.
    """

    def soon(share: float) -> float:
        now = clock.now()
        return now + share * max(0.0, deadline - now)

    problem, groups = best.problem, kinds(best.problem)
    model = milp.Model(problem, best.objective, groups)
    relaxed = milp.relax(model, max(0.05, 0.8 * (deadline - clock.now())))
    bound = max(relaxed.bound, _trivial_bound(problem, best.objective))
    enough = bound / (1 - effort.gap)
    if best.value <= enough:
        return bound
    if relaxed.shares is None:
        # No time for all of it: without what travels it is a small program.
        still = milp.Model(replace(problem, values=()), best.objective, groups)
        relaxed = milp.relax(still, 1.0)
        bound = max(relaxed.bound, bound)
    if relaxed.shares is None:
        return max(bound, _without_solver(best, effort, deadline))
    rounded = list(swept(problem, relaxed.shares, groups))
    best.polish_best_of(rounded, soon(0.35), "relaxation", enough, 4)
    if best.value > enough:
        starts = [*best.given, *heuristics.simple(problem)]
        best.polish_best_of(starts, soon(0.2), "heuristic", enough, 2)
    integral = problem.machine.size == groups.size and model.columns <= INTEGRAL
    if best.value > enough and (integral or best.assignment is None):
        bound = max(bound, _integral(best, model, relaxed, effort, deadline))
        enough = bound / (1 - effort.gap)
    if best.value > enough:
        _mix(best, rounded, deadline, enough, best.method)
    return bound


def _integral(
    best: _Best, model: milp.Model, relaxed: milp.Solution, effort: Effort, deadline: float
) -> float:
    """The integral program near the relaxation, then all of it. The bound."""

    def left() -> float:
        return deadline - clock.now()

    enough = relaxed.bound / (1 - effort.gap)
    if left() > 0.1:
        near = milp.solve(model, 0.35 * left(), effort.gap / 2, None, relaxed.shares)
        if near.assignment is not None:
            best.offer(near.assignment, "relaxation and milp")
            best.polish(near.assignment, deadline, "relaxation and milp", enough)
    if best.value <= enough or left() < 0.1:
        return 0.0
    share = 1.0 if best.assignment is None else 0.7
    solved = milp.solve(model, share * left(), effort.gap / 2, best.assignment)
    if solved.assignment is not None:
        best.offer(solved.assignment, "milp")
        best.polish(solved.assignment, deadline, "milp", enough)
    return solved.bound


def _mix(
    best: _Best, found: Sequence[Assignment], deadline: float, enough: float, method: str
) -> None:
    """Puts stretches of the depth from one placement into the best one, improved each time."""
    if len(found) < 2:
        return
    generator = np.random.default_rng(0)
    depth = np.array([node.depth for node in best.problem.nodes])
    for _ in range(MIXTURES):
        if best.value <= enough or clock.now() > deadline:
            return
        base = best.assignment if best.assignment is not None else found[0]
        other = found[int(generator.integers(len(found)))]
        begin, width = generator.random(), generator.uniform(0.03, 0.4)
        inside = (depth >= begin) & (depth <= begin + width)
        mixed = np.where(inside, other, base)
        if (mixed == base).all():
            mixed = _shaken(base, inside, best.terms.allowed, generator)
        best.polish(mixed, deadline, method, enough)


def _shaken(
    base: Assignment, inside: np.ndarray, allowed: np.ndarray, generator: np.random.Generator
) -> Assignment:
    """Exchanges two devices in a stretch."""
    a, b = generator.permutation(allowed.shape[1])[:2]
    other = np.where(base == a, b, np.where(base == b, a, base))
    swapped = np.where(inside & allowed[np.arange(len(base)), other], other, base)
    return np.asarray(swapped, dtype=np.int64)
