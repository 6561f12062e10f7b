# SPDX-License-Identifier: Apache-2.0
"""The scripts that build and start things."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder, with more environment."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_prerequisites_name_the_package_of_what_is_missing() -> None:
    """Neither Python nor a compiler: both are named, with what to install."""
    result = run(TOOLS / "check-prerequisites", PYTHON="no-such-python", CXX="no-such-compiler")
    assert result.returncode == 1
    assert re.search(r"sudo apt-get install .*python3.* g\+\+", result.stderr)
    names = run(
        TOOLS / "check-prerequisites", "--packages", PYTHON="no-such-python", CXX="no-such-compiler"
    )
    assert {"python3", "g++"} <= set(names.stdout.split())


@pytest.mark.parametrize(
    ("header", "package"),
    [("zstd.h", "libzstd-dev"), ("lz4.h", "liblz4-dev"), ("xxhash.h", "libxxhash-dev")],
)
def test_prerequisites_notice_a_missing_library(header: str, package: str, tmp_path: Path) -> None:
    """A compiler that finds everything but one header."""
    compiler = tmp_path / "compiler"
    without_it = f'for f; do grep -qs "<{header}>" "$f" && exit 1; done'
    compiler.write_text(f"#!/bin/sh\n{without_it}\nexit 0\n")
    compiler.chmod(0o755)
    result = run(
        TOOLS / "check-prerequisites", "--packages", CXX=str(compiler), PYTHON=sys.executable
    )
    assert package in result.stdout.split()


def test_requirements_come_from_pyproject() -> None:
    """Groups are the build's, the run's and the extras; another name is an error."""
    listed = run(sys.executable, TOOLS / "requirements.py", "build", "run", "test").stdout
    assert "scikit-build-core" in listed
    assert "typer" in listed
    assert "pytest" in listed
    assert run(sys.executable, TOOLS / "requirements.py", "nonsense").returncode != 0


def test_ptxas_copy_copies_and_names_a_version(tmp_path: Path) -> None:
    """What Triton asks of a ptxas."""
    source, target = tmp_path / "kernel.ptx", tmp_path / "kernel.o"
    source.write_text(".version 9.0\n")
    copied = run(TOOLS / "ptxas-copy", "-lineinfo", "-v", "--gpu-name=sm_80", source, "-o", target)
    assert copied.returncode == 0
    assert target.read_text() == source.read_text()
    assert re.search(r"release \d+\.\d+", run(TOOLS / "ptxas-copy", "--version").stdout)
    assert run(TOOLS / "ptxas-copy", source).returncode == 2


def test_simulated_environment_keeps_what_was_there(tmp_path: Path) -> None:
    """The folder of the simulated driver comes first, other folders stay."""
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "libcuda.so.1").touch()
    result = run(
        sys.executable,
        TOOLS / "with-simulated-gpus",
        "--devices",
        "L4,T4",
        "--",
        "env",
        TESSERA_NATIVE_DIR=str(tmp_path),
        LD_LIBRARY_PATH="/elsewhere",
    )
    lines = result.stdout.splitlines()
    assert f"LD_LIBRARY_PATH={tmp_path}/sim:/elsewhere" in lines
    assert "TESSERA_SIM_DEVICES=L4,T4" in lines


def test_simulated_environment_says_what_is_missing(tmp_path: Path) -> None:
    """No driver built: say so, and where it was looked for."""
    result = run(
        sys.executable, TOOLS / "with-simulated-gpus", "true", TESSERA_NATIVE_DIR=str(tmp_path)
    )
    assert result.returncode == 1
    assert "make build" in result.stderr
    assert str(tmp_path) in result.stderr
