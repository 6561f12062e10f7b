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
from typing import Any

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


def faulty(
    environment: dict[str, str], *words: str
) -> "tuple[subprocess.CompletedProcess[str], dict[str, Any]]":
    """A run of faulty.py, whose `careful` is placed on the worker, and its report."""
    report = Path(environment["TESSERA_STORE"]).with_suffix(".json")
    program = [sys.executable, str(Path(__file__).with_name("faulty.py")), *words]
    options = ["--report", str(report), "--", *program]
    done = control(environment, "run", *options, check=False)
    return done, json.loads(report.read_text())


def test_launches_at_home_are_timed_while_others_are_moved(environment: dict[str, str]) -> None:
    control(environment, "placement", "set", "careful -> 1")
    control(environment, "up")
    done, report = faulty(environment)
    assert (done.returncode, done.stdout) == (0, "right\n")
    kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
    assert kernels["careful"]["launches"] == {"1": 30}
    assert kernels["steady"]["launches"] == {"0": 30}
    assert kernels["steady"]["timed"] == {"0": 8}
    assert kernels["steady"]["time_ns"]["0"] > 0
    assert re.search(r"^steady +home +30 +\S+ us \(8\) ", done.stderr, re.MULTILINE)
    assert report["bytes_home"] == 30 * 4096  # each time all of what `careful` wrote
    status = json.loads(control(environment, "status", "--json").stdout)
    assert status["workers"][0]["bytes_pushed"] == report["bytes_home"]
    home = status["home"]
    assert (home["launches"], home["timed"]) == (30, 8)


def test_a_program_that_might_hide_calls_is_shown_as_all_at_home(
    environment: dict[str, str],
) -> None:
    control(environment, "placement", "set", "careful -> 1")
    control(environment, "up")
    done, report = faulty(environment, "blind")
    assert (done.returncode, done.stdout) == (0, "right\n")
    why = "libutil.so.1 was loaded with RTLD_DEEPBIND and may use the driver unseen"
    assert report["all_home"] == [why]
    assert f"all at home: {why}" in done.stderr
    assert re.search(r"^careful +home +30 ", done.stderr, re.MULTILINE)
    kernels = control(environment, "kernels", "careful").stdout
    assert f"the last program kept all at home: {why}" in kernels
    _, report = faulty(environment)
    assert report["all_home"] == []
    assert "rule in line 1\n" in control(environment, "kernels", "careful").stdout


def test_a_fault_on_a_worker_is_told_with_its_kernel_and_log(environment: dict[str, str]) -> None:
    control(environment, "placement", "set", "careful -> 1")
    control(environment, "up")
    done, report = faulty(environment, "fault")
    assert done.returncode == 1
    [loss] = report["losses"]
    assert loss["worker"] == 1
    assert "CUDA_ERROR_ASSERT; this program was running careful" in loss["reason"]
    assert "Assertion `i != worst` failed" in loss["said"]
    assert loss["said"] in Path(loss["log"]).read_text()
    assert f"lost worker 1: {loss['reason']}; the device said: {loss['said']}" in done.stderr
    status = control(environment, "status").stdout
    assert re.search(r"! \S+ process \d+ \(.*faulty.py fault, ended\) lost worker 1: ", status)
    assert faulty(environment)[0].stdout == "right\n"  # on a worker that was started again
