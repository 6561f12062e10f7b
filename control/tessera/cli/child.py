# SPDX-License-Identifier: Apache-2.0
"""A program that is run under Tessera, and what the controller knows of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tessera.cli.common import CliError, ask, folder

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit statuses, as shells have them
COUNTERS_PATIENCE = 3.0  # seconds for the controller to notice that the program has ended


def child_environment() -> dict[str, str]:
    """What a program needs to find Tessera."""
    from tessera.native import library_path

    shim = str(library_path("libtessera.so"))
    before = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    preload = [shim, *(part for part in before if not part.endswith("/libtessera.so"))]
    return {"LD_PRELOAD": ":".join(preload), "TESSERA_RUNTIME_DIR": str(folder())}


def run_child(command: list[str], run_id: str) -> int:
    """Runs the program under Tessera; its exit status, as shells have it. Raises CliError."""
    from tessera.service.programs import RUN_VARIABLE

    environment = dict(os.environ) | child_environment() | {RUN_VARIABLE: run_id}
    with _signals() as signals:
        try:
            child = subprocess.Popen(command, env=environment)
        except FileNotFoundError:
            raise CliError(f"{command[0]}: there is no such program", NOT_FOUND) from None
        except OSError as error:
            raise CliError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
        signals.go_to(child)
        code = child.wait()
    return 128 - code if code < 0 else code


class _Signals:
    """SIGTERM and SIGHUP go to the program, also those that came before there was one.

    Ctrl-C reaches the program without our help, and is its to answer.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT:
            return
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)

    def go_to(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._early:
            child.send_signal(number)


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Handlers, not SIG_IGN: the program would inherit that."""
    receiver = _Signals()
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, receiver) for number in numbers}
    try:
        yield receiver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def programs_of(run_id: str) -> dict[str, Any] | None:
    """What the controller knows of the run, once its programs have ended."""
    from tessera.service.client import ClientError, NotRunningError

    deadline = time.monotonic() + COUNTERS_PATIENCE
    try:
        while True:
            answer = ask("run", run=run_id)
            if not answer["running"] or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)
    except (ClientError, NotRunningError) as error:
        print(f"tessera: no report: {error}", file=sys.stderr)
        return None


def stop() -> None:
    """Ends a controller that was started for the program."""
    from tessera.service import daemon

    daemon.stop(folder(), force=True)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Writes a report. Raises CliError."""
    try:
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CliError(f"{file}: the report cannot be written: {error.strerror}") from None
