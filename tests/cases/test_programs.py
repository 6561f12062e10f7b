# SPDX-License-Identifier: Apache-2.0
"""The cases of programs/: the same output and errors with the shim as without it.

Under the shim every launch that may move goes to a pseudo-random device.
docs/cases.md says which kind of fault each case stands for.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from redirect.machine import Machine

PROGRAMS = Path(__file__).resolve().parent / "programs"
DEVICES = "H200:memory=1G,L40S:memory=1G,L40S"


def cases(name: str) -> list[tuple[str, str]]:
    """(program, case) for each function case_* of a program."""
    text = (PROGRAMS / f"{name}.py").read_text()
    return [(name, case) for case in re.findall(r"^def case_(\w+)\(", text, re.MULTILINE)]


ALL = [
    case
    for name in (
        "memory",
        "mapping",
        "launches",
        "order",
        "errors",
        "processes",
        "coherence",
        "batches",
        "graphs",
    )
    for case in cases(name)
]


@pytest.mark.parametrize(("program", "case"), ALL, ids=[f"{p}-{c}" for p, c in ALL])
def test_same_with_the_shim(machine: Machine, program: str, case: str) -> None:
    command = (sys.executable, str(PROGRAMS / f"{program}.py"), case)
    alone = machine.native_run(*command)
    under = machine.run(*command, TESSERA_SCATTER="5")
    assert under.stdout == alone.stdout
    assert alone.stdout.endswith("done\n")
    assert spoken(under.stderr) == spoken(alone.stderr)


def test_watched_memory_is_free_again(machine: Machine) -> None:
    report = machine.folder / "report.json"
    machine.control("placement", "set", "fill -> 1")
    command = [sys.executable, str(PROGRAMS / "coherence.py"), "written_after_it_was_watched"]
    machine.control("run", "-q", "--report", str(report), "--", *command)
    machine.control("placement", "clear")
    kernels = {kernel["name"]: kernel for kernel in json.loads(report.read_text())["kernels"]}
    assert kernels["fill"]["launches"] == {"1": 20}
    assert set(kernels["wait_for"]["launches"]) == {"0"}


@pytest.mark.parametrize(
    ("case", "launches"), [("one_large_block", 48), ("segment_grows_and_shrinks", 6)]
)
def test_mapped_memory_moves(machine: Machine, case: str, launches: int) -> None:
    report = machine.folder / "report.json"
    machine.control("placement", "set", "fill -> 1")
    command = [sys.executable, str(PROGRAMS / "mapping.py"), case]
    machine.control("run", "-q", "--report", str(report), "--", *command)
    machine.control("placement", "clear")
    kernels = {kernel["name"]: kernel for kernel in json.loads(report.read_text())["kernels"]}
    assert kernels["fill"]["launches"] == {"1": launches}


def spoken(text: str) -> list[str]:
    """Without the lines of the simulator and of a worker on a kernel that failed."""
    return [
        line for line in text.splitlines() if not re.match(r"tessera-sim:|tessera: worker \d", line)
    ]
