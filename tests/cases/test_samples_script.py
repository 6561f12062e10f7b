# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/samples.py tells samples that do the same under Tessera from those that do not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu.samples import finish
from gpu.samples_compare import difference
from redirect.machine import native_folder

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "gpu/samples.py"
TESSERA = "case $LD_PRELOAD in *libtessera*) "
FAKES = {
    "honest": f"{sys.executable} {HERE}/programs/launches.py handles",
    "timed": "echo took $$.5 ms, at 0x7f$$ in process $$; echo 42 PASSED; exit 2",
    "varying": "echo value $RANDOM$RANDOM; echo 42 PASSED",
    "changed": f"echo one; {TESSERA} echo 41;; *) echo 42;; esac",
    "failing": f"{TESSERA} exit 3;; esac",
}


def table(folder: Path, *names: str) -> tuple[int, dict[str, list[str]]]:
    """The exit status of the script on these fakes, and the cells of its table by sample."""
    for name in names:
        file = folder / "Samples/0_Fakes" / name / name
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/bash\n{FAKES[name]}\n")
        file.chmod(0o755)
    out = folder / "out.md"
    command = [sys.executable, str(SCRIPT), "--built", str(folder), "--out", str(out), "--no-mps"]
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(native_folder() / "sim"),
        "TESSERA_SIM_DEVICES": "H200,L40S",
        "TESSERA_NATIVE_DIR": str(native_folder()),
    }
    done = subprocess.run(
        [*command, "--device", "1"], env=environment, capture_output=True, text=True, check=False
    )
    assert out.exists(), done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in out.read_text().splitlines() if "|" in line]
    return done.returncode, {row[0]: row[1:] for row in rows}


def test_the_same_is_said_to_be_the_same(tmp_path: Path) -> None:
    status, rows = table(tmp_path, "honest", "timed", "varying")
    assert status == 0
    assert rows["honest"][:4] == ["0", "same", "same", "same"]
    assert int(rows["honest"][4].split(", ")[1]) > 0, "nothing ran on the worker"
    assert rows["timed"][:4] == ["2 (waived)", "same", "same", "same"]
    assert rows["varying"][1] == "same, but for what varies alone"


def test_what_differs_is_found(tmp_path: Path) -> None:
    status, rows = table(tmp_path, "changed", "failing")
    assert status == 1
    assert rows["changed"][0] == "0"
    assert rows["changed"][1:4] == ["**no «42», but «41»**"] * 3
    assert rows["failing"][1].startswith("**exit status 3, alone 0")


def test_a_run_without_an_end_is_stopped_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    command = ["/bin/sh", "-c", "sleep 600 & wait"]
    assert finish(command, tmp_path, dict(os.environ), 0.5)[0] is None
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("alone", "under", "same"),
    [
        ("Time 3.2 ms\nPASS\n", "Time 4.1 ms\nPASS\n", True),
        ("error 3.2\n", "error 4.1\n", False),
        ("a\nb\n", "b\na\n", True),
        ("a\n", "a\na\n", False),
        ("bandwidth 5 GB/s\n", "no bandwidth\n", False),
        ("x = 1\n", "tessera: a line of ours\nx = 1\n", True),
    ],
)
def test_outputs(alone: str, under: str, same: bool) -> None:
    assert (difference([alone], under)[0] == "") == same
