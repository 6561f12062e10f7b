# SPDX-License-Identifier: Apache-2.0
"""Programs run on simulated GPUs, with and without Tessera."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120  # seconds, for any one program
DEVICES = "A100,L40S,L40S"


def native_folder() -> Path:
    """Where the native artefacts are."""
    folder = os.environ.get("TESSERA_NATIVE_DIR")
    assert folder, "the native artefacts are not built: see CONTRIBUTING.md"
    return Path(folder)


@dataclass
class Machine:
    """Simulated GPUs, and where a controller for them lives."""

    native: Path
    folder: Path
    devices: str = DEVICES

    def environment(self, **more: str) -> dict[str, str]:
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        environment |= {
            "LD_LIBRARY_PATH": str(self.native / "sim"),
            "TESSERA_SIM_DEVICES": self.devices,
            "TESSERA_RUNTIME_DIR": str(self.folder / "run"),
            "TESSERA_STORE": str(self.folder / "store.db"),
            "TESSERA_NATIVE_DIR": str(self.native),
        }
        return environment | more

    def control(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tessera.cli.main", *arguments]
        done = subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def native_run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs the command without Tessera."""
        return self._run(command, self.environment(**more))

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs the command under Tessera."""
        preload = {"LD_PRELOAD": str(self.native / "libtessera.so")}
        return self._run(command, self.environment(**preload, **more))

    def _run(
        self, command: tuple[str, ...], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done


@contextmanager
def running(native: Path, devices: str = DEVICES) -> Iterator[Machine]:
    """A machine with a controller, and a worker on each device but the first."""
    # Not tmp_path: a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        machine = Machine(native, Path(folder), devices)
        machine.control("up")
        try:
            yield machine
        finally:
            machine.control("down")
