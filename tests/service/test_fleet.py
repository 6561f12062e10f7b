# SPDX-License-Identifier: Apache-2.0
"""Workers: started, watched, started again, given up."""

import os
import signal
import time

from fake_program import FakeMachine, FakeProgram, RunningController, ptx, wait_until
from tessera.cluster.devices import find_devices
from tessera.cluster.processes import ProcessIdentity, variable_of


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
