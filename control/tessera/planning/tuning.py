# SPDX-License-Identifier: Apache-2.0
"""Placements made better with the simulator as the judge.

What a placement loses to queues, no figure of loads tells. So parts of a placement are moved to
another device, where the cheap figures promise no less, and the simulator says whether to keep it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.planning import clock
from tessera.planning.objective import evaluate
from tessera.planning.problem import Assignment, Problem

WIDTHS = (0.08, 0.2, 0.5, 1.0)  # of the depth that is moved at once
PROMISE = 0.97  # of the rate so far: what a placement has to reach by its loads alone
TRIES = 40  # placements looked at for each that is simulated


class Tuning:
    """Steps from one placement of a problem."""

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self.problem = problem
        self.generator = np.random.default_rng(seed)
        self.depth = np.array([node.depth for node in problem.nodes])
        self.jobs = _numbered([node.job for node in problem.nodes])
        self.roles = _numbered([f"{node.job} {node.role}" for node in problem.nodes])
        self.kernels = _numbered([f"{node.job} {node.name}" for node in problem.nodes])
        self.allowed = problem.allowed()

    def best(
        self,
        where: Assignment,
        rate: float,
        simulated: Callable[[Assignment], float],
        seconds: float,
    ) -> tuple[Assignment, float]:
        """The best placement after so many seconds, and its rate (outputs a second)."""
        deadline = clock.now() + seconds
        while clock.now() < deadline:
            changed = self._promising(where, rate)
            if changed is None:
                break
            found = simulated(changed)
            if found > rate:
                where, rate = changed, found
        return where, rate

    def _promising(self, where: Assignment, rate: float) -> Assignment | None:
        """A change that keeps memory and rules, and whose loads allow more than there is."""
        for _ in range(TRIES):
            changed = self._changed(where)
            if (changed == where).all():
                continue
            outcome = evaluate(self.problem, changed)
            if outcome.fits and self.problem.outputs / max(outcome.busy) > PROMISE * rate:
                return changed
        return None

    def _changed(self, where: Assignment) -> Assignment:
        """A stretch of a job, or one of its roles or kernels there, to another device; or the
        stretch that two devices have of it exchanged.
        """
        generator = self.generator
        width = generator.choice(WIDTHS)
        begin = generator.uniform(-0.5 * width, 1.0 - 0.5 * width)
        inside = (self.depth >= begin) & (self.depth <= begin + width)
        groups = (self.jobs, self.roles, self.kernels, self.kernels)[generator.integers(4)]
        inside &= groups == groups[generator.integers(len(groups))]
        a, b = generator.permutation(self.problem.machine.size)[:2]
        to = np.full(len(where), b)
        if generator.random() < 0.3:
            to = np.where(where == a, b, np.where(where == b, a, where))
        moved = inside & self.allowed[np.arange(len(where)), to]
        return np.asarray(np.where(moved, to, where), dtype=np.int64)


def _numbered(keys: list[str]) -> Assignment:
    return np.asarray(np.unique(keys, return_inverse=True)[1], dtype=np.int64)
