# SPDX-License-Identifier: Apache-2.0
"""Which processes use CUDA, and which of them with Tessera in between."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_OURS = ("tessera-worker", "tessera.cluster.probe")


@dataclass(frozen=True)
class CudaProcess:
    """A process of this user that has loaded a CUDA driver."""

    pid: int
    command: str
    interposed: bool


def cuda_processes() -> list[CudaProcess]:
    """What can be seen: processes of other users, and other PID spaces, cannot."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            # Processes end while one looks at them.
            with contextlib.suppress(OSError):
                process = _look_at(folder)
                if process is not None:
                    found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _look_at(folder: Path) -> CudaProcess | None:
    if folder.stat().st_uid != os.getuid():
        return None
    maps = (folder / "maps").read_bytes()
    if b"/libcuda.so" not in maps:
        return None
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    if any(name in command for name in _OURS):
        return None
    return CudaProcess(int(folder.name), command.strip(), b"/libtessera.so" in maps)
