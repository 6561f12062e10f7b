# SPDX-License-Identifier: Apache-2.0
"""Time launches of an unmodified program: alone, at home under Tessera, and redirected.

Runs alternate (alone, home, moved, alone, ...) so that a machine that slows down slows all
three. Printed: the least and the median over all runs, in the program's own thread, and the
time of home -> worker -> home for one small kernel each: to the end of all as the host sees
it (round_trip), and in a stream full of such rounds (round). On a machine with an NVIDIA GPU:

    python tools/bench/bench_launches.py --device 0     a worker on the same GPU (start MPS first)

Without --device it runs on the simulated GPUs, where times say what Tessera's own code costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FIGURES = {"at_home_ns": "ns", "elsewhere_ns": "ns", "round_trip_us": "us", "round_us": "us"}
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "control"))

from tessera.service import daemon  # noqa: E402
from tessera.service.client import Client  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", type=Path, default=ROOT / "build/native/native_out")
    parser.add_argument("--program", type=Path, default=ROOT / "build/native/shim/launch_times")
    parser.add_argument("--device", type=int, help="the worker's device; default: simulated GPUs")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


def environment(options: argparse.Namespace, folder: Path) -> dict[str, str]:
    values = os.environ | {
        "TESSERA_NATIVE_DIR": str(options.native),
        "TESSERA_RUNTIME_DIR": str(folder),
        "TESSERA_STORE": str(folder / "store.db"),
    }
    if options.device is None:
        values |= {"LD_LIBRARY_PATH": f"{options.native}/sim", "TESSERA_SIM_DEVICES": "A100,L40S"}
    return values


def measure(program: Path, values: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [str(program)], env=values, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def summary(rounds: list[dict[str, Any]], figure: str) -> str:
    least = min(one[figure]["min"] for one in rounds)
    medians = [one[figure]["median"] for one in rounds]
    spread = f"{min(medians):.1f} to {max(medians):.1f}"
    return f"{least:10.1f} {statistics.median(medians):10.1f}   ({spread})"


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        folder = Path(name)
        alone = environment(options, folder)
        os.environ.update(alone)
        daemon.start(folder, None if options.device is None else (options.device,))
        preloaded = alone | {"LD_PRELOAD": str(options.native / "libtessera.so")}
        results: dict[str, list[dict[str, Any]]] = {"alone": [], "home": [], "moved": []}
        with Client(folder) as client:
            for _ in range(options.rounds):
                results["alone"].append(measure(options.program, alone))
                client.request("set_rules", text="", policy="home")
                results["home"].append(measure(options.program, preloaded))
                client.request("set_rules", text="elsewhere -> 1\n")
                results["moved"].append(measure(options.program, preloaded))
            client.request("shutdown", force=True)
    print(f"{'':34}     least     median   (medians of {options.rounds} runs)")
    for mode, rounds in results.items():
        for figure, unit in FIGURES.items():
            print(f"{mode:6} {figure.rsplit('_', 1)[0]:18} {unit:8} {summary(rounds, figure)}")


if __name__ == "__main__":
    main()
