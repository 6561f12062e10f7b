# SPDX-License-Identifier: Apache-2.0
"""Programs that the shim does not reach, starts all at once, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redirect.machine import Machine

PROGRAMS = Path(__file__).resolve().parent / "programs"


def programs(machine: Machine) -> list[int]:
    return [
        program["pid"] for program in json.loads(machine.control("status", "--json"))["programs"]
    ]


def test_without_the_environment_it_is_plain(machine: Machine) -> None:
    """Kind 1.15: `env -i` leaves the shim out: right results, and status lists nothing."""
    environment = {"LD_LIBRARY_PATH": str(machine.native / "sim"), "PATH": os.environ["PATH"]}
    command = [sys.executable, str(PROGRAMS / "processes.py"), "worker"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.read() == "worked\n"
        assert program.pid not in programs(machine)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program setuid")
def test_setuid_program(native: Path, tmp_path: Path) -> None:
    """The loader leaves the shim out of a setuid program, in silence, and it runs."""
    program = tmp_path / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", str(program), "-u"],
        env={"LD_PRELOAD": str(native / "libtessera.so"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.fixture
def musl(tmp_path: Path) -> Callable[..., Path]:
    """Compiles a program with musl's C library, with these options."""
    compiler = shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip("musl-gcc is not installed")
    source = tmp_path / "m.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("musl"); return 0; }\n')

    def compile_with(*options: str) -> Path:
        subprocess.run([compiler, *options, str(source), "-o", str(tmp_path / "m")], check=True)
        return tmp_path / "m"

    return compile_with


def preloaded(program: Path | str, *arguments: str, preload: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(program), *arguments],
        env={"LD_PRELOAD": preload},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_static_musl_program(native: Path, musl: Callable[..., Path]) -> None:
    library = str(native / "libtessera.so")
    assert preloaded(musl("-static"), preload=library) == (0, "musl\n", "")


def test_dynamic_musl_program(native: Path, musl: Callable[..., Path]) -> None:
    """Its loader takes a library for glibc as fatal, and names it."""
    status, out, errors = preloaded(musl(), preload=str(native / "libtessera.so"))
    assert (status, out) == (127, "")
    assert "libtessera.so" in errors


def test_path_that_only_glibc_expands(
    native: Path, musl: Callable[..., Path], tmp_path: Path
) -> None:
    """The way out of docs/cases.md: musl looks for a folder named `$PLATFORM`, and finds none."""
    program = musl()
    for name in ("x86_64", "haswell", "xeon_phi"):  # what glibc puts there, older ones by processor
        (tmp_path / name).symlink_to(native)
    preload = f"{tmp_path}/$PLATFORM/libtessera.so"
    assert preloaded(program, preload=preload) == (0, "musl\n", "")
    status, out, errors = preloaded("/bin/cat", "/proc/self/maps", preload=preload)
    assert (status, errors) == (0, "")
    assert "libtessera.so" in out


def test_thirty_two_starts_at_once(machine: Machine) -> None:
    """Kind 9.5: no global lock at the start: thirty-two programs, each with its own memory."""
    command = (sys.executable, str(PROGRAMS / "processes.py"), "worker")
    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: machine.run(*command), range(32)))
    assert [run.stdout for run in done] == ["worked\n"] * 32
    assert [run.stderr for run in done] == [""] * 32
    assert time.monotonic() - begin < 60
    assert programs(machine) == []


def test_nothing_of_programs_is_left(machine: Machine) -> None:
    """Kinds 6.8, 9.6: what ended programs made is gone: IPC sockets, and workers' memory."""
    machine.run(sys.executable, str(PROGRAMS / "memory.py"), "ipc")
    folder = machine.folder / "run"
    assert [path.name for path in folder.iterdir() if path.name.startswith("ipc-")] == []


def test_no_controller_folder(native: Path, tmp_path: Path) -> None:
    """A runtime folder that cannot be made is no failure: one line, and plain results."""
    (tmp_path / "file").write_text("")
    machine = Machine(native, tmp_path / "file")
    done = machine.run(sys.executable, str(PROGRAMS / "processes.py"), "worker")
    assert done.stdout == "worked\n"
    assert len(re.findall("tessera", done.stderr)) >= 1
    assert len(done.stderr.splitlines()) == 1
