# SPDX-License-Identifier: Apache-2.0
"""Finds a placement, and says how far from the best one it can be."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tessera.planning import heuristics, milp
from tessera.planning.objective import Outcome, evaluate
from tessera.planning.problem import (
    Assignment,
    Floats,
    InfeasibleError,
    Objective,
    Problem,
    contract,
)


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
    begun = time.perf_counter()
    small = contract(problem)
    given = [_contracted(one, small.group_of) for one in start]
    best = _Best(small.problem, objective, given)
    if effort.solver and small.problem.machine.size > 1:
        bound = _with_solver(best, effort, begun + effort.seconds)
    else:
        bound = _trivial_bound(small.problem, objective)
        best.search(effort.seconds)
    if best.assignment is None:
        raise InfeasibleError(
            "no placement was found that fits into the memory of the devices "
            f"({effort.seconds:g} s; more time or more memory may help)"
        )
    assignment = small.expand(best.assignment)
    return Plan(
        problem, objective, assignment, evaluate(problem, assignment), bound,
        time.perf_counter() - begun, best.method,
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
        self.assignment: Assignment | None = None
        self.value = float("inf")
        self.method = ""
        self.given = list(given)
        for one in self.given:
            self.offer(one, "given")

    def offer(self, assignment: Assignment, method: str) -> None:
        outcome = evaluate(self.problem, assignment)
        value = outcome.latency if self.objective == "latency" else outcome.period
        if outcome.fits and value < self.value:
            self.assignment, self.value, self.method = assignment, value, method

    def gap(self, bound: float) -> float:
        return 1.0 - bound / self.value if self.assignment is not None else 1.0

    def search(self, seconds: float, enough: float = 0.0) -> None:
        """Local search from many starts, until a value of `enough`."""
        found = heuristics.search(self.problem, self.objective, seconds, self.given, enough)
        self.offer(found, "heuristic")

    def polish(self, assignment: Assignment, seconds: float, method: str) -> None:
        """Local search from one placement."""
        one = heuristics.Search(self.problem, self.objective, assignment)
        one.improve(time.perf_counter() + seconds)
        self.offer(one.assignment(), method)


def _with_solver(best: _Best, effort: Effort, deadline: float) -> float:
    """Relaxation; then, while the gap is too large: local search, rounding, the integral
    program with all that the relaxation has settled, and the whole of it. The bound.
    """

    def left() -> float:
        return deadline - time.perf_counter()

    model = milp.Model(best.problem, best.objective)
    relaxed = milp.relax(model, max(0.05, 0.7 * left()))
    bound = max(relaxed.bound, _trivial_bound(best.problem, best.objective))
    enough = bound / (1 - effort.gap)
    best.search(0.25 * left(), enough)
    if relaxed.shares is not None and best.value > enough and left() > 0:
        _round(best, relaxed.shares, 0.2 * left(), enough)
        if best.value > enough:
            near = milp.solve(model, 0.5 * left(), effort.gap / 2, None, relaxed.shares)
            if near.assignment is not None:
                best.offer(near.assignment, "relaxation and milp")
                best.polish(near.assignment, 0.2 * left(), "relaxation and milp")
    if best.value > enough and left() > 0.05:
        solved = milp.solve(model, left(), effort.gap / 2, best.assignment)
        if solved.assignment is not None:
            best.offer(solved.assignment, "milp")
        bound = max(bound, solved.bound)
    return bound


def _round(best: _Best, shares: Floats, seconds: float, enough: float) -> None:
    """Placements near the fractional one, the most promising of them improved."""
    until = time.perf_counter() + seconds
    ranked = []
    for i, start in enumerate(heuristics.rounded(shares)):
        one = heuristics.Search(best.problem, best.objective, start)
        ranked.append((one.score(), i, one))
    for _, _, one in sorted(ranked, key=lambda entry: entry[:2])[:3]:
        one.improve(until)
        best.offer(one.assignment(), "relaxation")
        if time.perf_counter() > until or best.value <= enough:
            return
