# SPDX-License-Identifier: Apache-2.0
"""Green contexts: from the first one on everything stays home, is counted, and is right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redirect.machine import Machine

PROGRAMS = Path(__file__).resolve().parent / "programs"
ROUNDS = 8


@pytest.fixture
def behind(tmp_path: Path) -> Path:
    """Green contexts between the shim and the simulated driver, which has none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libgreen.so"
    command = [compiler, "-shared", "-fPIC", str(PROGRAMS / "green.c"), "-o", str(library)]
    subprocess.run([*command, "-ldl"], check=True)
    return library


def test_everything_stays_home(machine: Machine, behind: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    control = [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--report", str(report)]
    done = subprocess.run(
        [*control, "--", sys.executable, str(PROGRAMS / "green.py"), "green"],
        env=machine.environment(LD_PRELOAD=str(behind), TESSERA_SCATTER="5"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if "green contexts" in line]
    assert len(said) == 1, done.stderr
    launches = json.loads(report.read_text())["launches"]
    # Those before it were scattered, those behind it were not.
    assert 0 < sum(launches["workers"].values()) <= ROUNDS + 1
    assert launches["home"] + sum(launches["workers"].values()) == 2 * ROUNDS + 1
    assert launches["home"] >= ROUNDS
