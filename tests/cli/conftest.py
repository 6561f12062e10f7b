# SPDX-License-Identifier: Apache-2.0
"""A machine with fake devices and workers, and controllers on it."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "service" / "support"
if str(SUPPORT) not in sys.path:
    sys.path.insert(0, str(SUPPORT))

from cli.command import Cli
from fake_program import FakeMachine, FakeProgram, RunningController


@pytest.fixture
def machine() -> Iterator[FakeMachine]:
    """Two devices. Its folder is short: socket paths have to be."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        yield FakeMachine(Path(folder))


@pytest.fixture
def controller(machine: FakeMachine) -> Iterator[RunningController]:
    with RunningController(machine) as running:
        running.wait_for_workers()
        yield running


@pytest.fixture
def program(controller: RunningController) -> Iterator[FakeProgram]:
    """A program that has said hello."""
    with FakeProgram(controller.folder) as connected:
        connected.hello()
        yield connected


@pytest.fixture
def cli(machine: FakeMachine) -> Iterator[Cli]:
    command = Cli(machine)
    yield command
    command("down", "--force")


@pytest.fixture
def running(cli: Cli) -> Cli:
    cli("up").ok()
    return cli
