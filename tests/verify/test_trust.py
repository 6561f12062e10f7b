# SPDX-License-Identifier: Apache-2.0
"""A kernel that is unknown moves where its launch class passed trials and those are trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redirect.machine import Machine
from verify.trials import SMALL, command, expected, shown, verify

VERIFIED = {"TESSERA_TRUST": "verified"}


def moved(machine: Machine) -> int:
    workers = json.loads(machine.control("status", "--json"))["workers"]
    return sum(worker["launches"] for worker in workers)


def run(machine: Machine, out: Path, *kernels: str, **more: str) -> bytes:
    machine.run(*command(out, SMALL, *kernels), **more)
    return out.read_bytes()


def test_an_unknown_kernel_moves_under_verified_only(machine: Machine, tmp_path: Path) -> None:
    wanted = expected(machine, tmp_path, SMALL, "through*8")
    out = tmp_path / "out"
    assert run(machine, out, "through*8", TESSERA_SCATTER="3", **VERIFIED) == wanted
    assert moved(machine) == 0  # nothing was tried yet
    found = verify(machine, tmp_path, command(out, SMALL, "through*4"))
    assert found.status == 0, found.stderr
    assert found.verdicts("through") == ["passed"]
    assert (found.of("through")[0]["basis"], found.of("through")[0]["grade"]) == (
        "words", "unknown"
    )  # fmt: skip
    assert run(machine, out, "through*8", TESSERA_SCATTER="3") == wanted
    assert moved(machine) == 0  # proven is the default
    assert run(machine, out, "through*8", TESSERA_SCATTER="3", **VERIFIED) == wanted
    assert moved(machine) > 0
    assert not shown(machine, "through")["may_move"]


def test_a_launch_class_that_was_not_tried_stays_home(machine: Machine, tmp_path: Path) -> None:
    assert verify(machine, tmp_path, command(tmp_path / "out", SMALL, "through")).status == 0
    machine.run(*command(tmp_path / "out", 999, "through*8"), TESSERA_SCATTER="3", **VERIFIED)
    assert moved(machine) == 0


def test_one_failure_keeps_every_class_home(machine: Machine, tmp_path: Path) -> None:
    """`elsewhere` is `through` with a table that names memory that is not among the arguments."""
    wanted = expected(machine, tmp_path, SMALL, "through*8")
    out = tmp_path / "out"
    assert verify(machine, tmp_path, command(out, SMALL, "through")).verdicts("through") == [
        "passed"
    ]
    found = verify(machine, tmp_path, command(out, 999, "elsewhere"))
    assert found.verdicts("through") == ["failed"], found.trials
    assert found.status == 0  # nobody has vouched for it
    assert run(machine, out, "through*8", TESSERA_SCATTER="3", **VERIFIED) == wanted
    assert moved(machine) == 0


@pytest.mark.parametrize("trust", ["proven", "verified"])
def test_the_controller_places_it_by_the_same_setting(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    wanted = expected(machine, tmp_path, SMALL, "through*4")
    assert verify(machine, tmp_path, command(tmp_path / "out", SMALL, "through")).status == 0
    machine.control("down")
    monkeypatch.setenv("TESSERA_TRUST", trust)
    machine.control("up")
    machine.control("placement", "set", "through -> 1")
    assert run(machine, tmp_path / "out", "through*4", **VERIFIED) == wanted
    assert (moved(machine) > 0) == (trust == "verified")


def test_another_word_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.control("down")
    monkeypatch.setenv("TESSERA_TRUST", "everybody")
    with pytest.raises(AssertionError, match="proven or verified is wanted"):
        machine.control("up")
    monkeypatch.delenv("TESSERA_TRUST")
    machine.control("up")
