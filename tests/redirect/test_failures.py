# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of any one process: the right result or a CUDA error in time, never a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redirect.machine import Machine, native_folder

PROGRAM = Path(__file__).with_name("endless.py")
PATIENCE = 5.0  # seconds from the kill to the program's end or to its result


def processes_of(machine: Machine, what: str) -> list[int]:
    """Pids whose command line has `what` and whose runtime folder is the machine's."""
    folder = str(machine.folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command, environment = ((entry / part).read_bytes() for part in ("cmdline", "environ"))
        except OSError:
            continue
        if what.encode() in command and folder in environment:
            found.append(int(entry.name))
    return found


@contextmanager
def working(machine: Machine, seconds: float, **more: str) -> Iterator[subprocess.Popen[str]]:
    environment = machine.environment(
        LD_PRELOAD=str(machine.native / "libtessera.so"), TESSERA_SCATTER="5", **more
    )
    command = [sys.executable, str(PROGRAM), str(seconds)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "working\n"
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("delay", [0.0, 0.4, 1.1])
def test_worker_killed(machine: Machine, delay: float) -> None:
    with working(machine, 3) as program:
        time.sleep(delay)
        for pid in processes_of(machine, "tessera-worker"):
            os.kill(pid, signal.SIGKILL)
        assert program.wait(3 + PATIENCE) in (0, 3)


def test_worker_that_comes_back_is_used(machine: Machine) -> None:
    with working(machine, 2) as program:
        assert program.wait(2 + PATIENCE) == 0
    deadline = time.monotonic() + 20
    while len(processes_of(machine, "tessera-worker")) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(processes_of(machine, "tessera-worker")) == 2


def test_program_killed_leaves_workers_serving(machine: Machine) -> None:
    with working(machine, 30) as program:
        time.sleep(0.5)
        program.kill()
        program.wait(PATIENCE)
    with working(machine, 1) as program:
        assert program.wait(1 + PATIENCE) == 0


def test_controller_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = Machine(native_folder(), Path(tmp_path_factory.mktemp("k")), "A100,L40S")
    machine.control("up")
    try:
        with working(machine, 2) as program:
            time.sleep(0.3)
            for pid in processes_of(machine, "controller.lock") or processes_of(machine, "tessera"):
                if pid not in processes_of(machine, "tessera-worker") and pid != program.pid:
                    os.kill(pid, signal.SIGKILL)
            assert program.wait(2 + PATIENCE) == 0
        machine.control("up")  # over the stale socket and lock
        with working(machine, 0.5) as program:
            assert program.wait(1 + PATIENCE) == 0
    finally:
        machine.control("down")
