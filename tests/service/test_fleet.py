# SPDX-License-Identifier: Apache-2.0
"""Workers: started, watched, started again, given up."""

import os
import signal
import time
from pathlib import Path

import pytest
from fake_program import FakeMachine, FakeProgram, RunningController, ptx, wait_until
from tessera import protocol
from tessera.cluster import worker_log
from tessera.cluster.devices import find_devices
from tessera.cluster.processes import ProcessIdentity, variable_of
from tessera.cluster.worker_log import Part
from tessera.protocol import packets
from tessera.service.daemon import DaemonError, stop


def test_a_killed_worker_is_started_again_and_programs_hear_of_it(
    controller: RunningController, program: FakeProgram
) -> None:
    kernel = program.learn(ptx("k"), "k").kernel_id
    controller.ask("set_rules", text="* -> 1\n")
    program.wait_for_device(kernel, 1)
    [worker] = controller.status()["workers"]
    os.kill(worker["pid"], signal.SIGKILL)
    assert program.wait_for_device(kernel, 0) < 1.0
    program.wait_for_device(kernel, 1)
    [again] = controller.wait_for_workers()
    assert again["restarts"] == 1
    assert again["last_failure"] == "killed by signal 9"
    assert again["pid"] != worker["pid"]
    wait_until(lambda: controller.status()["problems"] == [])
    program.query(ptx("k"), "k")  # reads what was pushed meanwhile
    assert [workers[0].up for workers in program.pushed] == [False, True]


def test_a_lost_worker_is_told_with_its_log_and_what_the_device_said(
    controller: RunningController, program: FakeProgram
) -> None:
    log = controller.folder / "worker-1.log"
    with log.open("a") as file:
        file.write("f.cu:7: careful: Assertion `i != worst` failed.\n")
        file.write("tessera-worker 1: program 1 is given up\n")
    lost = protocol.WorkerLost(1, "worker 1: a kernel failed: CUDA_ERROR_ASSERT; running careful")
    packets.send(program.sock, lost.pack(program.next()))
    wait_until(lambda: controller.status()["faults"])
    [fault] = controller.status()["faults"]
    assert fault["reason"] == "a kernel failed: CUDA_ERROR_ASSERT; running careful"
    assert fault["said"] == "f.cu:7: careful: Assertion `i != worst` failed."
    assert (fault["log"], fault["pid"]) == (str(log), os.getpid())
    [told] = controller.status()["programs"][0]["counters"]["losses"]
    assert told.items() <= fault.items()
    # The log is still there, and not taken for the next worker's, when that has been started.
    [worker] = controller.status()["workers"]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: controller.status()["workers"][0]["restarts"] == 1)
    controller.wait_for_workers()
    assert controller.status()["faults"] == [fault]
    assert Part.last(log).device_said() == ""


def test_figures_of_a_worker_count_on_when_it_is_started_again(
    controller: RunningController,
) -> None:
    [before] = controller.status()["workers"]
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: controller.status()["workers"][0]["restarts"] == 1)
    [after] = controller.wait_for_workers()
    assert after["launches"] == 2 * before["launches"] > 0


def test_a_log_that_is_too_long_is_put_aside(tmp_path: Path) -> None:
    path = worker_log.path_of(tmp_path, 3)
    path.write_bytes(b"x" * (worker_log.LIMIT + 1))
    worker_log.begin(path, 3, "GPU").close()
    assert path.stat().st_size < 200
    assert path.with_suffix(".log.1").stat().st_size > worker_log.LIMIT
    assert Part.last(path).lines() == []
    assert Part.last(tmp_path / "nowhere").lines() == []
    with path.open("a") as file:
        file.write("one\n\ntwo\n")
    first = Part.last(path)
    worker_log.begin(path, 3, "GPU").close()
    assert first.lines() == ["one", "two"]
    assert Part.last(path).start > first.start


def test_a_worker_that_dies_each_time_is_given_up(machine: FakeMachine) -> None:
    with RunningController(machine, FAKE_WORKER="dies") as controller:
        [worker] = controller.wait_for_workers("failed")
        assert worker["restarts"] == 5
        problem = controller.status()["problems"][0]
        assert problem.startswith("worker 1 is given up")
        assert "no device of that number" in problem
        with FakeProgram(controller.folder) as program:
            assert [w.up for w in program.hello().workers] == [False]


def test_a_worker_that_reports_a_failure_is_replaced(machine: FakeMachine) -> None:
    with RunningController(machine, FAKE_WORKER="broken") as controller:
        wait_until(lambda: controller.status()["workers"][0]["restarts"] >= 1)
        assert "the context is lost" in controller.status()["workers"][0]["last_failure"]


def test_chosen_devices_become_workers_in_that_order(machine: FakeMachine) -> None:
    with RunningController(machine, devices="1,0") as controller:
        workers = controller.wait_for_workers()
        assert [(w["index"], w["device"]["ordinal"]) for w in workers] == [(1, 1), (2, 0)]
    with RunningController(machine, devices="") as controller:
        assert controller.status()["workers"] == []


def test_workers_end_with_the_controller(controller: RunningController) -> None:
    [worker] = controller.status()["workers"]
    identity = ProcessIdentity.of(worker["pid"])
    assert identity.alive()
    controller.stop()
    assert not identity.alive()


def test_workers_of_other_devices_are_ended_by_the_next_controller(machine: FakeMachine) -> None:
    with RunningController(machine, devices="1,0") as controller:
        first, second = controller.wait_for_workers()
        controller.kill()
    with RunningController(machine, devices="1") as controller:
        [kept] = controller.wait_for_workers()
        assert kept["pid"] == first["pid"]
        assert not ProcessIdentity.of(second["pid"]).alive()
    with RunningController(machine, devices="0") as controller:
        [other] = controller.wait_for_workers()
        assert other["pid"] != first["pid"]


def test_workers_that_serve_programs_outlive_a_down_without_controller(
    machine: FakeMachine,
) -> None:
    with RunningController(machine, FAKE_SESSIONS="1") as controller:
        [worker] = controller.wait_for_workers()
        controller.kill()
    with pytest.raises(DaemonError, match=rf"worker 1 \(process {worker['pid']}\) of one that"):
        stop(machine.folder)
    identity = ProcessIdentity.of(worker["pid"])
    assert identity.alive()
    assert stop(machine.folder, force=True) is None
    assert not identity.alive()


def test_a_worker_of_another_device_is_not_adopted(machine: FakeMachine) -> None:
    with RunningController(machine, devices="1") as controller:
        [first] = controller.wait_for_workers()
        controller.kill()
    with RunningController(machine, devices="0") as controller:
        [other] = controller.wait_for_workers()
        assert other["pid"] != first["pid"]
        assert not ProcessIdentity.of(first["pid"]).alive()


def test_processes_are_told_apart() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me.alive()
    assert not ProcessIdentity(me.pid, me.start_time + 1).alive()
    assert not ProcessIdentity(me.pid, me.start_time + 1).send(signal.SIGKILL)
    child = os.fork()
    if child == 0:
        os._exit(0)
    time.sleep(0.1)
    assert not ProcessIdentity.of(child).alive()  # a zombie has ended
    os.waitpid(child, 0)
    assert variable_of(os.getpid(), "NO_SUCH_VARIABLE") == ""
    assert variable_of(1 << 22, "PATH") == ""


def test_devices_are_those_of_the_driver(machine: FakeMachine, monkeypatch: object) -> None:
    environment = dict(os.environ)
    try:
        os.environ["TESSERA_DRIVER"] = machine.environment["TESSERA_DRIVER"]
        found = find_devices()
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert [d.name for d in found.devices] == ["NVIDIA A100", "NVIDIA L40S"]
    assert [d.compute_capability for d in found.devices] == [80, 89]
    assert found.version == 13000
