# SPDX-License-Identifier: Apache-2.0
"""analyze: what an analysis finds in files, without a controller or a GPU."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.cli import render
from tessera.cli.common import FAILURE, fail
from tessera.cli.render import Column

ENDINGS = (".ptx", ".cubin", ".fatbin", ".so")
LARGEST = 1 << 31  # bytes of one file


def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="PTX, cubin, fatbin, library, or folder."),
    ],
    every_kernel: Annotated[
        bool, typer.Option("--kernels", "-k", help="A line for each kernel, not for each file.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one for each core.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list, complete.")] = False,
    analysis: Annotated[str, typer.Option(hidden=True)] = "tessera.analysis",
) -> None:
    """Analyse files and say what may move. Nothing is stored.

    Of a folder, every .ptx, .cubin, .fatbin and .so below it is taken. The exit status
    is 1 when a file cannot be read at all.

    \b
    Examples:
      tessera-ctl analyze kernels.ptx
      tessera-ctl analyze --kernels ~/.triton/cache
      tessera-ctl analyze --json libcublas.so.13
    """
    files = list(find_files(paths))
    if not files:
        fail(f"no {', '.join(ENDINGS)} file there")
    results = sorted(_analyze_all(files, jobs, analysis), key=lambda result: result["file"])
    if as_json:
        print(json.dumps(results))
    else:
        _print(results, every_kernel)
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


def analyze_file(file: str, analysis: str) -> dict[str, Any]:
    """One file, in a process of its own: what it holds and what its kernels do."""
    result: dict[str, Any] = {"file": file, "kind": "", "error": "", "reason": "", "kernels": []}
    try:
        path = Path(file)
        if path.stat().st_size > LARGEST:
            return result | {"error": f"more than {render.size(LARGEST)}"}
        data = path.read_bytes()
    except OSError as error:
        return result | {"error": error.strerror or str(error)}
    analyze_module = importlib.import_module(analysis).analyze_module
    return result | _analyze_data(data, str(path.absolute()), analyze_module)


def _analyze_data(data: bytes, path: str, analyze_module: Any) -> dict[str, Any]:
    from tessera.native import ptx
    from tessera.service.analyzer import analyze_image

    image = ptx.open_image(data)
    texts = [entry for entry in image.entries if entry.kind == ptx.EntryKind.PTX]
    if image.kind == ptx.ImageKind.UNKNOWN:
        return {"error": "neither PTX nor cubin nor fatbin nor a library with one"}
    if image.kind != ptx.ImageKind.ELF or not texts:
        found = analyze_image(data, path, [], analyze_module)
        return {key: found[key] for key in ("kind", "reason", "kernels", "milliseconds")}
    merged: dict[str, Any] = {"kind": "library", "kernels": [], "milliseconds": 0.0}
    merged["reason"] = "; ".join(image.errors[:3])
    for entry in texts:  # a library has many images, and each of them kernels of its own
        try:
            text = entry.read()
        except ValueError as error:
            merged["reason"] = str(error)
            continue
        found = analyze_image(text, "", [], analyze_module)
        merged["milliseconds"] += found["milliseconds"]
        merged["kernels"] += [k | {"architecture": entry.architecture} for k in found["kernels"]]
    return merged


def _analyze_all(files: list[Path], jobs: int, analysis: str) -> Iterator[dict[str, Any]]:
    count = min(len(files), jobs or len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")
    with _progress(len(files)) as step, ProcessPoolExecutor(count, mp_context=context) as pool:
        futures = {pool.submit(analyze_file, str(file), analysis): file for file in files}
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool:
                fail(f"a process died over {futures[future]}, or another file of those still left")
            step()


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on stderr, when that is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    out = render.console(sys.stderr)
    columns = (TextColumn("analysing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


def _print(results: list[dict[str, Any]], every_kernel: bool) -> None:
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
        Column("MAY MOVE"),
        Column("WHY NOT", least=16, prose=True),
    ]
    rows = [
        [
            result["file"],
            render.one_line(kernel["name"]),
            "yes" if may_move(kernel) else "no",
            render.one_line(why_not(kernel)),
        ]
        for result in results
        for kernel in result["kernels"]
    ]
    return render.table(columns, rows)


def may_move(kernel: dict[str, Any]) -> bool:
    from tessera import protocol

    return kernel["status"] == "ready" and not kernel["properties"] & protocol.HOME_ONLY


def why_not(kernel: dict[str, Any]) -> str:
    from tessera import protocol

    if kernel["status"] != "ready":
        return str(kernel["reason"])
    return ", ".join(protocol.property_words(kernel["properties"] & protocol.HOME_ONLY))
