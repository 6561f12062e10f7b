# SPDX-License-Identifier: Apache-2.0
"""Bounds of the evaluation, and what its page says of the goals."""

from typing import Any

import pytest
from tessera.planning import clock, goals
from tessera.planning.comparison import KERNELS, PARALLEL, SINGLE, Case
from tessera.planning.costs import CostModel
from tessera.planning.evaluation import COARSE
from tessera.planning.machine import connect, load_catalogue, pick
from tessera.planning.models import workload
from tessera.planning.optimizer import Effort
from tessera.planning.problem import Options


@pytest.fixture
def case() -> Case:
    """A dense model on two unlike GPUs, one batch."""
    machine = connect(pick(load_catalogue(), ["H20", "L40S"]))
    return Case(
        lambda batch: workload("dense", 1024, 512, batch), (64,), machine, CostModel(), Options()
    )


def test_nothing_is_above_its_bound(case: Case) -> None:
    clock.use_cpu_time()
    try:
        coarse = [case.disaggregated(way) for way in COARSE]
        found = case.by_kernel(Effort(0.5, 0.01), coarse)
    finally:
        clock.use_cpu_time(False)
    linked, physical = case.linked_bound(), case.bound()
    assert max(one.rate for one in coarse) <= found.rate
    # One percent: what counting over a finite time may be off.
    assert found.rate <= 1.01 * linked
    assert linked <= physical * (1 + 1e-6)
    assert case.single().rate < linked


def result(ours: float, coarse: float, bound: float, price: float = 2.0) -> dict[str, Any]:
    rates = {SINGLE: 1.0, PARALLEL: 1.5, KERNELS: ours} | dict.fromkeys(COARSE, coarse)
    return {
        "architecture": "dense", "pair": ["H20", "L40S"], "mix": "chat", "rates": rates,
        "bound": bound, "linked_bound": 0.9 * bound, "price": price, "better": "H20",
        "twin": {"rate": 1.9, "price": 3.2},
    }  # fmt: skip


def test_a_goal_is_reached_or_said_not_to_be() -> None:
    assert goals.coarse(result(2.0, 1.0, 2.2)) == 1.0
    assert goals.baseline(result(2.0, 1.0, 2.2)) == 1.5
    most, where = goals.best(
        [result(2.0, 1.0, 2.2), result(2.0, 0.5, 2.2)], goals.over_coarse(goals.physical)
    )
    assert most == pytest.approx(4.4)
    assert goals.coarse(where) == 0.5
    # The best without unlike GPUs is one H20 at 1.60 an hour: 0.625 a dollar, or two for 3.2.
    assert goals.homogeneous(result(2.0, 1.0, 2.2)) == pytest.approx(0.625)


def test_bounds_are_given_for_each_pair() -> None:
    lines = goals.bounds([result(2.0, 1.0, 2.2), result(1.0, 1.0, 1.2)])
    row = next(line for line in lines if line.startswith("| dense"))
    assert row == "| dense | H20 + L40S | 11.3x | 2.20x | 1.98x | 2.00x |"
