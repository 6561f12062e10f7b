# SPDX-License-Identifier: Apache-2.0
"""The simulator against cases whose figures can be told by hand, and the adaptive policy."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tessera.planning import adaptation, experiment
from tessera.planning.adaptation import Chooser, Observation, Phase, arrivals
from tessera.planning.costs import CostModel, Efficiency
from tessera.planning.launches import Job, Launch, Range, Work, Workload
from tessera.planning.machine import Device, Link, Machine
from tessera.planning.objective import evaluate
from tessera.planning.perfetto import write_trace
from tessera.planning.problem import Options, Problem, build, with_in_flight
from tessera.planning.simulator import Flight, compile_job, simulate


def problem(transfer: float = 0.0, latency: float = 0.0, side: float = 0.0) -> Problem:
    """Two launches of 10 ms in a row, on alike devices; the first hands the second bytes that
    take `transfer` seconds. With `side`, a job of 10 ms beside it, so often for each unit.
    """
    devices = tuple(Device(key, key, 80, 1e12, 1e9, {"f32": 1e9}, 0.0) for key in "AB")
    size = max(1, int(transfer * 1e6))
    links = {(a, b): Link(1e6, latency) for a, b in ((0, 1), (1, 0))}
    work = Work(0.0, "f32", 1e7)
    first = Launch("first", "first", (), (Range(0, size),), work)
    second = Launch("second", "second", (Range(0, size),), (), work)
    jobs = [Job("main", (first, second))]
    if side:
        jobs.append(Job("side", (Launch("third", "third", (), (), work),), side))
    costs = CostModel(Efficiency(memory=1.0))
    return build(Workload("two", tuple(jobs)), Machine(devices, links), costs, Options())


def rate(one: Problem, plan: list[int], slots: int, fair: bool = False) -> float:
    scripts = compile_job(one, np.array(plan))
    return simulate(one, [Flight(scripts, slots)], units=200, fair=fair).rate


def test_one_device_is_never_idle() -> None:
    assert rate(problem(), [0, 0], 1) == pytest.approx(50.0)
    assert rate(problem(), [0, 0], 3) == pytest.approx(50.0)


def test_two_units_in_flight_fill_two_devices() -> None:
    assert rate(problem(), [0, 1], 1) == pytest.approx(50.0, rel=0.01)
    assert rate(problem(), [0, 1], 2) == pytest.approx(100.0, rel=0.01)


def test_transfers_delay_a_unit_and_overlap_with_others() -> None:
    """Ten ms on the way: a third unit fills the gap that they leave."""
    one = problem(transfer=0.01)
    assert rate(one, [0, 1], 1) == pytest.approx(1 / 0.03, rel=0.02)
    assert rate(one, [0, 1], 3) == pytest.approx(100.0, rel=0.02)


def test_a_slow_link_bounds_the_rate() -> None:
    one = problem(transfer=0.04)
    assert rate(one, [0, 1], 8) == pytest.approx(25.0, rel=0.02)
    found = evaluate(with_in_flight(one, 8), np.array([0, 1]))
    assert found.period == pytest.approx(0.04, rel=1e-3)


def test_latency_of_a_transfer_does_not_fill_the_link() -> None:
    one = problem(transfer=0.001, latency=0.02)
    assert rate(one, [0, 1], 1) == pytest.approx(1 / 0.041, rel=0.02)
    assert rate(one, [0, 1], 6) == pytest.approx(100.0, rel=0.03)


@pytest.mark.parametrize("fair", [False, True])
def test_side_jobs_take_their_share(fair: bool) -> None:
    """Every second unit brings ten more milliseconds."""
    assert rate(problem(side=0.5), [0, 0, 0], 2, fair) == pytest.approx(1 / 0.025, rel=0.02)
    assert rate(problem(side=0.5), [0, 0, 1], 2, fair) == pytest.approx(50.0, rel=0.02)


def test_replicas_add_up() -> None:
    one = problem()
    flights = [Flight(compile_job(one, np.array(plan)), 1) for plan in ([0, 0], [1, 1])]
    found = simulate(one, flights, units=200)
    assert found.rate == pytest.approx(100.0, rel=0.02)
    assert found.busy.tolist() == pytest.approx([1.0, 1.0], abs=0.02)


def test_a_rate_can_be_held_down() -> None:
    one = problem()
    held = Flight(compile_job(one, np.array([0, 0])), 2, period=0.05)
    assert simulate(one, [held], units=100).rate == pytest.approx(20.0, rel=0.02)


def test_traces_are_read_by_others(tmp_path: Path) -> None:
    one = problem(transfer=0.01)
    flight = Flight(compile_job(one, np.array([0, 1])), 2)
    trace = simulate(one, [flight], units=20, record=0.2).trace
    write_trace(tmp_path / "trace.json", trace, one.machine.labels())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"A", "B", "A to B"}
    on_a = sorted((e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 0)
    assert all(a[0] + a[1] <= b[0] + 1e-3 for a, b in pairwise(on_a))


def test_the_chooser_follows_a_step_and_does_not_swing() -> None:
    chooser = Chooser(stay=0.5)
    modes = []
    for i in range(400):
        heavy = 100 <= i < 200
        # Between the phases the load is at the edge.
        seen = Observation(i * 0.05, 8.0 if heavy else 0.5, 1.0 if heavy else 0.3)
        modes.append(chooser.observe(seen))
    assert modes[50] == "latency"
    assert modes[140] == "throughput"
    assert modes[-1] == "latency"
    assert len(chooser.switches) == 2


def test_switches_are_bounded_and_end_at_throughput() -> None:
    chooser = Chooser(stay=0.0, window=1e9, most_switches=6, smoothing=1e-6, patience=1e-6)
    for i in range(100):
        chooser.observe(Observation(float(i), 50.0 * (i % 2), float(i % 2)))
    assert len(chooser.switches) <= 6
    assert chooser.objective == "throughput"


def test_arrivals_keep_their_rates() -> None:
    times = np.array(arrivals([Phase(100, 10), Phase(100, 40)]))
    assert (times < 100).sum() == pytest.approx(1000, rel=0.15)
    assert (times >= 100).sum() == pytest.approx(4000, rel=0.1)


@pytest.mark.slow
def test_the_adaptive_policy_is_as_good_as_the_better_plan_in_each_phase() -> None:
    found = experiment.run()
    for row in found.means(experiment.SETTLED):
        assert row["adaptive"] <= 1.1 * min(row["latency"], row["throughput"])
    assert max(found.settling()) < 2.0
    assert len(found.switches) == len(found.phases) - 1


def test_serving_keeps_every_request() -> None:
    one = experiment.requests()
    times = arrivals([Phase(3, 5)])
    plans = {"latency": one.everything_on(0)}
    served = adaptation.serve(one, plans, times, adaptation.fixed("latency"))
    assert len(served.latency) == len(times)
    assert (served.latency > 0).all()
