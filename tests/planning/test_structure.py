# SPDX-License-Identifier: Apache-2.0
"""Dataflow, folding, costs and the problem that is built from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tessera.planning.costs import CostModel, Efficiency, Sample, UnknownCostError, roofline
from tessera.planning.dataflow import flows
from tessera.planning.folding import fold
from tessera.planning.launches import Job, Launch, Range, Region, Work, Workload
from tessera.planning.machine import Device, connect, load_catalogue, pick
from tessera.planning.models import ARCHITECTURES, workload
from tessera.planning.problem import Options, build, contract, with_in_flight

FAST = Device("F", "fast", 90, 1e9, 1e12, {"f32": 1e13}, 0.0)
SLOW = Device("S", "slow", 80, 1e9, 1e11, {"f32": 1e12}, 0.0)


def launch(name: str, reads: list[tuple[int, int]], writes: list[tuple[int, int]]) -> Launch:
    return Launch(
        name,
        name,
        tuple(Range(*one) for one in reads),
        tuple(Range(*one) for one in writes),
        Work(0.0, "f32", 1e6),
    )


def test_a_reader_depends_on_the_last_writer_of_each_byte() -> None:
    """A write in the middle cuts an older one in two."""
    found = flows(
        [
            launch("a", [], [(0, 100)]),
            launch("b", [], [(40, 60)]),
            launch("c", [(30, 70)], []),
        ]
    )
    assert {(one.producer, one.consumers, one.size) for one in found} == {
        (0, (2,), 20),
        (1, (2,), 20),
    }


def test_bytes_that_two_kernels_read_in_part_are_told_apart() -> None:
    found = flows(
        [launch("a", [], [(0, 100)]), launch("b", [(0, 60)], []), launch("c", [(40, 100)], [])]
    )
    assert {(one.consumers, one.size) for one in found} == {((1,), 40), ((1, 2), 20), ((2,), 40)}


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=25
    )
)
def test_flows_agree_with_a_table_of_bytes(steps: list[tuple[bool, int, int]]) -> None:
    """Against the plainest way to know who wrote a byte."""
    launches, owner, expected = [], {}, {}
    for i, (writes, begin, size) in enumerate(steps):
        span = (begin, begin + size)
        launches.append(launch("k", [] if writes else [span], [span] if writes else []))
        for byte in range(*span):
            if writes:
                owner[byte] = i
            elif byte in owner:
                expected[owner[byte], i] = expected.get((owner[byte], i), 0) + 1
    # A producer's byte counts for a reader each time that it is read: once here.
    found: dict[tuple[int, int], int] = {}
    for flow in flows(launches):
        for consumer in flow.consumers:
            key = (flow.producer, consumer)
            found[key] = found.get(key, 0) + flow.size
    assert set(found) == set(expected)
    assert all(found[key] >= expected[key] for key in expected)


@pytest.mark.parametrize("layers", [2, 7, 80])
def test_layers_fold_whatever_their_number(layers: int) -> None:
    """Positions of one layer stay apart, though two of them launch the same kernel."""
    body = ["norm", "gemm", "attention", "gemm", "norm"]
    folded = fold(["embed", *body * layers, "head"])
    assert folded.size == 2 + len(body)
    assert sorted(len(one) for one in folded.members) == [1, 1] + [layers] * len(body)


def test_steps_of_layers_fold_twice() -> None:
    step = ["start", *["a", "b", "c"] * 6, "end"]
    folded = fold(step * 5)
    assert folded.size == 5
    assert sorted(len(one) for one in folded.members) == [5, 5, 30, 30, 30]


def test_parts_give_stretches_of_a_repetition_nodes_of_their_own() -> None:
    folded = fold(["a", "b"] * 8, parts=4)
    assert folded.size == 8
    assert {len(one) for one in folded.members} == {2}


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_folding_loses_no_launch_and_mixes_no_kernels(keys: list[str]) -> None:
    folded = fold(keys)
    assert sorted(i for one in folded.members for i in one) == list(range(len(keys)))
    assert all(len({keys[i] for i in one}) == 1 for one in folded.members)


def test_the_roofline_takes_the_longer_of_arithmetic_and_memory() -> None:
    efficiency = Efficiency(vector=1.0, memory=1.0)
    assert roofline(Work(2e13, "f32", 1e9), FAST, efficiency) == pytest.approx(2.0)
    assert roofline(Work(1e9, "f32", 3e12), FAST, efficiency) == pytest.approx(3.0)


def test_measured_times_win_and_are_carried_to_other_devices() -> None:
    costs = CostModel()
    one = launch("k", [], [])
    estimated = costs.estimate(one, FAST, [FAST, SLOW])
    assert not estimated.measured
    costs.learn([Sample("k", "F", 4, 4e-3, 4 * 1.25e-6)])
    measured = costs.estimate(one, FAST, [FAST, SLOW])
    assert (measured.time, measured.count) == (pytest.approx(1e-3), 4)
    assert measured.spread == pytest.approx(0.5e-3)
    assert costs.estimate(one, SLOW, [FAST, SLOW]).time == pytest.approx(1e-2)


def test_a_launch_of_which_nothing_is_known_has_no_cost() -> None:
    with pytest.raises(UnknownCostError, match="never timed"):
        CostModel().estimate(Launch("k", "k"), FAST, [FAST, SLOW])


def layered(layers: int) -> Workload:
    """x goes through layers, each with weights of its own and a kernel after it."""
    launches, regions = [], []
    for i in range(layers):
        weights = (10_000 + 1000 * i, 10_600 + 1000 * i)
        launches.append(launch("gemm", [(0, 100), weights], [(200, 300)]))
        launches.append(launch("act", [(200, 300)], [(0, 100)]))
        regions.append(Region(f"w{i}", Range(*weights)))
    cache = Range(900_000, 900_500)
    launches.append(launch("read", [(cache.begin, cache.end), (0, 100)], [(400, 410)]))
    regions.append(Region("cache", cache, per_slot=True))
    return Workload("layered", (Job("main", tuple(launches)),), tuple(regions))


def test_a_folded_problem_keeps_bytes_counts_and_memory() -> None:
    problem = build(layered(10), connect([FAST, SLOW]), CostModel(), Options(parts=1))
    gemm, act, read = problem.nodes
    assert (gemm.count, act.count, read.count) == (10, 10, 1)
    sizes = {
        (value.producer, value.consumers): value.size * value.count for value in problem.values
    }
    assert sizes == {(0, (1,)): 1000, (1, (0,)): 900, (1, (2,)): 100}
    assert {(one.size, one.readers) for one in problem.buffers} == {(6000, (0,)), (500, (2,))}
    more = with_in_flight(problem, 3)
    assert {one.size for one in more.buffers} == {6000, 1500}


def test_tied_nodes_become_one() -> None:
    options = Options(parts=2, tie_kernels=True)
    problem = build(layered(8), connect([FAST, SLOW]), CostModel(), options)
    small = contract(problem)
    assert len(problem.nodes) == 5
    assert len(small.problem.nodes) == 3
    assert small.problem.loads.sum() == pytest.approx(problem.loads.sum())
    assert small.expand(np.array([0, 1, 0])).tolist() == [
        {"gemm": 0, "act": 1, "read": 0}[node.name] for node in problem.nodes
    ]


def test_every_device_of_the_catalogue_has_a_price_and_a_source() -> None:
    found = load_catalogue()
    assert {"H100", "A100", "H20", "L40S", "A10", "RTX PRO 6000"} <= set(found)
    assert all(one.price > 0 and one.source and one.bandwidth > 0 for one in found.values())
    assert [one.key for one in pick(found, ["h100", "rtx pro 6000"])] == ["H100", "RTX PRO 6000"]


@pytest.mark.parametrize(
    ("architecture", "gigabytes"),
    [("dense", 16.1), ("moe", 61.1), ("ssm", 14.6), ("diffusion", 33.3)],
)
def test_models_have_the_weights_that_they_are_published_with(
    architecture: str, gigabytes: float
) -> None:
    """In bf16; FLUX with its T5 encoder."""
    found = workload(architecture, 1024, 28, 1)
    total = sum(one.range.size for one in found.regions if not one.per_slot) / 1e9
    assert total == pytest.approx(gigabytes, rel=0.01)


def test_a_decode_step_does_two_operations_for_each_weight_and_row() -> None:
    """Dense: 8.03e9 weights, of which the embedding is only looked up."""
    found = workload("dense", 1024, 512, 4)
    decode = next(job for job in found.jobs if job.name == "decode")
    flops = sum(
        one.work.flops for one in decode.launches if one.work and one.kernel.startswith("gemm")
    )
    weights = 8.03e9 - 128256 * 4096
    assert flops == pytest.approx(2 * 4 * weights, rel=0.01)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_models_fold_to_few_nodes(architecture: str) -> None:
    machine = connect(pick(load_catalogue(), ["H100", "L40S"]))
    found = workload(architecture, 1024, 28, 2)
    problem = build(found, machine, CostModel(), Options(parts=1))
    assert len(problem.nodes) < 100 < len(found.launches)
    more = build(found, machine, CostModel(), Options(parts=4))
    assert more.loads.sum(axis=0) == pytest.approx(problem.loads.sum(axis=0))
