# SPDX-License-Identifier: Apache-2.0
"""Finds a placement, and says how far from the best one it can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tessera.planning import clock, heuristics, milp
from tessera.planning.handoffs import Handoffs
from tessera.planning.incumbent import Incumbent, refine
from tessera.planning.objective import Outcome, evaluate
from tessera.planning.problem import (
    Assignment,
    Floats,
    InfeasibleError,
    Objective,
    Problem,
    contract,
)
from tessera.planning.rounding import Kinds, banded, kinds, swept

INTEGRAL = 4_000  # columns up to which the integral program is of use in seconds


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
    best = Incumbent(small.problem, objective, given)
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


def _without_solver(best: Incumbent, effort: Effort, deadline: float) -> float:
    """Local search from placements that need no solver. The trivial bound."""
    bound = _trivial_bound(best.problem, best.objective)
    enough = bound / (1 - effort.gap)
    starts = [*best.given, *heuristics.starts(best.problem, best.objective)]
    found = best.polish_best_of(starts, deadline, "heuristic", enough, 6)
    refine(best, found, deadline, enough, False)
    return bound


def _with_solver(best: Incumbent, effort: Effort, deadline: float) -> float:
    """Relaxation; then, while the gap is too large: rounding with local search, the integral
    program with all that the relaxation has settled, the whole of it where it is small, and
    parts placed anew. The bound.
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
    rounded = _rounded(problem, relaxed.shares, groups)
    best.polish_best_of(
        rounded, soon(0.6 if problem.machine.size > 8 else 0.35), "relaxation", enough, 4
    )
    if best.value > enough and relaxed.serial and groups.size < problem.machine.size:
        extra = Handoffs(model, relaxed.serial, best.value).extra
        closer = milp.relax(model, max(0.05, 0.5 * (deadline - clock.now())), extra)
        # No placement better than the best one is below this; so nothing is below the less.
        bound = max(bound, min(closer.bound, best.value))
        enough = bound / (1 - effort.gap)
        if closer.shares is not None and best.value > enough:
            more = _rounded(problem, closer.shares, groups)
            best.polish_best_of(more, soon(0.2), "relaxation", enough, 2)
            rounded += more
    if best.value > enough:
        starts = [*best.given, *heuristics.simple(problem)]
        best.polish_best_of(starts, soon(0.2), "heuristic", enough, 2)
    whole = model if groups.size == problem.machine.size else None
    if best.assignment is None:
        whole = whole or milp.Model(problem, best.objective)
    worth_it = whole is not None and (whole.columns <= INTEGRAL or best.assignment is None)
    if whole is not None and worth_it and best.value > enough:
        shares = relaxed.shares if whole is model else None
        bound = max(bound, _integral(best, whole, shares, enough, effort, deadline))
        enough = bound / (1 - effort.gap)
    refine(best, rounded, deadline, enough, True)
    return bound


def _rounded(problem: Problem, shares: Floats, groups: Kinds) -> list[Assignment]:
    return [*swept(problem, shares, groups), *banded(problem, shares, groups)]


def _integral(
    best: Incumbent,
    model: milp.Model,
    shares: Floats | None,
    enough: float,
    effort: Effort,
    deadline: float,
) -> float:
    """The integral program near the relaxation, then all of it. The bound."""

    def left() -> float:
        return deadline - clock.now()

    if left() > 0.1 and shares is not None:
        near = milp.solve(model, 0.35 * left(), effort.gap / 2, None, shares)
        if near.assignment is not None:
            best.offer(near.assignment, "relaxation and milp")
            best.polish(near.assignment, deadline, "relaxation and milp", enough)
    if best.value <= enough or left() < 0.1:
        return 0.0
    share = 1.0 if best.assignment is None else 0.6
    solved = milp.solve(model, share * left(), effort.gap / 2, best.assignment)
    if solved.assignment is not None:
        best.offer(solved.assignment, "milp")
        best.polish(solved.assignment, deadline, "milp", enough)
    return solved.bound
