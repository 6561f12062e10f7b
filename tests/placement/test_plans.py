# SPDX-License-Identifier: Apache-2.0
"""Policies that follow computed plans, and the load that the adaptive one looks at."""

from pathlib import Path

import pytest
from tessera.placement import POLICIES, Kernel, Plans, Worker, make_policy, parse_rules, place
from tessera.service import planned
from tessera.service.placer import Placer
from tessera.store import (
    ClassDependency,
    CostRecord,
    ImageRecord,
    RulesRecord,
    Status,
    Store,
)

WORKERS = (Worker(1, "NVIDIA L40S", 89), Worker(2, "NVIDIA A10", 86))
IMAGE = "ab" * 16
PLANS = Plans(latency={(IMAGE, "gemm"): 1}, throughput={(IMAGE, "gemm"): 2, (IMAGE, "act"): 1})


def device_of(policy: str, name: str, rules: str = "", plans: Plans = PLANS) -> int:
    kernel = Kernel(0, name, IMAGE)
    chosen = make_policy(policy, parse_rules(rules, WORKERS), plans)
    return place(kernel, chosen, WORKERS).device


def test_all_policies_are_there() -> None:
    assert set(POLICIES) == {"home", "manual", "latency", "throughput", "adaptive"}


def test_each_objective_has_its_plan() -> None:
    assert device_of("latency", "gemm") == 1
    assert device_of("throughput", "gemm") == 2
    assert device_of("latency", "act") == 0
    assert device_of("home", "gemm") == device_of("manual", "gemm") == 0


def test_the_adaptive_policy_follows_its_mode() -> None:
    busy = Plans(PLANS.latency, PLANS.throughput, "throughput")
    assert device_of("adaptive", "gemm") == 1
    assert device_of("adaptive", "gemm", plans=busy) == 2


def test_rules_win_over_plans() -> None:
    assert device_of("throughput", "gemm", "gemm -> home") == 0
    assert device_of("latency", "act", "a* -> 2") == 2


def test_without_a_plan_everything_stays_home_and_says_why() -> None:
    chosen = make_policy("latency", parse_rules("", WORKERS))
    found = place(Kernel(0, "gemm", IMAGE), chosen, WORKERS)
    assert found.device == 0
    assert "tessera-ctl plan --apply" in found.reason


def test_a_new_plan_reaches_the_table_of_running_programs(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        image = ImageRecord(IMAGE, 10, kind="ptx", status=Status.READY)
        claimed = store.claim(image, "gemm")
        assert claimed.id is not None
        ready = store.kernel(IMAGE, "gemm")
        assert ready is not None
    placer = Placer()
    placer.set_workers(WORKERS)
    placer.kernels[claimed.id] = Kernel(claimed.id, "gemm", IMAGE)
    placer.set_rules(RulesRecord(), "throughput")
    assert placer.table.device(claimed.id) == 0
    before = placer.table.generation
    placer.set_plans(PLANS)
    assert placer.table.device(claimed.id) == 2
    assert placer.table.generation > before
    placer.table.close()


def test_plans_outlive_the_controller(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        text = planned.encode([(IMAGE, "gemm", 2)])
        store.save_setting(planned.setting_of("throughput"), text)
        store.save_setting(planned.setting_of("latency"), "no plan")
        found = planned.load(store)
    assert found.throughput == {(IMAGE, "gemm"): 2}
    assert found.latency == {}


def test_costs_and_edges_of_launch_classes_add_up(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add_costs([CostRecord("a", "L40S", 2, 0.5, 0.125), CostRecord("a", "A10", 1, 1.0)])
        store.add_costs([CostRecord("a", "L40S", 2, 0.7, 0.245)])
        store.add_class_dependencies([ClassDependency("a", "b", 100, 1)])
        store.add_class_dependencies([ClassDependency("a", "b", 50, 1)])
        found = {one.device: one for one in store.costs()}
        edges = store.class_dependencies()
    assert found["L40S"].launches == 4
    assert found["L40S"].seconds == pytest.approx(1.2)
    assert edges == [ClassDependency("a", "b", 150, 2)]


def counters(launches: int) -> dict[str, list[dict[str, dict[str, int]]]]:
    """Kernel 0: 10 ms each at home."""
    kernel = {"id": 0, "launches": {"0": launches}, "timed": {"0": 8}, "time_ns": {"0": 80_000_000}}
    return {"kernels": [kernel]}  # type: ignore[list-item]


def test_more_work_than_time_is_a_queue() -> None:
    load = planned.Load()
    load.observe([(1, counters(0))], 0.0)
    half = load.observe([(1, counters(50))], 1.0)
    assert half.utilization == pytest.approx(0.5)
    assert half.queue == 0.0
    full = load.observe([(1, counters(200))], 2.0)
    assert full.utilization == 1.0
    assert full.queue == pytest.approx(0.5)
    assert load.observe([(1, counters(200))], 2.4).queue == pytest.approx(0.1)
