# SPDX-License-Identifier: Apache-2.0
"""run: a program under Tessera, and what became of its kernels."""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tessera.cli import kernel_table, render
from tessera.cli.child import child_environment, programs_of, run_child, stop, write_json
from tessera.cli.common import clear_errors
from tessera.cli.lifecycle import DevicesOption, chosen_devices, start
from tessera.service.counts import add_counts, by_kernel

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
            code = run_child(command, run_id)
            taken = time.monotonic() - begin
            if report is not None or not quiet:
                answer = programs_of(run_id)
                if report is not None:
                    _write_report(report, answer, command, taken, code)
                if not quiet:
                    _report(answer, command, taken, code)
        finally:
            if fresh:
                stop()
    raise typer.Exit(code)


def _differences(status: dict[str, Any], fresh: bool) -> list[str]:
    """A program on other GPUs than the controller's may find no worker that it can use."""
    from tessera.service import differences

    found = [] if fresh else differences.of_machine(status)
    return [f"the controller was started otherwise: {'; '.join(found)}"] if found else []


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
        add_counts(stayed, kernel["stayed"])
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
    write_json(file, content)


def _launches(programs: list[dict[str, Any]]) -> dict[str, int]:
    """Launches by device number; "0", always there, is home."""
    by_device = {"0": 0}
    for program in programs:
        by_device["0"] += program["counters"]["launches_untracked"]
        for kernel in program["counters"]["kernels"]:
            add_counts(by_device, kernel["launches"])
    return by_device


def _traffic(programs: list[dict[str, Any]]) -> tuple[int, int]:
    """Bytes to workers, bytes back home."""
    workers = [w for program in programs for w in program["counters"]["workers"].values()]
    return sum(w["bytes_pulled"] for w in workers), sum(w["bytes_pushed"] for w in workers)


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
    from tessera.service.report import with_classes

    unknown = {"name": "?", "device": 0, "reason": "no longer known"}
    sums = by_kernel(program["counters"] for program in programs)
    return [
        with_classes(known.get(str(i), unknown), total.pop("classes", {})) | {"id": i} | total
        for i, total in sums.items()
    ]


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
