# SPDX-License-Identifier: Apache-2.0
"""Trials on a real GPU: frameworks pass, a wrong summary is caught, and no fault of a trial
reaches the program or its worker. One GPU is enough: the worker is on the program's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redirect.machine import Machine, native_folder
from tessera.analysis import Mode
from verify import trials
from verify.trials import LARGE, SMALL, command, expected, shown, tamper, verify, without

pytestmark = pytest.mark.gpu

PROGRAMS = Path(__file__).with_name("programs")
MODULES = {"llama": "transformers", "cupy_arrays": "cupy", "resnet": "torchvision"}
# Programs of which kernels are known from PTX: some of their launch classes have to pass.
KNOWN = {"nvrtc_ptx", "triton_torch", "compiled"}


class Computer(Machine):
    """The machine that the tests run on, with its own driver."""

    def environment(self, **more: str) -> dict[str, str]:
        environment = super().environment(**more)
        environment.pop("TESSERA_SIM_DEVICES")
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        else:
            environment.pop("LD_LIBRARY_PATH")
        return environment

    def control(self, *arguments: str) -> str:
        """`up` is with a worker on the first GPU."""
        device = ("--device", "0") if arguments == ("up",) else ()
        return super().control(*arguments, *device)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(trials, "TIMEOUT", 580)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        machine = Computer(native_folder(), Path(folder))
        machine.control("up")
        try:
            yield machine
        finally:
            machine.control("down")


@pytest.mark.parametrize("name", ["nvrtc_ptx", "triton_torch", "compiled", "llama", "cupy_arrays"])
def test_frameworks_pass(machine: Machine, tmp_path: Path, name: str) -> None:
    pytest.importorskip(MODULES.get(name, "torch"))
    program = [sys.executable, str(PROGRAMS / f"{name}.py")]
    subprocess.run([*program, str(tmp_path / "alone")], check=True, timeout=280)
    found = verify(machine, tmp_path, [*program, str(tmp_path / "tried")])
    if out := os.environ.get("OUT"):
        Path(out, f"trials-{name}.json").write_text(json.dumps(found.trials, indent=1))
        Path(out, f"trials-{name}.txt").write_text(found.stderr)
    wrong = [trial for trial in found.trials if trial["verdict"] == "wrong"]
    assert wrong == [], found.stderr
    assert found.status == 0, found.stderr
    assert (tmp_path / "tried").read_text() == (tmp_path / "alone").read_text()
    if name in KNOWN:
        assert any(trial["verdict"] == "passed" for trial in found.trials), found.stderr


@pytest.mark.parametrize(
    ("kernel", "words", "why"),
    [
        ("scale", SMALL, "result is another one"),
        ("scale", LARGE, "it fails: CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("add", SMALL, "it writes what it does not claim to write"),
    ],
)
def test_a_wrong_summary_is_caught(
    machine: Machine, tmp_path: Path, kernel: str, words: int, why: str
) -> None:
    pytest.importorskip("cuda.bindings")
    kernels = (kernel, "odd", kernel)
    wanted = expected(machine, tmp_path, words, *kernels)
    missing = (
        without(lambda access: access.parameter_offset == 8)
        if kernel == "scale"
        else without(lambda access: bool(access.mode & Mode.WRITE))
    )
    tamper(machine, tmp_path, kernel, missing)
    found = verify(machine, tmp_path, command(tmp_path / "out", words, *kernels))
    assert found.status == 1, found.stderr
    assert (tmp_path / "out").read_bytes() == wanted
    assert found.verdicts(kernel) == ["wrong"]
    assert why in found.of(kernel)[0]["reason"]
    assert found.verdicts("odd") == ["passed"], found.trials
    assert shown(machine, kernel)["grade_word"] == "unknown"
    [worker] = json.loads(machine.control("status", "--json"))["workers"]
    assert (worker["state"], worker["restarts"]) == ("up", 0)


def test_an_unknown_kernel_that_passed_moves_when_that_is_trusted(
    machine: Machine, tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    wanted = expected(machine, tmp_path, SMALL, "through*8")
    found = verify(machine, tmp_path, command(tmp_path / "out", SMALL, "through*4"))
    assert found.verdicts("through") == ["passed"], found.trials
    for trust, moves in (("proven", False), ("verified", True)):
        out = tmp_path / trust
        machine.run(*command(out, SMALL, "through*8"), TESSERA_SCATTER="3", TESSERA_TRUST=trust)
        assert out.read_bytes() == wanted
        [worker] = json.loads(machine.control("status", "--json"))["workers"]
        assert (worker["launches"] > 0) == moves
