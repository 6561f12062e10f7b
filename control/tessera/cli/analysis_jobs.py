# SPDX-License-Identifier: Apache-2.0
"""Files as jobs for several processes: each PTX text of a library is one, any other file is one."""

from __future__ import annotations

import functools
import importlib
import mmap
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.cli import render
from tessera.cli.common import fail

LARGEST = 1 << 31  # bytes of one file
WHOLE = -1  # a job that is a file, not one text of it


@dataclass(frozen=True)
class Job:
    """One text of a library by its place, or a whole file. `size`: bytes of text to analyse."""

    file: str
    place: int
    size: int


@dataclass(frozen=True)
class Plan:
    """The jobs of one file, and what can be said about it before any of them is done."""

    result: dict[str, Any]
    jobs: tuple[Job, ...] = ()


def plan_file(path: Path) -> Plan:
    """What there is to do for a file. Never raises: an error is part of the result."""
    name = str(path)
    result: dict[str, Any] = {
        "file": name, "kind": "", "error": "", "reason": "", "kernels": [], "milliseconds": 0.0,
    }  # fmt: skip
    try:
        size = path.stat().st_size
        if size > LARGEST:
            return Plan(result | {"error": f"more than {render.size(LARGEST)}"})
        image = _opened(name)
    except OSError as error:
        return Plan(result | {"error": error.strerror or str(error)})
    from tessera.native import ptx

    if image.kind == ptx.ImageKind.UNKNOWN:
        return Plan(result | {"error": "neither PTX nor cubin nor fatbin nor a library with one"})
    texts = [p for p, e in enumerate(image.entries) if e.kind == ptx.EntryKind.PTX]
    if image.kind != ptx.ImageKind.ELF or not texts:
        return Plan(result, (Job(name, WHOLE, size),))
    result |= {"kind": "library", "reason": "; ".join(image.errors[:3])}
    return Plan(result, tuple(Job(name, p, _size(image.entries[p])) for p in texts))


def _size(entry: Any) -> int:
    try:
        return len(entry.read())
    except ValueError:
        return 0  # said again, with the reason, by whoever analyses it


@functools.lru_cache(maxsize=2)
def _opened(file: str) -> Any:
    """The image in a file, mapped and not read: a library is large, and many jobs open it."""
    from tessera.native import ptx

    path = Path(file)
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return ptx.open_image(b"")
        return ptx.open_image(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def do_job(job: Job, analysis: str, in_full: bool) -> dict[str, Any]:
    """In a process of its own. `in_full`: with the summaries, which are long."""
    from tessera.service.analyzer import analyze_image

    analyze_module = importlib.import_module(analysis).analyze_module
    if job.place == WHOLE:
        data = Path(job.file).read_bytes()
        found = analyze_image(data, str(Path(job.file).absolute()), [], analyze_module)
        extra: dict[str, Any] = {}
    else:
        entry = _opened(job.file).entries[job.place]
        try:
            text = entry.read()
        except ValueError as error:
            return {"kind": "library", "reason": str(error), "kernels": [], "milliseconds": 0.0}
        found = analyze_image(text, "", [], analyze_module) | {"kind": "library"}
        if not found["kernels"] and b".entry" not in text:
            found["reason"] = ""  # device functions alone: nothing is missing
        extra = {"architecture": entry.architecture}
    for kernel in found["kernels"]:
        accesses = kernel["summary"].get("accesses", []) if kernel["status"] == "ready" else []
        kernel.update(extra)
        kernel["accesses"] = len(accesses)
        kernel["unbounded"] = sum(bool(access[1] & 1) for access in accesses)
        if not in_full:
            del kernel["summary"], kernel["blob"]
    return {key: found[key] for key in ("kind", "reason", "kernels", "milliseconds")}


def run_jobs(
    plans: list[Plan],
    processes: int,
    analysis: str,
    in_full: bool,
    step: Callable[[Job, int], None],
) -> list[dict[str, Any]]:
    """The results of all files. `step` is told each job that is done, and its kernels' number."""
    jobs = sorted((j for plan in plans for j in plan.jobs), key=lambda job: -job.size)
    done: dict[Job, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    count = max(1, min(len(jobs), processes))
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        try:
            for job, found in _in_turn(pool, jobs, count, analysis, in_full):
                done[job] = found
                step(job, len(found["kernels"]))
        except BaseException as problem:
            # Whoever interrupts does not wait for what runs. A pool that broke ends at once, and
            # has to have ended before Python does, which would write into its closed pipe.
            pool.shutdown(wait=not isinstance(problem, KeyboardInterrupt), cancel_futures=True)
            raise
    return [_merged(plan, [done[job] for job in plan.jobs]) for plan in plans]


def _in_turn(
    pool: ProcessPoolExecutor, jobs: list[Job], count: int, analysis: str, in_full: bool
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """The largest first, and few at a time: what waits in a queue cannot be interrupted."""
    waiting = iter(jobs)
    running: dict[Future[dict[str, Any]], Job] = {}
    while True:
        while len(running) < 2 * count and (job := next(waiting, None)) is not None:
            running[pool.submit(do_job, job, analysis, in_full)] = job
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            try:
                yield job, future.result()
            except BrokenProcessPool:
                fail(f"a process died over {job.file}, or another file of those still left")


def _merged(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, Any]:
    result = dict(plan.result)
    for part in parts:
        result["kind"] = part["kind"]
        result["reason"] = result["reason"] or part["reason"]
        result["kernels"] = result["kernels"] + part["kernels"]
        result["milliseconds"] += part["milliseconds"]
    return result
