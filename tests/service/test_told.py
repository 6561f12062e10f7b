# SPDX-License-Identifier: Apache-2.0
"""What programs tell of themselves, and how status, kernels and show tell it on."""

import os

from fake_program import FakeProgram, RunningController, ptx, wait_until
from tessera import protocol
from tessera.protocol import packets

WHY = "the program uses cuFuture, which this build does not know"


def learned(program: FakeProgram) -> int:
    number = program.learn(ptx("k"), "k").kernel_id
    program.counters.count(number, 0, 3, stayed=protocol.constant("TS_STAY_UNKNOWN"))
    return number


def keep_home(controller: RunningController, program: FakeProgram) -> None:
    packets.send(program.sock, protocol.AllHome(WHY).pack(program.next()))
    wait_until(lambda: any(p["counters"]["all_home"] for p in controller.status()["programs"]))


def placed(controller: RunningController) -> tuple[int, int, str]:
    [kernel] = controller.ask("kernels")["kernels"]
    return kernel["device"], kernel["wanted"], kernel["reason"]


def test_a_program_that_keeps_everything_home_is_shown_so(
    controller: RunningController, program: FakeProgram
) -> None:
    learned(program)
    controller.ask("set_rules", text="* -> 1\n")
    assert placed(controller) == (1, 1, "rule in line 1")
    keep_home(controller, program)
    assert placed(controller) == (0, 1, f"all at home: {WHY}")
    status = controller.status()
    assert status["programs"][0]["counters"]["all_home"] == WHY
    assert status["kernels"][0]["device"] == 0
    image = controller.ask("kernels")["kernels"][0]["image"]
    shown = controller.ask("show", image=image, name="k")["kernel"]
    assert shown["reason"] == f"all at home: {WHY}"


def test_it_is_shown_of_kernels_only_while_no_other_program_moves_them(
    controller: RunningController, program: FakeProgram
) -> None:
    learned(program)
    controller.ask("set_rules", text="* -> 1\n")
    with FakeProgram(controller.folder) as other:
        other.hello()
        learned(other)
        keep_home(controller, other)
        assert placed(controller) == (1, 1, "rule in line 1")


def test_launches_at_home_are_counted_on_when_a_program_has_ended(
    controller: RunningController,
) -> None:
    child = os.fork()
    if child == 0:
        program = FakeProgram(controller.folder)
        program.hello()
        learned(program)
        keep_home(controller, program)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    wait_until(lambda: controller.status()["programs"] == [])
    assert controller.status()["home"] == {"launches": 3, "timed": 3, "busy_ns": 4500}
    controller.ask("set_rules", text="* -> 1\n")
    # The next program may move it: where it is placed is shown, and why it stayed the last time.
    device, _, reason = placed(controller)
    assert device == 1
    assert reason == f"rule in line 1; the last program kept all at home: {WHY}"
