# SPDX-License-Identifier: Apache-2.0
"""analyze: what an analysis finds in files, without a controller or a GPU."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.cli import render
from tessera.cli.analysis_jobs import Job, Plan, plan_file, run_jobs
from tessera.cli.common import FAILURE, fail
from tessera.cli.render import Column

ENDINGS = (".ptx", ".cubin", ".fatbin", ".so")


def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="PTX, cubin, fatbin, library, or folder."),
    ],
    every_kernel: Annotated[
        bool, typer.Option("--kernels", "-k", help="A line for each kernel, not for each file.")
    ] = False,
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", metavar="N", min=0, help="Processes; 0: one a core."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list, complete.")] = False,
    analysis: Annotated[str, typer.Option(hidden=True)] = "tessera.analysis",
) -> None:
    """Analyse files and say what may move. Nothing is stored.

    Of a folder, every .ptx, .cubin, .fatbin and .so below it is taken. All cores work, on a
    library's PTX texts too. BOUNDED says of how many accesses the byte range is known; the
    others may touch all of the allocation that their pointer lies in. The exit status is 1
    when a file cannot be read at all.

    \b
    Examples:
      tessera-ctl analyze kernels.ptx
      tessera-ctl analyze --kernels ~/.triton/cache
      tessera-ctl analyze -j 2 libcublas.so.13 libcublasLt.so.13
      tessera-ctl analyze --json libcublas.so.13
    """
    files = list(find_files(paths))
    if not files:
        fail(f"no {', '.join(ENDINGS)} file there")
    plans = [plan_file(file) for file in files]
    processes = jobs or len(os.sched_getaffinity(0))
    begin = time.perf_counter()
    with _progress(plans) as step:
        results = run_jobs(plans, processes, analysis, as_json, step)
    results.sort(key=lambda result: result["file"])
    elapsed = time.perf_counter() - begin
    if as_json:
        print(json.dumps(results))
    else:
        _print(results, every_kernel, elapsed)
    if any(result["error"] for result in results):
        raise typer.Exit(FAILURE)


def find_files(paths: list[Path]) -> Iterator[Path]:
    """The files to analyse, each once. Ends the command when a path is not there."""
    seen = set()
    for path in paths:
        if not path.exists():
            fail(f"{path}: there is no such file")
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            wanted = not path.is_dir() or any(end in file.suffixes for end in ENDINGS)
            real = file.resolve()
            if wanted and real not in seen:
                seen.add(real)
                yield file


@contextmanager
def _progress(plans: list[Plan]) -> Iterator[Callable[[Job, int], None]]:
    """A bar on stderr, when that is a terminal: by bytes of text, which is what takes time."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    out = render.console(sys.stderr)
    jobs = [job for plan in plans for job in plan.jobs]
    columns = (
        TextColumn("analysing"), BarColumn(), TaskProgressColumn(),
        TextColumn("{task.fields[done]} of {task.fields[all]}, {task.fields[kernels]}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    done = kernels = 0
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task(
            "", total=sum(job.size for job in jobs) or 1, done="0",
            all=render.count(len(jobs), "text"), kernels="0 kernels",
        )  # fmt: skip

        def step(job: Job, found: int) -> None:
            nonlocal done, kernels
            done, kernels = done + 1, kernels + found
            progress.update(
                task, advance=job.size, done=render.number(done),
                kernels=render.count(kernels, "kernel"),
            )  # fmt: skip

        yield step


def _print(results: list[dict[str, Any]], every_kernel: bool, elapsed: float) -> None:
    out = render.console()
    for result in results:
        if result["error"]:
            print(f"{result['file']}: {result['error']}", file=sys.stderr)
    read = [result for result in results if not result["error"]]
    if read:
        made = _kernel_table(read) if every_kernel else _file_table(read)
        render.show(out, made)
    kernels = [kernel for result in read for kernel in result["kernels"]]
    movable = sum(may_move(kernel) for kernel in kernels)
    out.print(
        f"{render.count(len(read), 'file')}, {render.count(len(kernels), 'kernel')}, "
        f"{movable:,} of them may move."
    )
    accesses = sum(kernel["accesses"] for kernel in kernels)
    if accesses:
        bounded = accesses - sum(kernel["unbounded"] for kernel in kernels)
        out.print(
            f"{render.number(accesses)} accesses, {bounded:,} of them bounded, "
            f"the others by their allocation; {render.duration(elapsed * 1e9)}."
        )


def _file_table(results: list[dict[str, Any]]) -> Any:
    columns = [
        Column("FILE", least=16),
        Column("KIND"),
        Column("KERNELS", right=True),
        Column("MAY MOVE", right=True),
        Column("TIME", right=True),
        Column("WHY NOT", least=16, prose=True),
    ]
    rows = []
    for result in results:
        kernels = result["kernels"]
        stay = [why_not(kernel) for kernel in kernels if not may_move(kernel)]
        common = max(set(stay), key=stay.count) if stay else ""
        more = f" ({stay.count(common)} of {len(stay)})" if len(set(stay)) > 1 else ""
        rows.append(
            [
                result["file"],
                result["kind"],
                render.number(len(kernels)),
                render.number(sum(may_move(kernel) for kernel in kernels)),
                render.duration(result["milliseconds"] * 1e6),
                render.one_line(result["reason"] or common + more),
            ]
        )
    return render.table(columns, rows)


def _kernel_table(results: list[dict[str, Any]]) -> Any:
    columns = [
        Column("FILE", least=12, drop=1),
        Column("KERNEL", least=20),
        Column("BOUNDED", right=True, drop=2),
        Column("MAY MOVE"),
        Column("WHY NOT", least=16, prose=True),
    ]
    rows = [
        [
            result["file"],
            render.one_line(kernel["name"]),
            _bounded(kernel),
            "yes" if may_move(kernel) else "no",
            render.one_line(why_not(kernel)),
        ]
        for result in results
        for kernel in result["kernels"]
    ]
    return render.table(columns, rows)


def _bounded(kernel: dict[str, Any]) -> str:
    """Of how many accesses the byte range is known."""
    count = kernel["accesses"]
    return f"{count - kernel['unbounded']} of {count}" if count else ""


def may_move(kernel: dict[str, Any]) -> bool:
    from tessera import protocol

    return kernel["status"] == "ready" and not kernel["properties"] & protocol.HOME_ONLY


def why_not(kernel: dict[str, Any]) -> str:
    from tessera import protocol

    if kernel["status"] != "ready":
        return str(kernel["reason"])
    return ", ".join(protocol.property_words(kernel["properties"] & protocol.HOME_ONLY))
