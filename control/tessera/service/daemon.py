# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping the controller from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.cluster.environment import python_environment
from tessera.cluster.launcher import leftovers_in_use, stop_leftovers
from tessera.cluster.processes import ProcessIdentity
from tessera.service import client, differences, runtime

START_TIMEOUT = 120.0  # seconds: imports, the driver's first answer, a check of the store
STOP_TIMEOUT = 15.0
LOG_LIMIT = 4 << 20  # bytes of an old log that a new controller goes on with


class DaemonError(Exception):
    """The controller could not be started or stopped; the message says what to do."""


class RunningOtherwiseError(DaemonError):
    """A controller runs, and is not the one that was asked for."""

    def __init__(self, pid: int, differences: Sequence[str]) -> None:
        listed = "".join(f"\n  {difference}" for difference in differences)
        super().__init__(
            f"a controller runs already (process {pid}), and not as asked:{listed}\n"
            "tessera-ctl down ends it, then tessera-ctl up starts one as asked"
        )


class InUseError(DaemonError):
    """The controller is not stopped, because programs use it: [{"pid", "program"}]."""

    def __init__(self, error: client.ClientError) -> None:
        self.programs: list[dict[str, Any]] = error.answer["programs"]
        super().__init__(str(error))


@dataclass(frozen=True)
class Started:
    """A controller that serves."""

    pid: int
    fresh: bool  # False: it was running already
    status: dict[str, Any] | None = None  # of one that was running already
    process: subprocess.Popen[bytes] | None = None  # ours to reap when we live on


def start(folder: Path, devices: tuple[int, ...] | None, options: Sequence[str] = ()) -> Started:
    """Starts a controller in the background and returns once it accepts programs.

    One that runs already is as good, unless devices were asked for and it has others. Raises
    DaemonError, RuntimeFolderError, ClientError.
    """
    runtime.prepare(folder)
    running = runtime.running_pid(folder)
    if running is not None:
        return _join(folder, devices)
    _shorten_log(runtime.log_path(folder))
    process, answer = _spawn(folder, devices, options)
    if answer.get("ok"):
        return Started(int(answer["pid"]), True, process=process)
    process.wait()
    if "running" in answer:  # somebody else was faster
        return _join(folder, devices)
    raise DaemonError(str(answer["error"]))


def command_line(devices: tuple[int, ...] | None, options: Sequence[str] = ()) -> list[str]:
    """What the controller's process is started with."""
    chosen = "all" if devices is None else ",".join(str(ordinal) for ordinal in devices)
    return [sys.executable, "-P", "-m", "tessera.service", "--devices", chosen, *options]


def _spawn(
    folder: Path, devices: tuple[int, ...] | None, options: Sequence[str]
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    read_end, write_end = os.pipe()
    try:
        with runtime.log_path(folder).open("ab") as output:
            process = subprocess.Popen(
                [*command_line(devices, options), "--ready-fd", str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=python_environment() | {"TESSERA_RUNTIME_DIR": str(folder)},
                pass_fds=[write_end],
                start_new_session=True,
            )
    except OSError as error:
        os.close(read_end)
        raise DaemonError(f"the controller cannot be started: {error.strerror}") from None
    finally:
        os.close(write_end)
    try:
        return process, _read_answer(read_end, process, folder)
    finally:
        os.close(read_end)


def _read_answer(fd: int, process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    deadline, text = time.monotonic() + START_TIMEOUT, b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            process.kill()
            raise DaemonError(f"the controller did not start within {START_TIMEOUT:g} s")
        part = os.read(fd, 65536)
        if not part:
            process.wait()
            return {"ok": False, "error": _last_words(process, folder)}
        text += part
    answer: dict[str, Any] = json.loads(text)
    return answer


def _last_words(process: subprocess.Popen[bytes], folder: Path) -> str:
    path = runtime.log_path(folder)
    with contextlib.suppress(OSError):
        lines = path.read_text("utf-8", "replace").strip().splitlines()
        if lines:
            return f"the controller ended at once: {lines[-1]} (see {path})"
    return f"the controller ended at once with {process.returncode}; see {path}"


def _join(folder: Path, devices: tuple[int, ...] | None) -> Started:
    status = _wait_for_status(folder)
    pid = int(status["controller"]["pid"])
    workers = differences.of_workers(status, devices) if devices is not None else []
    if workers:
        raise RunningOtherwiseError(pid, workers)
    return Started(pid, False, status)


def _wait_for_status(folder: Path) -> dict[str, Any]:
    """The status of a controller that may still be starting."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            status: dict[str, Any] = client.request(folder, "status")["status"]
            return status
        except client.NotRunningError:
            pid = runtime.running_pid(folder)
            if pid is None or time.monotonic() > deadline:
                raise DaemonError(
                    f"a controller was starting in {folder}, and did not serve; "
                    f"see {runtime.log_path(folder)}"
                ) from None
            time.sleep(0.05)


def _shorten_log(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))


def stop(folder: Path, *, force: bool = False) -> int | None:
    """Stops the controller and its workers; returns its process, None when none ran.

    Without `force` only when no program uses it, or the workers that a killed one has left.
    Raises ClientError, DaemonError, InUseError.
    """
    pid = runtime.running_pid(folder)
    if pid is None:
        used = {} if force else leftovers_in_use(folder)
        if used:
            named = ", ".join(f"worker {index} (process {pid})" for index, pid in used.items())
            raise DaemonError(
                f"no controller runs in {folder}, but programs still use {named} of one that was "
                "killed: tessera-ctl up takes over, tessera-ctl down --force ends them"
            )
        stop_leftovers(folder)
        return None
    identity = ProcessIdentity.of(pid)
    try:
        client.request(folder, "shutdown", force=force)
    except client.NotRunningError:
        identity.send(signal.SIGTERM)  # it is starting, or stopping
    except client.ClientError as error:
        if not force and "programs" in error.answer:
            raise InUseError(error) from None
        if not force:
            raise
        identity.send(signal.SIGTERM)
    if client.wait_until_gone(folder, STOP_TIMEOUT):
        return pid
    if not force:
        raise DaemonError(f"process {pid} does not end; tessera-ctl down --force ends it by force")
    identity.send(signal.SIGKILL)
    if not client.wait_until_gone(folder, STOP_TIMEOUT):
        raise DaemonError(f"process {pid} cannot be ended")
    stop_leftovers(folder)
    return pid
