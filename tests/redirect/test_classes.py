# SPDX-License-Identifier: Apache-2.0
"""Launches of one kernel that rules place apart, through the whole system."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redirect.machine import Machine, native_folder, running

PROGRAM = Path(__file__).with_name("sizes.py")
LARGE, WHOLE, PART = "grid=64x1x1 block=128x1x1", "grid=2x1x1 block=128x1x1", "arg2=100"
ROUNDS = 4  # of a phase
SECOND = 1.0  # within which a running program follows


class Sizes:
    """The program of sizes.py under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.phases = 0

    def phase(self) -> None:
        """All sizes, ROUNDS times."""
        self.phases += 1
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def machine() -> Iterator[Machine]:
    """With nothing counted yet."""
    with running(native_folder()) as machine:
        yield machine


@contextmanager
def started(machine: Machine, out: Path) -> Iterator[Sizes]:
    environment = machine.environment(
        LD_PRELOAD=str(machine.native / "libtessera.so"), TESSERA_ANALYSIS_WAIT_MS="60000"
    )
    command = [sys.executable, str(PROGRAM), str(ROUNDS), str(out)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Sizes(process)
        process.communicate(timeout=60)
    assert process.returncode == 0


def kernel_of(machine: Machine) -> dict[str, Any]:
    (found,) = json.loads(machine.control("status", "--json"))["kernels"]
    return dict(found)


def launches(machine: Machine) -> dict[str, dict[str, int]]:
    """By class and device, so far."""
    return {name: one["launches"] for name, one in kernel_of(machine)["classes"].items()}


def test_sizes_of_one_kernel_run_on_different_devices(machine: Machine, tmp_path: Path) -> None:
    alone, moved = tmp_path / "alone", tmp_path / "moved"
    machine.control("placement", "set", "scale grid>=64 -> 1", "scale arg2<=100 -> 2")
    with started(machine, moved) as sizes:
        sizes.phase()
        large, whole, part = f"{LARGE} arg2=8192", f"{WHOLE} arg2=256", f"{WHOLE} {PART}"
        assert launches(machine) == {
            large: {"1": ROUNDS},
            whole: {"0": ROUNDS},
            part: {"2": ROUNDS},
        }
        found = kernel_of(machine)
        assert found["launches"] == {"0": ROUNDS, "1": ROUNDS, "2": ROUNDS}
        assert {name: one["device"] for name, one in found["classes"].items()} == {
            large: 1,
            whole: 0,
            part: 2,
        }
        # The other way round, while it runs: as classes by the grid alone.
        machine.control("placement", "set", "* -> 2", "scale grid>=64 -> home")
        wait_for(lambda: follows(machine, sizes))
        machine.control("placement", "clear")
        sizes.phase()
    subprocess.run(
        [sys.executable, str(PROGRAM), str(ROUNDS), str(alone)], env=machine.environment(),
        input="go\n" * sizes.phases, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert moved.read_bytes() == alone.read_bytes()


def follows(machine: Machine, sizes: Sizes) -> bool:
    before = launches(machine)
    sizes.phase()
    after = launches(machine)
    return (
        after.get(LARGE, {}).get("0", 0) - before.get(LARGE, {}).get("0", 0) == ROUNDS
        and after.get(WHOLE, {}).get("2", 0) - before.get(WHOLE, {}).get("2", 0) == 2 * ROUNDS
    )


def wait_for(condition: Any) -> None:
    until = time.monotonic() + SECOND
    while not condition():
        assert time.monotonic() < until, "the running program did not follow the rules"
