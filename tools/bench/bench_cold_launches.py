# SPDX-License-Identifier: Apache-2.0
"""Count the cache lines that a launch at home fetches when the first caches have been emptied.

    python tools/bench/bench_cold_launches.py

Between two launches of a large program all that a launch touches has left the caches: there
it costs what it fetches, not what it executes. valgrind's cachegrind simulates 32 KiB each of
instructions and data. Counted are the misses in the driver's launch and in Tessera's own code,
alone and at home under Tessera, of later rounds: those of fewer rounds are taken off.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_launches import ROOT, environment

sys.path.insert(0, str(ROOT / "control"))

from tessera.service import daemon
from tessera.service.client import Client

FEW, MANY = 20, 60  # rounds: timing a kernel's first launches is over after eight
MISSES = ("I1mr", "D1mr", "D1mw")
CACHE = "32768,8,64"


def count(program: Path, rounds: int, values: dict[str, str], out: Path) -> tuple[int, int]:
    """(misses in the code that is counted, launches)"""
    command = [
        "valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", f"--I1={CACHE}", f"--D1={CACHE}",
        f"--cachegrind-out-file={out}", str(program), str(rounds),
    ]  # fmt: skip
    done = subprocess.run(
        command, env=values, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout}{done.stderr}")
    return misses(out.read_text()), rounds * int(done.stdout)


def misses(report: str) -> int:
    """Of the functions that are counted, from a file of cachegrind's."""
    events: list[str] = []
    counted, total = False, 0
    for line in report.splitlines():
        if line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("fn="):
            counted = "tessera::shim::" in line or "cuLaunchKernel" in line
        elif counted and line[:1].isdigit():
            figures = dict(zip(events, map(int, line.split()[1:]), strict=True))
            total += sum(figures[name] for name in MISSES)
    return total


def lines(program: Path, values: dict[str, str], folder: Path) -> float:
    """Cache lines that a launch fetches."""
    few, early = count(program, FEW, values, folder / "few")
    many, all_launches = count(program, MANY, values, folder / "many")
    return (many - few) / (all_launches - early)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--native", type=Path, default=ROOT / "build/native/native_out")
    parser.add_argument("--program", type=Path, default=ROOT / "build/native/shim/cold_launches")
    parser.set_defaults(device=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        folder = Path(name)
        alone = environment(options, folder) | {"TESSERA_TIMEOUT_MS": "60000"}
        os.environ.update(alone)
        daemon.start(folder, None)
        with Client(folder) as client:
            client.request("set_rules", text="", policy="home")
            driver = lines(options.program, alone, folder)
            preloaded = alone | {"LD_PRELOAD": str(options.native / "libtessera.so")}
            home = lines(options.program, preloaded, folder)
            client.request("shutdown", force=True)
    print(f"cache lines a launch fetches: {driver:.1f} alone, {home:.1f} at home under Tessera")


if __name__ == "__main__":
    main()
