# SPDX-License-Identifier: Apache-2.0
"""Run models of real frameworks under Tessera on one GPU, and say what may move.

    python tools/frameworks.py [--out docs/frameworks.md] [--seeds 20] [--jobs 4] [PROGRAM ...]

The programs are those of tests/gpu/programs. Each runs alone (twice: a program that differs from
itself is said to), at home under Tessera, with all that may move on a worker on the same GPU, and
with each launch thrown on home or the worker at random, once for every seed. Outputs are compared
to the bit. Shares are of the launches and of the GPU time (mean of each kernel's first launches at
home, times its launches) whose kernels ran on the worker when all were placed there.

Needs an NVIDIA GPU, and of PyTorch, transformers, torchvision, JAX and CuPy what the programs
import. Start an MPS daemon before (`nvidia-cuda-mps-control -d`): without it the two processes take
turns on the GPU, which is slow but right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "control"))
PROGRAMS = ROOT / "tests/gpu/programs"
CONTROL = [sys.executable, "-m", "tessera.cli.main"]
TIMEOUT = 300  # seconds for one run of one program
MOST_REASONS = 6


@dataclass
class Run:
    """One run of one program."""

    digest: str  # of its output; empty when it failed
    seconds: float
    report: dict[str, Any]  # of `tessera-ctl run --report`; empty for runs without Tessera
    error: str = ""


@dataclass
class Runs:
    """All runs of one program."""

    alone: list[Run] = field(default_factory=list)
    home: list[Run] = field(default_factory=list)
    worker: list[Run] = field(default_factory=list)
    scattered: list[Run] = field(default_factory=list)


class Bench:
    """A controller with one worker on the first GPU, and programs under it."""

    def __init__(self, folder: Path, store: Path, jobs: int) -> None:
        self.folder = folder
        paths = {"TESSERA_RUNTIME_DIR": str(folder), "TESSERA_STORE": str(store)}
        self.environment = os.environ | paths
        self.jobs = ThreadPoolExecutor(jobs)
        self.number = 0

    def control(self, *words: str) -> str:
        done = subprocess.run(
            [*CONTROL, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"tessera-ctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def all(self, runs: dict[str, Runs], kind: str, under: bool, extra: dict[str, str]) -> None:
        """Runs every program once more, several at a time; those that fail alone no further."""
        names = [name for name, own in runs.items() if all(run.digest for run in own.alone)]
        done = self.jobs.map(lambda name: self.once(name, under, extra), names)
        for name, run in zip(names, done, strict=True):
            getattr(runs[name], kind).append(run)
            verdict = "failed: " + run.error if run.error else run.digest[:12]
            print(f"{kind:9} {name:16} {run.seconds:6.1f} s  {verdict}", flush=True)

    def once(self, name: str, under: bool, extra: dict[str, str]) -> Run:
        self.number += 1
        out, report = (self.folder / f"{self.number}.{name}.{part}" for part in ("out", "json"))
        command = [sys.executable, str(PROGRAMS / f"{name}.py"), str(out)]
        if under:
            command = [*CONTROL, "run", "-q", "--report", str(report), "--", *command]
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env=self.environment | extra,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
            error = "" if done.returncode == 0 else (done.stderr.strip() or "?").splitlines()[-1]
        except subprocess.TimeoutExpired:
            error = f"not at its end after {TIMEOUT} s"
        seconds = time.monotonic() - began
        content = json.loads(report.read_text()) if report.exists() else {}
        return Run("" if error else out.read_text(), seconds, content, error)


def measure(bench: Bench, names: list[str], seeds: Iterable[int], repeats: int) -> dict[str, Runs]:
    runs = {name: Runs() for name in names}
    for _ in range(repeats):
        bench.all(runs, "alone", False, {})
    bench.control("up", "--device", "0")
    try:
        for _ in range(repeats):  # the first analyses, the second has it all from the store
            bench.all(runs, "home", True, {})
        bench.control("placement", "set", "* -> 1")
        bench.all(runs, "worker", True, {})
        bench.control("placement", "clear")
        for seed in seeds:
            bench.all(runs, "scattered", True, {"TESSERA_SCATTER": str(seed)})
    finally:
        bench.control("down", "--force")
    return runs


def source(kernel: dict[str, Any]) -> str:
    """Where the summary of a kernel came from, with its grade."""
    from tessera.cli.kernel_table import source_and_grade

    return source_and_grade(str(kernel.get("grade") or "")) or "no summary"


@dataclass
class Shares:
    """Of one program: launches and estimated GPU time (ns), by where they ran and why."""

    launches: int = 0
    time: float = 0.0
    moved: int = 0
    moved_time: float = 0.0
    sources: Counter[str] = field(default_factory=Counter)  # moved launches
    reasons: Counter[str] = field(default_factory=Counter)  # launches that stayed
    graphs: int = 0


def shares(runs: Runs) -> Shares:
    from tessera.cli.kernel_table import why_home

    total = Shares(graphs=runs.worker[-1].report["graph_launches"])
    times = {
        kernel["name"]: kernel["time_ns"].get("0", 0) / kernel["timed"]["0"]
        for run in runs.home
        for kernel in run.report["kernels"]
        if kernel["timed"].get("0")
    }
    for kernel in runs.worker[-1].report["kernels"]:
        home = kernel["launches"].get("0", 0)
        moved = sum(kernel["launches"].values()) - home
        each = times.get(kernel["name"], 0.0)
        total.launches += home + moved
        total.time += (home + moved) * each
        total.moved += moved
        total.moved_time += moved * each
        total.sources[source(kernel)] += moved
        if home:
            total.reasons[f"{why_home(kernel)} ({source(kernel)})"] += home
    return total


def same(runs: list[Run], expected: str) -> str:
    good = sum(run.digest == expected for run in runs)
    return f"{good} of {len(runs)}" if runs else "-"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def table(all_runs: dict[str, Runs], device: str) -> list[str]:
    lines = [
        f"Device: {device}. A worker on the same GPU. Outputs equal to those of a run without",
        "Tessera, in runs; shares of launches and of GPU time whose kernels moved when all were",
        "placed on the worker.",
        "",
        "| program | alone again | home | all on the worker | random placements | launches"
        " | moved | GPU time moved | first and second run at home, alone (s) | graph launches |",
        "|---" * 10 + "|",
    ]
    for name, runs in all_runs.items():
        if error := next((run.error for run in runs.alone if run.error), ""):
            lines.append(f"| {name} | does not run here: {error} |" + " |" * 8)
            continue
        expected = runs.alone[0].digest
        found = shares(runs) if runs.worker[-1].report else Shares()
        seconds = [f"{run.seconds:.1f}" for run in (*runs.home, runs.alone[-1])]
        cells = [
            name,
            same(runs.alone[1:], expected),
            same(runs.home, expected),
            same(runs.worker, expected),
            same(runs.scattered, expected),
            str(found.launches),
            percent(found.moved, found.launches),
            percent(found.moved_time, found.time),
            ", ".join(seconds),
            str(found.graphs),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def details(all_runs: dict[str, Runs]) -> list[str]:
    lines = ["", "By source and grade of the kernels that moved, and why the rest stayed:", ""]
    for name, runs in all_runs.items():
        if not runs.worker or not runs.worker[-1].report:
            continue
        found = shares(runs)
        moved = [f"{key} {percent(n, found.launches)}" for key, n in found.sources.items() if n]
        lines.append(f"- **{name}**: {', '.join(moved) or 'nothing moved'}")
        for reason, count in found.reasons.most_common(MOST_REASONS):
            lines.append(f"  - stayed: {percent(count, found.launches)}: {reason}")
    return lines


def failures(all_runs: dict[str, Runs]) -> list[str]:
    kinds = ("home", "worker", "scattered")
    return [
        f"{kind} {name}: {run.error}"
        for name, runs in all_runs.items()
        for kind in kinds
        for run in getattr(runs, kind)
        if run.error
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    every = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "common")
    parser.add_argument("programs", nargs="*", default=every, metavar="PROGRAM")
    parser.add_argument("--seeds", type=int, default=20, help="random placements of each program")
    parser.add_argument("--once", action="store_true", help="alone and at home, once each")
    parser.add_argument("--jobs", type=int, default=4, help="programs that run at a time")
    parser.add_argument("--out", type=Path, help="file for the table (default: print it)")
    parser.add_argument("--store", type=Path, help="what was analysed before (default: nothing)")
    parser.add_argument("--raw", type=Path, help="file for all reports, as JSON")
    options = parser.parse_args()
    from tessera.cluster.devices import find_devices

    device = find_devices().devices[0].name
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        store = options.store or Path(folder) / "store.db"
        bench = Bench(Path(folder), store, options.jobs)
        seeds = range(1, options.seeds + 1)
        runs = measure(bench, options.programs, seeds, 1 if options.once else 2)
    if options.raw:
        plain = {name: own.__dict__ for name, own in runs.items()}
        options.raw.write_text(json.dumps(plain, default=lambda run: run.__dict__) + "\n")
    text = "\n".join([*table(runs, device), *details(runs), ""])
    if options.out:
        options.out.write_text(text)
    else:
        print(text)
    wrong = failures(runs)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
