# SPDX-License-Identifier: Apache-2.0
"""Programs and the controller: hello, kernel queries, placement, history."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_program import (
    SUPPORT,
    FakeMachine,
    FakeProgram,
    RefusedError,
    RunningController,
    ptx,
    wait_until,
)
from tessera import protocol
from tessera.protocol import KernelStatus
from tessera.service.client import ClientError
from tessera.service.slots import SLOT_SIZE, SLOTS, base_of

PRINTS = protocol.constant("TS_KERNEL_PRINTS")


def test_a_program_gets_a_slot_the_table_and_the_workers(
    controller: RunningController, program: FakeProgram
) -> None:
    welcome = program.welcome
    assert welcome is not None
    assert welcome.arena_base == base_of(welcome.slot)
    assert welcome.arena_size == SLOT_SIZE
    assert [(w.index, w.up, w.device.name) for w in welcome.workers] == [(1, True, "NVIDIA L40S")]
    assert Path(welcome.workers[0].socket).is_socket()
    status = controller.status()
    assert [p["program"] for p in status["programs"]] == ["python train.py"]
    assert status["problems"] == []


def test_each_program_has_its_own_slot(controller: RunningController) -> None:
    programs = [FakeProgram(controller.folder) for _ in range(5)]
    bases = {program.hello().arena_base for program in programs}
    assert len(bases) == 5
    for program in programs:
        program.close()


def test_an_unknown_image_is_wanted_then_analysed_then_known(program: FakeProgram) -> None:
    image = ptx("alpha", "beta")
    first = program.query(image, "alpha")
    assert (first.status, first.kernel_id) == (KernelStatus.NEED_IMAGE, 0)
    info = program.query(image, "alpha", send=True)
    assert (info.status, info.kernel_id) == (KernelStatus.READY, 0)
    assert protocol.read_summary_header(info.summary).minimum_architecture == 80
    again = program.query(image, "beta")
    assert (again.status, again.kernel_id) == (KernelStatus.READY, 1)


def test_the_next_controller_analyses_nothing(machine: FakeMachine) -> None:
    log = machine.folder.parent / "analyses"
    machine.environment["FAKE_ANALYSIS_LOG"] = str(log)
    image = ptx("alpha", "beta")
    for _ in range(2):
        with RunningController(machine) as controller:
            with FakeProgram(controller.folder) as program:
                program.hello()
                assert program.learn(image, "beta").kernel_id == 0
                assert program.learn(image, "alpha").kernel_id == 1
            assert controller.stop() == 0
    assert log.read_text() == "analysed\n"
    machine.environment["FAKE_ANALYSIS_VERSION"] = "2"
    with RunningController(machine) as controller, FakeProgram(controller.folder) as program:
        program.hello()
        assert program.query(image, "alpha").status == KernelStatus.NEED_IMAGE
        info = program.query(image, "alpha", send=True)
        assert (info.status, info.kernel_id) == (KernelStatus.READY, 1)
    assert log.read_text() == "analysed\nanalysed\n"


def test_a_slow_analysis_is_pending_and_then_ready(machine: FakeMachine) -> None:
    machine.environment["TESSERA_ANALYSIS_WAIT_MS"] = "150"
    image = ptx("slow", prefix="// sleep 1\n")
    with RunningController(machine) as controller, FakeProgram(controller.folder) as program:
        program.hello()
        begin = time.monotonic()
        info = program.learn(image, "slow")
        assert info.status == KernelStatus.PENDING
        assert time.monotonic() - begin < 0.9
        assert controller.status()["controller"]["analysis"]["running"] == 1
        other = program.query(ptx("other"), "other")  # nobody waits behind an analysis
        assert other.status == KernelStatus.NEED_IMAGE
        wait_until(lambda: program.query(image, "slow").status == KernelStatus.READY)


def test_many_programs_one_analysis(machine: FakeMachine) -> None:
    log = machine.folder.parent / "analyses"
    machine.environment["FAKE_ANALYSIS_LOG"] = str(log)
    image = ptx("shared", prefix="// sleep 0.3\n")
    results: list[protocol.KernelInfo] = []
    with RunningController(machine) as controller:

        def ask() -> None:
            with FakeProgram(controller.folder) as program:
                program.hello()
                results.append(program.learn(image, "shared"))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(r.status, r.kernel_id) for r in results] == [(KernelStatus.READY, 0)] * 6
    assert log.read_text() == "analysed\n"


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(300), "no PTX in this image: 1 cubin"),
        (b"what is this", "neither PTX nor cubin nor fatbin"),
        (ptx("k", prefix="// raise\n"), "told to fail at 3:14"),
        (ptx("other"), "has no kernel of this name"),
        (b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(", "4:19"),
        (b"", "neither"),
    ],
)
def test_failures_say_why(program: FakeProgram, image: bytes, reason: str) -> None:
    info = program.learn(image, "k")
    assert info.status == KernelStatus.FAILED
    assert reason in info.reason
    assert info.kernel_id == 0  # it has a number all the same: its launches are counted
    assert program.query(image, "k").reason == info.reason


def test_a_crash_of_the_analysis_costs_one_image(
    controller: RunningController, program: FakeProgram
) -> None:
    bad = ptx("k", prefix="// crash\n")
    info = program.learn(bad, "k")
    assert info.status == KernelStatus.FAILED
    assert "signal 6" in info.reason
    assert program.query(bad, "k").status == KernelStatus.FAILED
    assert program.learn(ptx("fine"), "fine").status == KernelStatus.READY
    assert controller.status()["controller"]["analysis"]["failed"] == 1


def test_two_images_with_one_hash_are_not_mixed_up(program: FakeProgram) -> None:
    name = "5" * 32
    assert program.query(ptx("a"), "a", send=True, hash_=name).status == KernelStatus.READY
    info = program.query(ptx("a", "b"), "a", send=True, hash_=name)
    assert info.status == KernelStatus.FAILED
    assert "one hash" in info.reason


def test_rules_reach_running_programs_within_a_second(
    controller: RunningController, program: FakeProgram
) -> None:
    image = ptx("matmul", "softmax")
    matmul = program.learn(image, "matmul").kernel_id
    softmax = program.learn(image, "softmax").kernel_id
    controller.ask("set_rules", text="soft* -> L40S\n")
    assert program.wait_for_device(softmax, 1) < 1.0
    assert program.placement["device"][matmul] == 0
    controller.ask("set_rules", text="* -> 1\nsoft* -> home\n")
    assert program.wait_for_device(matmul, 1) < 1.0
    assert program.wait_for_device(softmax, 0) < 1.0
    controller.ask("set_policy", policy="home")
    assert program.wait_for_device(matmul, 0) < 1.0
    controller.ask("set_policy", policy="manual")
    assert program.wait_for_device(matmul, 1) < 1.0


def test_a_kernel_that_comes_later_follows_the_rules(
    controller: RunningController, program: FakeProgram
) -> None:
    controller.ask("set_rules", text="* -> 1\n")
    printing = ptx("talks", prefix=f"// properties {PRINTS}\n")
    quiet = program.learn(ptx("quiet"), "quiet").kernel_id
    talks = program.learn(printing, "talks").kernel_id
    program.wait_for_device(quiet, 1)
    assert program.placement["device"][talks] == 0
    kernels = {kernel["name"]: kernel for kernel in controller.ask("kernels")["kernels"]}
    assert kernels["talks"]["reason"] == "stays home: prints"
    assert (kernels["talks"]["wanted"], kernels["quiet"]["device"]) == (1, 1)


def test_bad_rules_change_nothing(controller: RunningController, program: FakeProgram) -> None:
    kernel = program.learn(ptx("k"), "k").kernel_id
    controller.ask("set_rules", text="* -> 1\n")
    with pytest.raises(ClientError, match="the rules have errors") as error:
        controller.ask("set_rules", text="* -> home\nk -> gpu7\nnonsense\n")
    assert [line for line, _ in error.value.answer["errors"]] == [2, 3]
    assert program.placement["device"][kernel] == 1
    assert controller.ask("rules")["text"] == "* -> 1\n"
    answer = controller.ask("check_rules", text="nothing* -> 1\n")
    assert answer["warnings"] == [[1, "'nothing*' fits no kernel seen so far"]]


def test_a_rule_that_takes_for_ever_is_refused(
    controller: RunningController, program: FakeProgram
) -> None:
    program.learn(ptx("a" * 60), "a" * 60)
    with pytest.raises(ClientError, match="backtracks"):
        controller.ask("set_rules", text="re:(a+)+$_ -> 1\n")
    assert controller.status()["controller"]["rules_revision"] == 0


def test_rules_that_somebody_else_changed_are_not_overwritten(
    controller: RunningController,
) -> None:
    base = controller.ask("rules")["revision"]
    controller.ask("set_rules", text="* -> 1\n", base_revision=base)
    with pytest.raises(ClientError, match="changed meanwhile"):
        controller.ask("set_rules", text="* -> home\n", base_revision=base)


def test_rules_outlive_the_controller(machine: FakeMachine) -> None:
    image = ptx("k")
    with RunningController(machine) as controller, FakeProgram(controller.folder) as program:
        controller.ask("set_rules", text="k -> 1\n")
        program.hello()
        program.learn(image, "k")
    with RunningController(machine) as controller, FakeProgram(controller.folder) as program:
        controller.wait_for_workers()
        program.hello()
        assert program.placement["device"][0] == 1


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from fake_program import FakeProgram, ptx
program = FakeProgram(Path(sys.argv[1]))
program.hello()
info = program.learn(ptx("k"), "k")
program.counters.count(info.kernel_id, 1, 5)
program.counters.count(info.kernel_id, 0, 2, stayed=6)
program.counters.record["calls"] = 99
print("ready", flush=True)
time.sleep(float(sys.argv[3]))
"""


def start_program(
    controller: RunningController, seconds: float = 60, **environment: str
) -> "subprocess.Popen[str]":
    """A fake program in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(controller.folder), str(SUPPORT), str(seconds)],
        env=controller.machine.environment | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_killed_program_leaves_its_history_and_its_slot(controller: RunningController) -> None:
    process = start_program(controller, TESSERA_RUN="run-1")
    [running] = controller.ask("run", run="run-1")["running"]
    assert (running["pid"], running["slot"]) == (process.pid, 0)
    assert running["counters"]["calls"] == 99
    finish(process)
    wait_until(lambda: controller.status()["programs"] == [])
    answer = controller.ask("run", run="run-1")
    [ended] = answer["ended"]
    [kernel] = ended["counters"]["kernels"]
    assert kernel["launches"] == {"0": 2, "1": 5}
    assert kernel["stayed"] == {"6": 2}
    assert kernel["bytes_in"] == {"1": 5120}
    assert answer["kernels"][str(kernel["id"])]["name"] == "k"
    assert controller.ask("history")["programs"][0]["pid"] == process.pid
    assert json.loads((controller.folder / "slots.json").read_text()) == []


def test_a_program_that_only_closes_its_connection_keeps_its_slot(
    controller: RunningController,
) -> None:
    first = FakeProgram(controller.folder)
    slot = first.hello().slot
    first.close()
    wait_until(lambda: not controller.status()["programs"][0]["connected"])
    with FakeProgram(controller.folder) as again:
        again.counters = first.counters  # a program that reconnects brings the same table
        assert again.hello().slot == slot
        assert len(controller.status()["programs"]) == 1
        assert controller.ask("history")["programs"] == []
    with FakeProgram(controller.folder) as other:  # another table: it has become another program
        other.hello()
        wait_until(lambda: len(controller.ask("history")["programs"]) == 1)


def test_as_many_programs_as_slots_and_no_more(controller: RunningController) -> None:
    programs = [FakeProgram(controller.folder) for _ in range(SLOTS)]
    slots = sorted(program.hello().slot for program in programs)
    assert slots == list(range(SLOTS))
    with (
        FakeProgram(controller.folder) as late,
        pytest.raises(RefusedError, match=f"{SLOTS} programs"),
    ):
        late.hello()
    for program in programs:
        program.close()


def test_a_restarted_controller_knows_who_is_alive(machine: FakeMachine) -> None:
    with RunningController(machine) as controller:
        worker = controller.wait_for_workers()[0]["pid"]
        process = start_program(controller)
        controller.kill()
    assert (machine.folder / "controller.sock").exists()  # stale
    with RunningController(machine) as again:
        assert again.wait_for_workers()[0]["pid"] == worker  # it has been taken over
        with FakeProgram(again.folder) as program:
            assert program.hello().slot == 1  # 0 still belongs to the living process
            assert program.learn(ptx("k"), "k").kernel_id == 0
        finish(process)
    with RunningController(machine) as third:
        finish(process := start_program(third))
        wait_until(lambda: third.ask("history")["programs"][0]["pid"] == process.pid)
        assert third.ask("history")["programs"][0]["counters"]["calls"] == 99
        with FakeProgram(third.folder) as program:
            assert program.hello().slot == 1  # this process had it before, and gets it again


def test_status_is_one_json_object(controller: RunningController, program: FakeProgram) -> None:
    info = program.learn(ptx("k"), "k")
    program.counters.count(info.kernel_id, 1, 3)
    status = json.loads(json.dumps(controller.status()))
    assert status["schema"] == 1
    assert [device["worker"] for device in status["devices"]] == [None, 1]
    [kernel] = status["kernels"]
    assert (kernel["name"], kernel["launches"]) == ("k", {"1": 3})


def test_a_status_too_long_for_a_packet_arrives(
    controller: RunningController, program: FakeProgram
) -> None:
    names = [f"kernel_with_a_rather_long_name_{number:04}" for number in range(700)]
    image = ptx(*names)
    for name in names:
        info = program.learn(image, name)
        program.counters.count(info.kernel_id, 0, 1)
    status = controller.status()
    assert len(json.dumps(status)) > protocol.MAX_MESSAGE
    assert len(status["kernels"]) == 700


def test_counters_that_lie_do_no_harm(controller: RunningController, program: FakeProgram) -> None:
    program.counters.record["n_kernels"] = 0xFFFFFFFF
    program.counters.record["state"] = 77
    program.counters.record["kernels"]["used"][:] = 1
    program.counters.record["kernels"]["kernel_id"][:] = 0xFFFFFFFF
    [seen] = controller.status()["programs"]
    assert seen["state"] == "unknown"
    assert controller.status()["kernels"] == []
