# SPDX-License-Identifier: Apache-2.0
"""What placement by kernel is measured against: coarser ways to use several GPUs.

Each gives placements of a problem; every way is given the best of its variants, the best
batch and the best number of units in flight that memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tessera.planning.problem import Assignment, Problem

Variants = Callable[[Problem], Iterator[Assignment]]


def single(problem: Problem) -> Iterator[Assignment]:
    """Everything on one device."""
    for device in range(problem.machine.size):
        yield problem.everything_on(device)


def pipeline(problem: Problem) -> Iterator[Assignment]:
    """The layers up to some depth on one device, the rest on the other."""
    depths = np.array([node.depth for node in problem.nodes])
    cuts = np.unique(np.round(depths, 3))
    if len(cuts) > 48:
        cuts = cuts[:: len(cuts) // 48 + 1]
    for first, second in _orders(problem):
        for cut in cuts:
            yield np.where(depths <= cut, first, second).astype(np.int64)


def by_phase(problem: Problem) -> Iterator[Assignment]:
    """Prefill on one device, decode on the other; for images encoders and denoiser."""
    jobs = sorted({node.job for node in problem.nodes})
    for chosen in _halves(jobs):
        for first, second in _orders(problem):
            here = [node.job in chosen for node in problem.nodes]
            yield np.where(here, first, second).astype(np.int64)


def by_role(problem: Problem) -> Iterator[Assignment]:
    """Attention (or the mixer of a state-space model) on one device, the rest on the other.

    With or without the projections around it; in all phases, or in one of them while the
    other phases stay whole on either device.
    """
    jobs = sorted({node.job for node in problem.nodes})
    for roles in ({"attention"}, {"attention", "projection"}):
        inside = np.array([node.role in roles for node in problem.nodes])
        for first, second in _orders(problem):
            split = np.where(inside, first, second)
            yield split.astype(np.int64)
            for job in jobs:
                mine = np.array([node.job == job for node in problem.nodes])
                for rest in (first, second):
                    yield np.where(mine, split, rest).astype(np.int64)


def _orders(problem: Problem) -> list[tuple[int, int]]:
    size = problem.machine.size
    return [(a, b) for a in range(size) for b in range(size) if a != b]


def _halves(jobs: Sequence[str]) -> Iterator[frozenset[str]]:
    """Every way to take some of the jobs, one of each pair that only swaps the halves."""
    for mask in range(1, 2 ** (len(jobs) - 1)):
        yield frozenset(job for i, job in enumerate(jobs) if mask >> i & 1)


DISAGGREGATIONS: dict[str, Variants] = {
    "pipeline": pipeline,
    "prefill/decode": by_phase,
    "attention/FFN": by_role,
}
"""The coarser disaggregations; data parallel is made of single devices."""
