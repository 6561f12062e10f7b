# SPDX-License-Identifier: Apache-2.0
"""Run NVIDIA's cuda-samples without and with Tessera, and compare exit statuses and outputs.

    python tests/gpu/samples.py --samples CHECKOUT [--out samples.md] [SAMPLE ...]

CHECKOUT is a copy of NVIDIA's cuda-samples (default: $CUDA_SAMPLES). Every sample that
needs no graphics and no MPI is built for the first GPU's architecture and runs alone, at home under
Tessera, with each launch that may move thrown on home or a worker on the same GPU at random, and
with all of them on the worker. The worker needs MPS, so the script starts a daemon of its own for
the runs under Tessera. When an output or an exit status is not the same, the sample runs twice more
alone, under MPS: what varies there is not compared. Times never are.

All of it ends within --minutes. Needs nvcc, CMake and an NVIDIA GPU. The status is 1 when a sample
does anything else under Tessera than alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from samples_build import Built, Sample, build, find_built
from samples_compare import difference

CONTROL = [sys.executable, "-m", "tessera.cli.main"]
# A kernel of these fails on purpose. Under MPS that ends every program on the GPU: they run last,
# one at a time.
FAIL_ON_PURPOSE = ("simpleAssert", "simpleAssert_nvrtc")
BUILD_SHARE, ALONE_SHARE = 0.5, 0.35  # of the time that is left when each begins
NO_TIME = "no time was left"
KINDS = ("home", "random", "worker")
WAIVED = 2  # the samples' exit status for "this GPU cannot do it"


@dataclass
class Run:
    """One run; no status: it was stopped."""

    status: int | None
    text: str
    seconds: float
    home: int = 0  # launches
    worker: int = 0


@dataclass
class Row:
    sample: Sample
    alone: list[Run] = field(default_factory=list)
    under: dict[str, Run] = field(default_factory=dict)  # by KINDS

    def problems(self) -> list[str]:
        return [problem for run in self.under.values() if (problem := wrong(self, run))]


class Bench:
    """Where the runs happen, and until when."""

    def __init__(self, folder: Path, options: argparse.Namespace, until: float) -> None:
        self.folder, self.options, self.until = folder, options, until
        self.environment = os.environ | {
            "TESSERA_RUNTIME_DIR": str(folder / "run"),
            "TESSERA_STORE": str(folder / "store.db"),
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps"),
        }
        control = str(HERE.parents[1] / "control")
        paths = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        self.environment["PYTHONPATH"] = ":".join([*paths, control])
        self.environment.pop("LD_PRELOAD", None)

    def control(self, *words: str) -> str:
        done = subprocess.run(
            [*CONTROL, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"tessera-ctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def under_tessera(self) -> Iterator[None]:
        """MPS, if there is one here, and a controller with one worker."""
        mps = shutil.which("nvidia-cuda-mps-control") if self.options.mps else None
        (self.folder / "mps").mkdir(exist_ok=True)
        if mps:
            subprocess.run([mps, "-d"], env=self.environment, check=True, timeout=30)
        try:
            self.control("up", "--device", str(self.options.device))
            try:
                yield
            finally:
                self.let_go([*CONTROL, "down", "--force"])
        finally:
            if mps:
                self.let_go([mps], "quit -t 5\n")

    def let_go(self, command: list[str], words: str | None = None) -> None:
        """The table is worth more than an orderly end: what goes wrong here is only said."""
        try:
            done = subprocess.run(
                command, input=words, env=self.environment, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired as error:
            print(f"{command}: {error}", file=sys.stderr)
            return
        if done.returncode != 0:
            print(f"{command}: exit status {done.returncode}", file=sys.stderr)

    def each(self, rows: list[Row], work: Callable[[Row], None]) -> None:
        """Does `work` for all, several at a time; those that fail on purpose at the end."""
        apart = [row for row in rows if row.sample.folder.name in FAIL_ON_PURPOSE]
        with ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(work, [row for row in rows if row not in apart]))
        for row in apart:
            work(row)

    def run(self, sample: Sample, under: bool = False, **more: str) -> Run:
        """Runs once; no status when it had to be stopped."""
        left = self.until - time.monotonic()
        limit = min(self.options.timeout, left)
        if limit < 1:
            return Run(None, NO_TIME, 0.0)
        command = sample.command
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            report = Path(scratch) / "report.json"
            if under:
                command = [*CONTROL, "run", "-q", "--report", str(report), "--", *command]
            began = time.monotonic()
            status, text = finish(command, sample.folder, self.environment | more, limit)
            if status is None and limit == left:
                text = NO_TIME
            run = Run(status, text, time.monotonic() - began)
            if report.exists():
                launches = json.loads(report.read_text())["launches"]
                run.home, run.worker = launches["home"], sum(launches["workers"].values())
            return run

    def alone(self, row: Row) -> None:
        row.alone.append(self.run(row.sample))
        say("alone", row, row.alone[-1])

    def with_tessera(self, kind: str, row: Row, **more: str) -> None:
        """One run at home, at random or on the worker; two more alone when that differs."""
        if row.alone[0].status is None:
            return
        run = self.run(row.sample, True, **more)
        if run.text == NO_TIME:
            return
        row.under[kind] = run
        say(kind, row, run)
        if len(row.alone) == 1 and wrong(row, run):
            row.alone += [self.run(row.sample) for _ in range(2)]

    def all_with_tessera(self, rows: list[Row]) -> None:
        scatter = str(self.options.seed)
        with self.under_tessera():
            self.each(rows, lambda row: self.with_tessera("home", row))
            self.each(rows, lambda row: self.with_tessera("random", row, TESSERA_SCATTER=scatter))
            self.control("placement", "set", "* -> 1")
            self.each(rows, lambda row: self.with_tessera("worker", row))


def finish(
    command: list[str], folder: Path, environment: dict[str, str], limit: float
) -> tuple[int | None, str]:
    """Exit status and output of a command, which is stopped with all that it started."""
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None, f"not at its end after {limit:.0f} s"
    # A shell and tessera-ctl say 128 more than the signal, subprocess says less than zero.
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return status, f"{out}\n{err}"


def say(kind: str, row: Row, run: Run) -> None:
    how = run.text if run.status is None else f"exit status {run.status}"
    print(f"{kind:9} {row.sample.name:32} {run.seconds:6.1f} s  {how}", flush=True)


def wrong(row: Row, run: Run) -> str:
    """What a run under Tessera did otherwise than all that are like it alone; empty: nothing."""
    if run.status is None:
        return run.text if all(alone.status is not None for alone in row.alone) else ""
    like = [alone.text for alone in row.alone if alone.status == run.status]
    if not like:
        statuses = sorted({str(alone.status) for alone in row.alone})
        last = (run.text.strip() or "no output").splitlines()[-1][:120]
        return f"exit status {run.status}, alone {', '.join(statuses)}: {last}"
    return difference(like, run.text)[0]


def verdict(row: Row, kind: str) -> str:
    if kind not in row.under:
        return "-"
    if problem := wrong(row, row.under[kind]):
        return f"**{problem}**".replace("|", "/").replace("\n", " ")
    first = row.alone[0]
    varies = any(
        other.status != first.status or difference([first.text], other.text)[0]
        for other in row.alone[1:]
    )
    return "same, but for what varies alone" if varies else "same"


def alone_cell(run: Run) -> str:
    if run.status is None:
        return run.text
    return "2 (waived)" if run.status == WAIVED else str(run.status)


def table(rows: list[Row], built: Built, device: str) -> str:
    ran = [row for row in rows if len(row.under) == len(KINDS)]
    same = {kind: sum(not wrong(row, row.under[kind]) for row in ran) for kind in KINDS}
    moved = sum(row.under["worker"].worker > 0 for row in ran)
    lines = [
        f"Device: {device}; a worker on the same one. Of {len(rows)} runs of samples, {len(ran)}",
        "ran under Tessera. The same as alone, in exit status and output but for times, were",
        f"{same['home']} at home, {same['random']} with random placements, {same['worker']} with",
        f"all that may move on the worker; launches of {moved} really ran there.",
        "",
        "| sample | exit status alone | home | random placements | all on the worker"
        " | launches at home, on the worker | seconds alone, home, random, worker |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
    ]
    if built.left_out:
        lines += ["", "Not built:", ""]
        by_reason: dict[str, list[str]] = {}
        for name, why in built.left_out.items():
            by_reason.setdefault(why, []).append(name)
        lines += [f"- {why}: {', '.join(sorted(names))}" for why, names in by_reason.items()]
    return "\n".join([*lines, ""])


def cells(row: Row) -> list[str]:
    runs = [row.alone[0], *row.under.values()]
    last = row.under.get("worker")
    return [
        row.sample.name,
        alone_cell(row.alone[0]),
        *(verdict(row, kind) for kind in KINDS),
        f"{last.home}, {last.worker}" if last else "-",
        ", ".join(f"{run.seconds:.1f}" for run in runs),
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("only", nargs="*", metavar="SAMPLE", help="only these (default: all that can be built)")
    checkout = os.environ.get("CUDA_SAMPLES")
    add("--samples", type=Path, default=checkout, help="the checkout of cuda-samples")
    add("--built", type=Path, help="build nothing: a folder that --build made earlier")
    add("--build", type=Path, help="where to build, kept afterwards (default: a temporary folder)")
    add("--out", type=Path, help="file for the table (default: print it)")
    cores = os.cpu_count() or 1
    add("--jobs", type=int, default=max(2, cores // 2), help="samples that run at a time")
    add("--timeout", type=float, default=20, help="seconds for one run")
    add("--minutes", type=float, default=9, help="for everything")
    add("--arch", default="", help="architecture to build for, such as 90 (default: the GPU's)")
    add("--device", type=int, default=0, help="where the worker is")
    add("--seed", type=int, default=17, help="of the random placements")
    add("--no-mps", dest="mps", action="store_false", help="start no MPS daemon")
    options = parser.parse_args()
    if not options.built and not options.samples:
        parser.error("--samples (or CUDA_SAMPLES) has to name a copy of cuda-samples")
    return options


def prepare(options: argparse.Namespace, folder: Path, arch: str, until: float) -> Built:
    if options.built:
        return find_built(options.built, options.only)
    now = time.monotonic()
    target = (options.build or folder / "samples").resolve()
    limit = now + BUILD_SHARE * (until - now)
    arch = options.arch or arch
    jobs = os.cpu_count() or 1
    return build(options.samples.resolve(), target, options.only, arch, jobs, limit)


def main() -> int:
    options = parse()
    until = time.monotonic() + 60 * options.minutes - 10  # to stop everything, to write the table
    with tempfile.TemporaryDirectory(prefix="tessera-") as scratch:
        bench = Bench(Path(scratch), options, until)
        devices = json.loads(bench.control("devices", "--json"))
        first = devices[0]
        arch = str(first["compute_capability"])
        built = prepare(options, Path(scratch), arch, until)
        paths = [bench.environment.get("LD_LIBRARY_PATH", ""), str(built.libraries)]
        bench.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        print(f"{len(built.samples)} to run, {len(built.left_out)} not built", flush=True)
        enough = [sample for sample in built.samples if sample.gpus <= len(devices)]
        for sample in built.samples:
            if sample not in enough:
                built.left_out[sample.name] = f"needs {sample.gpus} GPUs"
        rows = [Row(sample) for sample in enough]
        now = time.monotonic()
        bench.until = now + ALONE_SHARE * (until - now)
        bench.each(rows, bench.alone)
        bench.until = until
        bench.all_with_tessera(rows)
        text = table(rows, built, first["name"])
    if options.out:
        options.out.write_text(text)
    print(text)
    return 1 if not rows or any(row.problems() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
