# SPDX-License-Identifier: Apache-2.0
"""Real clients of the driver give the same output with the shim as without it.

No controller runs here: the shim says so in one line per process, on stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parent / "programs"
LINE = "tessera-ctl up"


@pytest.fixture
def native() -> Path:
    folder = Path(os.environ.get("TESSERA_NATIVE_DIR", "/nowhere"))
    assert (folder / "libtessera.so").exists(), (
        "the shim is not built, or TESSERA_NATIVE_DIR not set"
    )
    return folder


def environment(native: Path, folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return {
        **kept,
        "LD_LIBRARY_PATH": str(native / "sim"),
        "TESSERA_SIM_DEVICES": "A100,L40S",
        "TESSERA_RUNTIME_DIR": str(folder / "no-controller"),
        **more,
    }


def run(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(("program", "processes"), [("bindings.py", 1), ("with_ctypes.py", 2)])
def test_same_output(native: Path, tmp_path: Path, program: str, processes: int) -> None:
    command = [sys.executable, str(PROGRAMS / program)]
    plain = run(command, environment(native, tmp_path))
    assert plain.returncode == 0, plain.stderr
    shim = str(native / "libtessera.so")
    shimmed = run(command, environment(native, tmp_path, LD_PRELOAD=shim))
    assert shimmed.returncode == 0, shimmed.stderr
    assert shimmed.stdout == plain.stdout
    assert shimmed.stderr.count(LINE) == processes
    assert len(shimmed.stderr.splitlines()) == len(plain.stderr.splitlines()) + processes


def test_setting_alone_leads_to_the_driver(native: Path, tmp_path: Path) -> None:
    """TESSERA_DRIVER in place of a library path: the program's own dlopen follows it."""
    settings = environment(
        native,
        tmp_path,
        LD_LIBRARY_PATH="",
        LD_PRELOAD=str(native / "libtessera.so"),
        TESSERA_DRIVER=str(native / "sim" / "libcuda.so.1"),
    )
    done = run([sys.executable, str(PROGRAMS / "with_ctypes.py")], settings)
    assert done.returncode == 0, done.stderr
    assert "threads: [2, 2, 2, 2]" in done.stdout


def test_disabled_says_nothing(native: Path, tmp_path: Path) -> None:
    settings = environment(
        native, tmp_path, LD_PRELOAD=str(native / "libtessera.so"), TESSERA_DISABLE="1"
    )
    done = run([sys.executable, str(PROGRAMS / "with_ctypes.py")], settings)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", ["/bin/true", sys.executable])
def test_programs_without_cuda(native: Path, program: str) -> None:
    arguments = [program] if program == "/bin/true" else [program, "-c", "import json"]
    done = run(["env", "-i", f"LD_PRELOAD={native / 'libtessera.so'}", *arguments], {})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_system_call_of_its_own(native: Path) -> None:
    """Loading the shim opens one file, and that is all the files there are."""
    strace = Path("/usr/bin/strace")
    if not strace.exists():
        pytest.skip("strace is not installed")

    def calls(*preload: str) -> list[str]:
        done = run([str(strace), "-f", "env", "-i", *preload, "/bin/true"], dict(os.environ))
        assert done.returncode == 0, done.stderr
        executed = done.stderr.split('execve("/bin/true"', 1)[1]
        names = [
            line.split("(")[0].split()[-1] for line in executed.splitlines()[1:] if "(" in line
        ]
        # What loading any library does; the C++ library in it sets aside memory for exceptions.
        loading = {"openat", "read", "pread64", "mmap", "mprotect", "munmap", "close", "fstat"}
        return [name for name in names if name not in loading | {"newfstatat", "brk", "getrandom"}]

    assert calls(f"LD_PRELOAD={native / 'libtessera.so'}") == calls()
