# SPDX-License-Identifier: Apache-2.0
"""Processes that are not our children: told apart from later ones with the same id."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process id with the time at which it started: no later process has both."""

    pid: int
    start_time: int  # clock ticks since boot; 0: not known

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        return cls(pid, start_time(pid))

    def alive(self) -> bool:
        """False once the process has ended, even if its parent has not noticed."""
        return self.start_time != 0 and start_time(self.pid) == self.start_time

    def send(self, signal_number: int) -> bool:
        """Sends a signal to this very process. False when it is gone or not ours."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, signal_number)
            return True
        except OSError:
            return False
        finally:
            os.close(fd)

    def end(self, patience: float) -> bool:
        """SIGTERM, then SIGKILL after `patience` seconds. True when the process is gone."""
        self.send(signal.SIGTERM)
        if self.wait(patience):
            return True
        self.send(signal.SIGKILL)
        return self.wait(2.0)

    def wait(self, timeout: float) -> bool:
        """Whether the process is gone within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def start_time(pid: int) -> int:
    """When a process started, clock ticks since boot; 0 when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])


def variable_of(pid: int, name: str) -> str:
    """A variable in the environment with which a process was started; empty when not to be had."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            key, _, value = entry.partition(b"=")
            if key == name.encode():
                return value.decode("utf-8", "replace")
    return ""
