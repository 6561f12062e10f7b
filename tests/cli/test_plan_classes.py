# SPDX-License-Identifier: Apache-2.0
"""Plans by launch class: from recordings and counters to rules and the table."""

import json

import pytest
from cli.command import Cli
from fake_program import FakeProgram, RunningController, ptx, wait_until
from tessera.placement import parse_condition
from tessera.placement.partition import PlacedClass, partition
from tessera.planning.recorded import parts
from tessera.protocol.classes import LaunchClass, Quantity
from tessera.protocol.packets import send
from tessera.protocol.recording import RecordedLaunch, pack_recorded
from tessera.protocol.tables import PLACED_BY_CLASS

DECODE, PREFILL = 8, 512  # blocks
MILLISECOND = 1_000_000


def shape(blocks: int) -> tuple[tuple[int, int], ...]:
    sizes = (blocks, 1, 1, 128, 1, 1, 0)
    return tuple(zip(range(Quantity.SHARED + 1), sizes, strict=True))


class Engine:
    """A program that launches `gemm` small and large, and `norm` in one size."""

    def __init__(self, program: FakeProgram) -> None:
        self.program = program
        image = ptx("gemm", "norm")
        self.gemm = program.learn(image, "gemm").kernel_id
        self.norm = program.learn(image, "norm").kernel_id

    def count(self, row: int, kernel_id: int, home_ms: float, away_ms: float) -> None:
        """Twenty launches on either device, in a row of the counters."""
        record = self.program.counters.record
        record["n_kernels"] = max(row + 1, int(record["n_kernels"]))
        entry = record["kernels"][row]
        entry["kernel_id"], entry["used"] = kernel_id, 1
        for device, mean in ((0, home_ms), (1, away_ms)):
            entry["launches"][device] = entry["timed"][device] = 20
            entry["time_ns"][device] = int(20 * mean * MILLISECOND)
        entry["stayed"][0] = 20

    def work(self) -> None:
        """Large products are quick on the worker, small ones and the norm at home."""
        self.count(0, self.gemm, 5.0, 5.0)
        self.count(1, self.norm, 1.0, 9.0)
        self.count(2, self.gemm, 1.0, 10.0)
        self.count(3, self.gemm, 10.0, 1.0)
        for row, blocks in ((2, DECODE), (3, PREFILL)):
            send(self.program.sock, LaunchClass(row, self.gemm, shape(blocks)).pack())

    def record(self, controller: RunningController) -> None:
        """Tells of ten rounds: the large product hands to the norm, the norm to the small one."""
        controller.ask("record", launches=30)
        a, b = (0x1000, 0x1100), (0x2000, 0x2080)
        told = [
            RecordedLaunch(self.gemm, 0, (), (a,), row=3),
            RecordedLaunch(self.norm, 0, (a,), (b,), row=1),
            RecordedLaunch(self.gemm, 0, (b,), (), row=2),
        ]
        send(self.program.sock, pack_recorded(10 * told, last=True))
        wait_until(lambda: not controller.ask("recording")["pending"])


@pytest.fixture
def engine(controller: RunningController, program: FakeProgram) -> Engine:
    engine = Engine(program)
    engine.work()
    engine.record(controller)
    return engine


def test_a_recording_tells_classes_apart(engine: Engine, controller: RunningController) -> None:
    found = controller.ask("recording")
    small, large = "grid=8x1x1 block=128x1x1", "grid=512x1x1 block=128x1x1"
    classes = {(one["kernel"], one["class"]): one["launches"] for one in found["classes"]}
    assert classes == {(engine.gemm, small): 10, (engine.gemm, large): 10, (engine.norm, ""): 10}
    edges = {(*one["source"], *one["target"]): one["bytes"] for one in found["class_edges"]}
    assert edges == {
        (engine.gemm, large, engine.norm, ""): 10 * 0x100,
        (engine.norm, "", engine.gemm, small): 10 * 0x80,
    }
    assert found["launches"] == {str(engine.gemm): 20, str(engine.norm): 10}
    kernel = next(k for k in controller.status()["kernels"] if k["name"] == "gemm")
    assert kernel["launches"] == {"0": 60, "1": 60}
    assert {name: one["launches"] for name, one in kernel["classes"].items()} == {
        small: {"0": 20, "1": 20},
        large: {"0": 20, "1": 20},
    }


def test_a_plan_places_sizes_of_one_kernel_apart(engine: Engine, cli: Cli) -> None:
    plan = json.loads(cli("plan", "--json").ok())
    image = next(one["image"] for one in plan["kernels"])
    assert plan["kernels"] == [
        {"image": image, "name": "gemm", "device": 1, "condition": "grid>=64"},
        {"image": image, "name": "gemm", "device": 0},
        {"image": image, "name": "norm", "device": 0},
    ]
    assert plan["transfers_known"]
    assert plan["seconds"] < plan["seconds_now"]
    text = cli("plan", "--rules").ok()
    assert text.splitlines() == [
        f"gemm image:{image[:12]} -> home",
        f"gemm image:{image[:12]} grid>=64 -> 1",
    ]
    assert "gemm grid=512x1x1 block=128x1x1" in cli("plan").ok()
    cli("placement", "set", *text.splitlines()).ok()
    check_table(engine)


def test_a_plan_by_class_is_followed(
    engine: Engine, cli: Cli, controller: RunningController
) -> None:
    cli("plan", "--apply").ok()
    check_table(engine)
    kernel = next(k for k in controller.status()["kernels"] if k["name"] == "gemm")
    assert {one["device"]: one["reason"] for one in kernel["classes"].values()} == {
        0: "plan for throughput",
        1: "plan for throughput",
    }
    assert kernel["apart"][0]["condition"] == "grid>=64"
    shown = cli("show", "gemm").ok()
    assert "worker 1 where grid>=64: plan for throughput" in shown
    assert "home otherwise: plan for throughput" in shown
    assert "grid=512x1x1 block=128x1x1 on worker 1; launched 20 on home, 20 on worker 1" in shown
    assert "home, worker 1" in cli("kernels").ok()
    assert "  grid=8x1x1 block=128x1x1" in cli("status").ok()
    # A rule wins over it, for the launches that it is about.
    cli("placement", "set", "gemm grid>=2048 -> home").ok()
    kernel = next(k for k in controller.status()["kernels"] if k["name"] == "gemm")
    assert [(one["condition"], one["device"]) for one in kernel["apart"]] == [
        ("grid>=2048", 0),
        ("grid>=64", 1),
    ]


def check_table(engine: Engine) -> None:
    """Large products on the worker, all else at home."""
    table = engine.program.placement
    wait_until(lambda: table["device"][engine.gemm] == PLACED_BY_CLASS)
    assert table["n_choices"] == 1
    choice = table["choices"][0]
    assert (choice["kernel_id"], choice["device"]) == (engine.gemm, 1)
    assert choice["terms"][0].tolist() == (Quantity.BLOCKS, 0, 64, (1 << 64) - 1)


def placed(*devices: tuple[int, int]) -> list[PlacedClass]:
    """Classes by their blocks."""
    return [PlacedClass(f"grid={blocks}x1x1 block=128x1x1", device) for blocks, device in devices]


def written(classes: list[PlacedClass]) -> tuple[list[tuple[str, int]], int]:
    apart, rest = partition(classes)
    return [(str(condition), device) for condition, device in apart], rest


def test_conditions_are_bounds_where_they_can_be() -> None:
    assert written(placed((1, 2), (64, 2))) == ([], 2)
    assert written(placed((1, 0), (4, 0), (400, 1))) == ([("grid>=40", 1)], 0)
    assert written(placed((1, 1), (2, 0), (800, 1))) == ([("grid>=40", 1), ("grid>=2", 0)], 1)
    calls = [PlacedClass(f"m=4096 n={n} k=8 batches=1", n // 512) for n in (8, 512)]
    assert written(calls) == ([("n>=64", 1)], 0)


def test_conditions_name_classes_where_no_bound_tells_them_apart() -> None:
    sizes = [("8x1x1", "128x1x1", 0), ("1x8x1", "128x1x1", 1), ("8x1x1", "64x1x1", 1)]
    classes = [PlacedClass(f"grid={g} block={b}", device, 9 - 8 * device) for g, b, device in sizes]
    apart, rest = partition(classes)
    assert rest == 0
    assert [str(condition) for condition, _ in apart] == [
        "grid=1x8x1 block=128x1x1 shared=0",
        "grid=8x1x1 block=64x1x1 shared=0",
    ]
    for one in classes:
        found = (device for condition, device in apart if condition.holds(one.quantities))
        assert next(found, rest) == one.device


def test_conditions_can_be_read_again() -> None:
    for condition, _ in partition(placed((1, 1), (2, 0), (3, 1), (900, 2)))[0]:
        assert parse_condition(str(condition).split()) == condition


def test_a_kernel_is_planned_for_whole_when_not_all_of_its_launches_are_told_apart() -> None:
    assert parts(100, {}) == {"": 100}
    assert parts(100, {"a": 5}) == {"": 100}
    assert parts(100, {"a": 5, "": 5}) == {"": 100}
    assert parts(100, {"a": 1, "b": 3}) == {"a": 25, "b": 75}
    assert parts(1000, {f"c{i}": 1 for i in range(65)}) == {"": 1000}
