# SPDX-License-Identifier: Apache-2.0
"""Evaluate placement by kernel against coarser ways, and write docs/evaluation.

    python tools/evaluate.py                 # all of it: some minutes on two cores
    python tools/evaluate.py --report-only   # the report and plots again, from results.json

Figures come from a model (catalogue, efficiencies, simulator); the report says which.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "control"))

from dataclasses import replace

from tessera.planning import clock, evaluation
from tessera.planning.costs import Efficiency
from tessera.planning.machine import LinkModel, load_catalogue, pick
from tessera.planning.models.catalogue import mixes

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "evaluation"
SENSITIVE = (
    ("dense", ("H20", "L40S"), 1),
    ("moe", ("H20", "L40S"), 1),
    ("ssm", ("H20", "L40S"), 0),
)


def assumptions_of(name: str) -> evaluation.Assumptions:
    """The default, or one with a single assumption changed."""
    plain = Efficiency()
    changed = {
        "links at half the rate": LinkModel(efficiency=0.4),
        "links of 64 GB/s": LinkModel(bandwidth=64e9),
        "links of 200 GB/s": LinkModel(bandwidth=200e9),
        "hand-off of 20 us": LinkModel(handoff=20e-6),
    }
    rates = {
        "matrix products at 50 %": replace(plain, gemm=0.5),
        "memory at 60 %": replace(plain, memory=0.6),
    }
    return evaluation.Assumptions(changed.get(name, LinkModel()), rates.get(name, plain))


VARIATIONS = (
    "links at half the rate",
    "links of 64 GB/s",
    "links of 200 GB/s",
    "hand-off of 20 us",
    "matrix products at 50 %",
    "memory at 60 %",
)


def work(job: tuple[str, str, tuple[str, ...], int, str]) -> dict[str, Any]:
    """One case, in a process of its own."""
    clock.use_cpu_time()  # what else the machine does changes no plan
    kind, architecture, keys, number, variation = job
    devices = pick(load_catalogue(), keys)
    mix = mixes(architecture)[number]
    assumptions = assumptions_of(variation)
    if kind == "twins":
        return evaluation.run_twins(architecture, devices[0], mix, assumptions)
    return evaluation.run_case(architecture, devices, mix, assumptions) | {"variation": variation}


def jobs() -> list[tuple[str, str, tuple[str, ...], int, str]]:
    listed: list[tuple[str, str, tuple[str, ...], int, str]] = []
    keys = sorted({key for pair in evaluation.PAIRS for key in pair})
    for architecture, pair, mix in evaluation.cases():
        listed.append(("pair", architecture, pair, mixes(architecture).index(mix), ""))
    for architecture in evaluation.ARCHITECTURES:
        for key in keys:
            listed += [("twins", architecture, (key,), i, "") for i in range(3)]
    for architecture, pair, number in SENSITIVE:
        listed += [("pair", architecture, pair, number, one) for one in VARIATIONS]
    return listed


def evaluate(workers: int) -> dict[str, Any]:
    begun = time.time()
    with ProcessPoolExecutor(workers) as pool:
        found = []
        for i, one in enumerate(pool.map(work, jobs())):
            found.append(one)
            print(f"\r{i + 1} of {len(jobs())} cases, {time.time() - begun:.0f} s", end="")
    print()
    return {
        "pairs": [one for one in found if one.get("variation") == ""],
        "twins": [one for one in found if "device" in one],
        "sensitivity": [one for one in found if one.get("variation")],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = FOLDER / "results.json"
    if not arguments.report_only:
        results.write_text(json.dumps(evaluate(arguments.workers), indent=1) + "\n")
    from tessera.planning import report

    clock.use_cpu_time()
    report.write(json.loads(results.read_text()), FOLDER)
    print(f"written to {FOLDER}")


if __name__ == "__main__":
    main()
