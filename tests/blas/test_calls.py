# SPDX-License-Identifier: Apache-2.0
"""Library calls on simulated GPUs, with a small library of our own in cuBLAS's place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from redirect.machine import Machine, native_folder, running

PROGRAM = str(Path(__file__).with_name("program.py"))
ROUNDS = "60"


@pytest.fixture(scope="module")
def library() -> str:
    """The folder of the test libraries, which the native build makes."""
    folder = native_folder() / "tests"
    if not (folder / "libcublasLt.so.13").exists():
        pytest.skip("the test libraries were not built")
    return str(folder)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with running(native_folder(), "L40S,L40S,A100") as machine:
        yield machine


@pytest.fixture(scope="module")
def expected(machine: Machine, library: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("native") / "out.bin"
    machine.native_run(sys.executable, PROGRAM, library, str(out), ROUNDS)
    values = np.frombuffer(out.read_bytes(), np.float32)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 1000
    return out.read_bytes()


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
@pytest.mark.parametrize("policy", ["off", "same", "any"])
def test_results_are_the_same(
    machine: Machine, library: str, expected: bytes, tmp_path: Path, policy: str, seed: str
) -> None:
    """Wherever calls are made, memory ends up as without Tessera."""
    out, log = tmp_path / "out.bin", tmp_path / "home.log"
    machine.run(
        sys.executable,
        PROGRAM,
        library,
        str(out),
        ROUNDS,
        TESSERA_LIBRARY_CALLS=policy,
        TESSERA_SCATTER=seed,
        FAKE_CUBLAS_LOG=str(log),
    )
    assert out.read_bytes() == expected
    made_at_home = len(log.read_text().splitlines())
    if policy == "off":
        assert made_at_home == int(ROUNDS)
    else:  # the rest was made by workers, whose log is not this one
        assert 0 < made_at_home < int(ROUNDS)


def test_settings_of_the_library_keep_calls_home(
    machine: Machine, library: str, expected: bytes, tmp_path: Path
) -> None:
    """What the worker's library is not set to, it is not asked to do."""
    out, log = tmp_path / "out.bin", tmp_path / "home.log"
    machine.run(
        sys.executable,
        PROGRAM,
        library,
        str(out),
        ROUNDS,
        TESSERA_LIBRARY_CALLS="any",
        TESSERA_SCATTER="1",
        NVIDIA_TF32_OVERRIDE="0",
        FAKE_CUBLAS_LOG=str(log),
    )
    assert out.read_bytes() == expected
    assert len(log.read_text().splitlines()) == int(ROUNDS)


def test_nothing_is_loaded(machine: Machine) -> None:
    """A program without cuBLAS finds none, by name or by library."""
    script = (
        "import ctypes\n"
        "ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "assert not hasattr(ctypes.CDLL(None), 'cublasGemmEx')\n"
        "assert 'cublas' not in open('/proc/self/maps').read()\n"
    )
    done: subprocess.CompletedProcess[str] = machine.run(
        sys.executable, "-c", script, TESSERA_LIBRARY_CALLS="any"
    )
    assert done.returncode == 0
