# SPDX-License-Identifier: Apache-2.0
"""The demonstration: one unmodified program on one GPU, then spread over two.

Embeds some sentences with a pretrained model, first without Tessera, then with its
matrix products and attention on a second GPU. Fails unless both give the same bytes.
`make demo` runs it. It uses simulated GPUs, an A100 as home and an L40S beside it.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sim_env
from rich.console import Console
from tessera.cli import render
from tessera.service import client

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples" / "embed.py"
HOME, WORKER = "A100", "L40S"
# What is bound by arithmetic goes to the GPU with more of it for the money; the rest,
# bound by memory, stays on the one with the bandwidth.
MOVED = ("linear_kernel", "attention_kernel")
RULES = [f"{kernel} -> {WORKER}" for kernel in MOVED]
TESSERA_CTL = (str(Path(sys.executable).parent / "tessera-ctl"),)


class DemoError(Exception):
    """The demonstration did not go as it should; the message says where."""


@dataclass
class Run:
    """One run of the program."""

    seconds: float
    printed: str
    vectors: bytes
    said: list[str]  # by Tessera, on stderr


class Demo:
    """The steps, and what they share."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.console = console
        self.runtime = folder / "run"
        self.environment = {
            **os.environ,
            **sim_env.changes(os.environ, f"{HOME},{WORKER}"),
            "TESSERA_RUNTIME_DIR": str(self.runtime),
            "TESSERA_STORE": str(folder / "store.db"),
        }

    def call(
        self, *command: str, timeout: float = 300.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """What a command printed. Raises DemoError with everything it said when it fails."""
        result = subprocess.run(
            command,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if result.returncode:
            raise DemoError(
                f"{' '.join(command)} ended with {result.returncode}:\n"
                f"{result.stdout}{result.stderr}"
            )
        return result

    def control(self, *arguments: str, **environment: str) -> str:
        """Call tessera-ctl."""
        self.console.print(f"[dim]$ tessera-ctl {shlex.join(arguments)}[/dim]")
        done = self.call(*TESSERA_CTL, *arguments, **environment)
        self.show(done.stderr.splitlines())
        return done.stdout

    def show(self, lines: list[str]) -> None:
        """What was said on stderr and is no output of the program."""
        for line in lines:
            self.console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def embed(self, name: str, *prefix: str) -> Run:
        """Run the program, with `prefix` before its command line."""
        out = self.folder / f"{name}.npy"
        command = [*prefix, sys.executable, str(PROGRAM), "--out", str(out)]
        start = time.monotonic()
        done = self.call(*command, TESSERA_SIM_RECORD=self.record(name))
        said = [line for line in done.stderr.splitlines() if line.startswith("tessera")]
        return Run(time.monotonic() - start, done.stdout, out.read_bytes(), said)

    def record(self, name: str) -> str:
        """The prefix of the files in which the simulated driver writes down launches."""
        return str(self.folder / f"{name}.launches")

    def times(self, name: str) -> dict[str, tuple[int, float]]:
        """Launches, and simulated seconds, of each kernel in all processes of a run."""
        found: dict[str, tuple[int, float]] = {}
        for path in self.folder.glob(f"{name}.launches.*.jsonl"):
            for line in path.read_text().splitlines():
                launch = json.loads(line)
                count, seconds = found.get(launch["kernel"], (0, 0.0))
                found[launch["kernel"]] = (count + 1, seconds + launch["picoseconds"] * 1e-12)
        return found

    @contextmanager
    def controller(self) -> Iterator[None]:
        """A controller with a worker, ended in every case."""
        self.control("up", TESSERA_SIM_RECORD=self.record("moved"))
        try:
            yield
        finally:
            self.control("down", "--force")

    def counters(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The counters of the program that ended last, and the names of its kernels by number."""
        deadline = time.monotonic() + 10.0
        while not (programs := client.request(self.runtime, "history", limit=1)["programs"]):
            if time.monotonic() > deadline:
                raise DemoError("the controller does not know of the program")
            time.sleep(0.05)
        kernels = client.request(self.runtime, "kernels", all=True)["kernels"]
        counters: dict[str, Any] = programs[0]["counters"]
        return counters, {str(kernel["id"]): kernel["name"] for kernel in kernels}


def report(console: Console, demo: Demo, counters: dict[str, Any], names: dict[str, str]) -> None:
    """What ran where, what it took, and what was moved."""
    alone, spread = demo.times("home"), demo.times("moved")
    headings = ("LAUNCHES", f"ON {HOME}", f"ON {WORKER}", "ALONE", "SPREAD", "BYTES IN")
    columns = [render.Column("KERNEL", least=12)]
    columns += [render.Column(heading, right=True) for heading in headings]
    rows = []
    moved = 0
    for kernel in sorted(counters["kernels"], key=lambda one: names[str(one["id"])]):
        name = names[str(kernel["id"])]
        launches = {int(device): count for device, count in kernel["launches"].items()}
        bytes_in = sum(kernel["bytes_in"].values())
        moved += bytes_in
        rows.append(
            [
                name,
                sum(launches.values()),
                launches.get(0, 0) or "-",
                launches.get(1, 0) or "-",
                microseconds(alone[name][1]),
                microseconds(spread[name][1]),
                f"{bytes_in:,}" if bytes_in else "-",
            ]
        )
        if name in MOVED and launches.get(1, 0) == 0:
            raise DemoError(f"{name} did not run on the {WORKER}: see tessera-ctl kernels")
    console.print("What ran where, in simulated time: on one GPU alone, and spread over two.")
    render.show(console, render.table(columns, rows))
    console.print(f"Copied between the GPUs for kernels: {moved:,} bytes.")
    before, after = (sum(seconds for _, seconds in one.values()) for one in (alone, spread))
    if after >= before:
        console.print(
            "With so little text even matrix products are bound by memory, so that moving them "
            "does not pay here. What this shows is that the results stay the same."
        )


def microseconds(seconds: float) -> str:
    """Simulated time for the table."""
    return f"{seconds * 1e6:,.1f} us"


def run(demo: Demo) -> None:
    """The demonstration, step by step. Raises DemoError."""
    console = demo.console
    console.rule(f"1. {PROGRAM.name} on one {HOME}, without Tessera")
    alone = demo.embed("home")
    console.print(alone.printed.rstrip(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"({alone.seconds:.1f} s)")

    console.rule(f"2. The same program, its matrix products and attention on an {WORKER}")
    with demo.controller():
        demo.control("placement", "set", *RULES)
        spread = demo.embed("moved", *TESSERA_CTL, "run", "--quiet", "--")
        demo.show(spread.said)
        counters, names = demo.counters()
    console.print(f"({spread.seconds:.1f} s)")

    console.rule("3. The results")
    if spread.printed != alone.printed or spread.vectors != alone.vectors:
        raise DemoError("the outputs differ: that must never happen, please report it")
    digest = hashlib.sha256(spread.vectors).hexdigest()[:16]
    console.print(f"{len(alone.vectors):,} bytes of output, bit-identical (SHA-256 {digest}...).")
    report(console, demo, counters, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.parse_args()
    console = Console()
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tessera-demo-") as folder:
            run(Demo(Path(folder), console))
    except (DemoError, sim_env.NotBuiltError, client.ClientError, client.NotRunningError) as error:
        sys.exit(f"demo: {error}")
    console.print(f"Done in {time.monotonic() - start:.0f} s.")


if __name__ == "__main__":
    main()
