# SPDX-License-Identifier: Apache-2.0
"""tessera-ctl with the shim, the worker and the simulated driver themselves."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path(os.environ.get("TESSERA_NATIVE_DIR", "/nowhere"))

pytest.importorskip("cuda.core")
pytestmark = pytest.mark.skipif(
    not (NATIVE / "sim" / "libcuda.so.1").exists() or not (NATIVE / "libtessera.so").exists(),
    reason="the native parts are not built",
)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        variables = {
            **os.environ,
            "LD_LIBRARY_PATH": str(NATIVE / "sim"),
            "TESSERA_SIM_DEVICES": "A100,L40S",
            "TESSERA_RUNTIME_DIR": f"{folder}/run",
            "TESSERA_STORE": f"{folder}/store.db",
            "PYTHONPATH": str(ROOT / "control"),
        }
        variables.pop("TESSERA_DRIVER", None)
        yield variables
        control(variables, "down", "--force", check=False)


def control(
    environment: dict[str, str], *words: str, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "tessera.cli.main", *words],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr + done.stdout
    return done


def test_a_program_is_moved_and_its_results_stay(environment: dict[str, str]) -> None:
    program = [sys.executable, str(ROOT / "examples" / "heat_core.py")]
    assert "All is well" in control(environment, "doctor").stdout
    control(environment, "up")
    home = control(environment, "run", "--", *program)
    assert re.search(r"launches +home \d+$", home.stderr, re.MULTILINE)
    control(environment, "placement", "set", "heat_step -> L40S")
    moved = control(environment, "run", "--", *program)
    assert moved.stdout == home.stdout
    assert re.search(r"launches +home \d+, worker 1 [1-9]", moved.stderr)
    status = json.loads(control(environment, "status", "--json").stdout)
    assert status["workers"][0]["launches"] > 0
    assert status["problems"] == []
    shown = control(environment, "show", "heat_step").stdout
    assert "Runs on     worker 1: rule in line 1" in shown
    assert "reads bytes" in shown
