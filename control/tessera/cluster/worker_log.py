# SPDX-License-Identifier: Apache-2.0
"""A worker's log: one file for all workers of one index, each from its own mark on.

What a worker wrote before it failed is still there when the next one has been started.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LIMIT = 4 << 20  # bytes with which a new worker goes on; a longer log is moved to *.log.1
_READ = 64 << 10  # bytes that are looked at, from the end or from a place
_MARK = b"--- worker "
_OURS = "tessera-worker"  # starts the lines that the worker itself writes
_LINES, _LENGTH = 4, 600  # of what a device said, for messages


def path_of(folder: Path, index: int) -> Path:
    return folder / f"worker-{index}.log"


def begin(path: Path, index: int, device: str) -> IO[bytes]:
    """The log, opened for a new worker. Raises OSError, but not because the disk is full."""
    if path.exists() and path.stat().st_size > LIMIT:
        path.replace(path.with_suffix(".log.1"))
    log = path.open("ab", buffering=0)
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError):
        log.write(_MARK + f"{index} starts on {device}, {when}\n".encode())
    return log


@dataclass(frozen=True)
class Part:
    """What one worker wrote: from its mark up to the next one's."""

    path: Path
    start: int  # byte offset

    @classmethod
    def last(cls, path: Path) -> Part:
        """The part of the worker that was started last; of a log without marks, its end."""
        try:
            with path.open("rb") as log:
                size = log.seek(0, 2)
                begin = max(0, size - _READ)
                log.seek(begin)
                text = log.read(_READ)
        except OSError:
            return cls(path, 0)
        return cls(path, begin + text.rfind(b"\n" + _MARK) + 1)

    def lines(self) -> list[str]:
        """Its lines without the mark; none when the log has gone."""
        try:
            with self.path.open("rb") as log:
                log.seek(self.start)
                text = log.read(_READ)
        except OSError:
            return []
        own = text[len(_MARK) :] if text.startswith(_MARK) else b"\n" + text
        lines = own.split(b"\n" + _MARK)[0].decode("utf-8", "replace").splitlines()[1:]
        return [line.strip() for line in lines if line.strip()]

    def device_said(self) -> str:
        """What driver and kernels printed, such as a failed assertion; empty when nothing."""
        lines = [line for line in self.lines() if not line.startswith(_OURS)]
        return " / ".join(dict.fromkeys(lines[-_LINES:]))[-_LENGTH:]
