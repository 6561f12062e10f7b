# SPDX-License-Identifier: Apache-2.0
"""What a launch claims, through the whole system: a tile is its own rows, an allocation is the one
that is there now."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from redirect.machine import Machine

ROWS, WORDS, ROUNDS = 12, 8192, 8
PROGRAM = Path(__file__).with_name("tiles.py")
COMMAND = (sys.executable, str(PROGRAM), str(ROWS), str(WORDS), str(ROUNDS))
MATRIX = 4 * 2 * WORDS * ROWS  # bytes


def moved_bytes(machine: Machine) -> tuple[int, int]:
    """Pulled and pushed so far, by all workers."""
    workers = json.loads(machine.control("status", "--json"))["workers"]
    return tuple(sum(w[name] for w in workers) for name in ("bytes_pulled", "bytes_pushed"))


@pytest.fixture
def outputs(machine: Machine, tmp_path: Path) -> tuple[Path, Path]:
    alone, moved = tmp_path / "alone", tmp_path / "moved"
    done = machine.native_run(*COMMAND, str(alone))
    assert int(done.stdout) == 1, "the arrays of the gather were to share an address"
    return alone, moved


def test_a_tile_does_not_move_its_neighbour(machine: Machine, outputs: tuple[Path, Path]) -> None:
    alone, moved = outputs
    machine.control("placement", "set", "left -> 1", "right -> 2", "gather -> home")
    pulled, pushed = moved_bytes(machine)
    machine.run(*COMMAND, str(moved), TESSERA_ANALYSIS_WAIT_MS="60000")
    assert moved.read_bytes() == alone.read_bytes()
    pulled_since, pushed_since = (
        a - b for a, b in zip(moved_bytes(machine), (pulled, pushed), strict=True)
    )
    # Each half goes out once, in the first round, and comes home once, at the end.
    assert pulled_since == MATRIX
    assert pushed_since == MATRIX


def test_a_memory_block_that_changed_hands(machine: Machine, outputs: tuple[Path, Path]) -> None:
    """The same launch but for what is allocated there: it claims all of the new block."""
    alone, moved = outputs
    machine.control("placement", "set", "* -> home", "gather -> 1")
    pulled, _ = moved_bytes(machine)
    machine.run(*COMMAND, str(moved), TESSERA_ANALYSIS_WAIT_MS="60000")
    assert moved.read_bytes() == alone.read_bytes()
    assert moved_bytes(machine)[0] - pulled > 0, "no gather has moved"
