# SPDX-License-Identifier: Apache-2.0
"""run: a program under Tessera, and what became of its kernels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.text import Text

from tessera.cli import kernel_table, render
from tessera.cli.common import CliError, ask, clear_errors, folder
from tessera.cli.lifecycle import DevicesOption, chosen_devices, start

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit statuses, as shells have them
COUNTERS_PATIENCE = 3.0  # seconds for the controller to notice that the program has ended
ROWS = 20


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program with its arguments.")
    ],
    device: DevicesOption = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="If a controller is started: without workers.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report at the end.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report as JSON, too.")
    ] = None,
) -> None:
    """Run a program under Tessera and report at its end.

    Uses the controller that runs, or starts one for as long as the program takes. The
    report goes to stderr; the exit status is the program's.

    \b
    Examples:
      tessera-ctl run -- python train.py --epochs 1
      tessera-ctl run -d 1 -- ./simulate
      tessera-ctl run -q --report moved.json -- python infer.py
      tessera-ctl run --no-workers -- python infer.py
    """
    with clear_errors():
        status, fresh = start(chosen_devices(device, no_workers))
        try:
            for problem in [*status["problems"], *_differences(status, fresh)]:
                print(f"tessera: {render.one_line(problem, 800)}", file=sys.stderr)
            run_id = uuid.uuid4().hex
            begin = time.monotonic()
            code = _run_child(command, run_id)
            taken = time.monotonic() - begin
            if report is not None or not quiet:
                answer = _programs_of(run_id)
                if report is not None:
                    _write_report(report, answer, command, taken, code)
                if not quiet:
                    _report(answer, command, taken, code)
        finally:
            if fresh:
                _stop()
    raise typer.Exit(code)


def _differences(status: dict[str, Any], fresh: bool) -> list[str]:
    """A program on other GPUs than the controller's may find no worker that it can use."""
    from tessera.service import differences

    found = [] if fresh else differences.of_machine(status)
    return [f"the controller was started otherwise: {'; '.join(found)}"] if found else []


def child_environment() -> dict[str, str]:
    """What a program needs to find Tessera."""
    from tessera.native import library_path

    shim = str(library_path("libtessera.so"))
    before = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    preload = [shim, *(part for part in before if not part.endswith("/libtessera.so"))]
    return {"LD_PRELOAD": ":".join(preload), "TESSERA_RUNTIME_DIR": str(folder())}


def _run_child(command: list[str], run_id: str) -> int:
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


def _programs_of(run_id: str) -> dict[str, Any] | None:
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


def _stop() -> None:
    from tessera.service import daemon

    daemon.stop(folder(), force=True)


def _report(answer: dict[str, Any] | None, command: list[str], taken: float, code: int) -> None:
    if answer is None:
        return
    out = render.console(sys.stderr)
    programs = [*answer["ended"], *answer["running"]]
    line = render.command(" ".join(command))
    how = "" if code == 0 else f", exit status {code}"
    out.print(Text(f"tessera: {line}: {render.duration(taken * 1e9)}{how}", style="bold"))
    if not programs:
        out.print("  No process of it used CUDA through Tessera.")
        return
    if len(programs) > 1:
        out.print(f"  {len(programs)} processes used CUDA.")
    if answer["running"]:
        out.print("  Processes of it are still running: these are their counters so far.")
    out.print(Text(_launch_line(programs)))
    out.print(Text(_traffic_line(programs)))
    for remark in kernel_table.remarks(programs):
        out.print(Text(f"  ! {render.one_line(remark, 1000)}", style="yellow"))
    kernels = merged_kernels(programs, answer["kernels"])
    if kernels:
        render.show(out, *kernel_table.launched(kernels, ROWS if out.is_terminal else None))


def _write_report(
    file: Path, answer: dict[str, Any] | None, command: list[str], taken: float, code: int
) -> None:
    """Everything of the printed report, and why launches stayed home (launches by reason)."""
    programs = [] if answer is None else [*answer["ended"], *answer["running"]]
    kernels = [] if answer is None else merged_kernels(programs, answer["kernels"])
    launches = _launches(programs)
    pulled, pushed = _traffic(programs)
    stayed: dict[str, int] = {}
    for kernel in kernels:
        _add_counts(stayed, kernel["stayed"])
    content = {
        "command": command,
        "seconds": taken,
        "exit_status": code,
        "programs": len(programs),
        "launches": {"home": launches.pop("0"), "workers": launches},
        "graph_launches": sum(program["counters"]["graph_launches"] for program in programs),
        "stayed": stayed,
        "bytes_to_workers": pulled,
        "bytes_home": pushed,
        "all_home": [p["counters"]["all_home"] for p in programs if p["counters"]["all_home"]],
        "losses": [loss for program in programs for loss in program["counters"]["losses"]],
        "kernels": kernels,
    }
    try:
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CliError(f"{file}: the report cannot be written: {error.strerror}") from None


def _launches(programs: list[dict[str, Any]]) -> dict[str, int]:
    """Launches by device number; "0", always there, is home."""
    by_device = {"0": 0}
    for program in programs:
        by_device["0"] += program["counters"]["launches_untracked"]
        for kernel in program["counters"]["kernels"]:
            _add_counts(by_device, kernel["launches"])
    return by_device


def _traffic(programs: list[dict[str, Any]]) -> tuple[int, int]:
    """Bytes to workers, bytes back home."""
    workers = [w for program in programs for w in program["counters"]["workers"].values()]
    return sum(w["bytes_pulled"] for w in workers), sum(w["bytes_pushed"] for w in workers)


def _add_counts(total: dict[str, int], more: dict[str, int]) -> None:
    from tessera.service.report import add_counts

    add_counts(total, more)


def _launch_line(programs: list[dict[str, Any]]) -> str:
    words = [
        f"{kernel_table.place_word(int(device))} {render.number(launches)}"
        for device, launches in sorted(_launches(programs).items(), key=lambda item: int(item[0]))
    ]
    graphs = sum(program["counters"]["graph_launches"] for program in programs)
    if graphs:
        words.append(f"graphs at home {render.number(graphs)}")
    return f"  launches  {', '.join(words)}"


def _traffic_line(programs: list[dict[str, Any]]) -> str:
    there, back = _traffic(programs)
    return f"  moved     {render.size(there)} to workers, {render.size(back)} back home"


def merged_kernels(
    programs: list[dict[str, Any]], known: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The kernels of all programs, each with the sums of its counters."""
    sums: dict[int, dict[str, dict[str, int]]] = {}
    for program in programs:
        for counters in program["counters"]["kernels"]:
            total = sums.setdefault(counters["id"], {})
            for name in ("launches", "stayed", "bytes_in", "time_ns", "timed"):
                _add_counts(total.setdefault(name, {}), counters[name])
    unknown = {"name": "?", "device": 0, "reason": "no longer known"}
    return [known.get(str(i), unknown) | {"id": i} | total for i, total in sorted(sums.items())]


def env() -> None:
    """Print what to set for programs of this shell.

    A program that finds no controller says so once, and runs as if Tessera were not there.

    \b
    Example:
      eval "$(tessera-ctl env)"
    """
    import shlex

    with clear_errors():
        variables = child_environment()
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
