# SPDX-License-Identifier: Apache-2.0
"""A summary that says too little is caught; one that does not passes; programs notice nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from redirect.machine import Machine
from tessera.analysis import Flag, KernelSummary, Mode, Property
from verify.trials import (
    LARGE,
    SMALL,
    Change,
    command,
    expected,
    shown,
    tamper,
    verify,
    without,
)

Y, X = 8, 0  # offsets of the pointers among the arguments
MISSING_READ = without(lambda access: access.parameter_offset == Y)
MISSING_WRITE = without(lambda access: bool(access.mode & Mode.WRITE))


def too_much_written(summary: KernelSummary) -> KernelSummary:
    """As if every byte were surely written: then the old ones would not be fetched."""
    return dataclasses.replace(
        summary,
        accesses=tuple(
            dataclasses.replace(a, mode=Mode.WRITE, flags=a.flags | Flag.EXACT | Flag.MUST_WRITE)
            if a.mode & Mode.WRITE
            else a
            for a in summary.accesses
        ),
    )


def counts_nothing(summary: KernelSummary) -> KernelSummary:
    """As if it did not count its launches in a variable of its module."""
    kept = ~(Property.WRITES_GLOBALS | Property.READS_GLOBALS)
    return dataclasses.replace(summary, properties=summary.properties & kept)


def test_right_kernels_pass(machine: Machine, tmp_path: Path) -> None:
    kernels = ("scale", "add", "odd", "add*4")
    wanted = expected(machine, tmp_path, SMALL, *kernels)
    found = verify(machine, tmp_path, command(tmp_path / "out", SMALL, *kernels))
    assert found.status == 0, found.stderr
    assert (tmp_path / "out").read_bytes() == wanted
    assert {t["name"]: t["verdict"] for t in found.trials} == {
        "scale": "passed", "add": "passed", "odd": "passed"
    }  # fmt: skip
    [add] = found.of("add")
    assert (add["trials"], add["grade"], add["basis"], add["shape"]) == (
        2, "exact", "summary", "24 x 128"
    )  # fmt: skip
    assert "3 launch classes: 3 passed" in found.stderr
    assert shown(machine, "add")["trials"] == "passed 1"
    listed = json.loads(machine.control("kernels", "--json"))
    assert {k["name"]: (k["grade_word"], k["trials"]) for k in listed}["odd"] == (
        "exact", "passed 1"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "words", "change", "why"),
    [
        ("scale", SMALL, MISSING_READ, "result is another one"),
        ("scale", LARGE, MISSING_READ, "it fails: CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("add", SMALL, MISSING_WRITE, "it writes what it does not claim to write"),
        ("scale", LARGE, MISSING_WRITE, "it fails: CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("add", LARGE, MISSING_WRITE, "it writes what it does not claim to write"),
        ("odd", SMALL, too_much_written, "result is another one"),
    ],
)
def test_a_wrong_summary_is_caught(
    machine: Machine, tmp_path: Path, kernel: str, words: int, change: Change, why: str
) -> None:
    others = {"scale", "add", "odd"} - {kernel}
    kernels = (kernel, *sorted(others), kernel)
    wanted = expected(machine, tmp_path, words, *kernels)
    tamper(machine, tmp_path, kernel, change)
    found = verify(machine, tmp_path, command(tmp_path / "out", words, *kernels))
    assert found.status == 1, found.stderr
    assert (tmp_path / "out").read_bytes() == wanted  # home's result all the same
    assert found.verdicts(kernel) == ["wrong"]
    assert why in found.of(kernel)[0]["reason"]
    for other in others:  # in a new process, where the trial before has broken its own
        assert found.verdicts(other) == ["passed"], found.trials
    assert "shown wrong" in found.stderr

    kernel_now = shown(machine, kernel)
    assert (kernel_now["grade_word"], kernel_now["may_move"]) == ("unknown", False)
    assert kernel_now["trials"] == "wrong 1"
    machine.run(*command(tmp_path / "moved", words, *kernels), TESSERA_SCATTER="7")
    assert (tmp_path / "moved").read_bytes() == wanted
    machine.control("down")
    machine.control("up")
    machine.run(*command(tmp_path / "later", words, *kernels), TESSERA_SCATTER="8")
    assert (tmp_path / "later").read_bytes() == wanted
    assert shown(machine, kernel)["grade_word"] == "unknown"


def test_a_mark_outlives_the_analysis_that_makes_the_same_summary(
    machine: Machine, tmp_path: Path
) -> None:
    tamper(machine, tmp_path, "add", MISSING_WRITE)
    assert verify(machine, tmp_path, command(tmp_path / "out", SMALL, "add")).status == 1
    assert shown(machine, "add")["grade_word"] == "unknown"
    tamper(machine, tmp_path, "add", lambda summary: summary)
    assert shown(machine, "add")["grade_word"] == "unknown"
    tamper(machine, tmp_path, "add", MISSING_READ)  # another summary: nothing known against it
    assert shown(machine, "add")["grade_word"] == "exact"


def test_results_that_differ_at_home_as_well_show_nothing(machine: Machine, tmp_path: Path) -> None:
    wanted = expected(machine, tmp_path, SMALL, "number*2")
    tamper(machine, tmp_path, "number", counts_nothing)
    found = verify(machine, tmp_path, command(tmp_path / "out", SMALL, "number*2"))
    assert found.verdicts("number") == ["not deterministic"], found.trials
    assert found.status == 0
    assert shown(machine, "number")["may_move"]
    # The counter itself went on once more for each repetition; what the program reads is home's.
    assert (tmp_path / "out").read_bytes()[4:] == wanted[4:]


def test_what_stays_home_anyway_is_not_tried(machine: Machine, tmp_path: Path) -> None:
    found = verify(machine, tmp_path, command(tmp_path / "out", SMALL, "number", "add"))
    assert found.status == 0
    assert found.verdicts("number") == ["not tried"]
    assert "what only home can" in found.of("number")[0]["reason"]
    assert "writes module variables" in found.stderr
    assert found.verdicts("add") == ["passed"]


def test_the_program_s_exit_status_is_kept(machine: Machine, tmp_path: Path) -> None:
    assert verify(machine, tmp_path, ["sh", "-c", "exit 7"]).status == 7


def test_without_a_worker_nothing_is_claimed(machine: Machine, tmp_path: Path) -> None:
    machine.control("down")
    machine.control("up", "--no-workers")
    found = verify(machine, tmp_path, command(tmp_path / "out", SMALL, "add"))
    assert found.status == 1
    assert "none is up" in found.stderr
    assert not (tmp_path / "out").exists()
