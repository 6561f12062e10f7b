# SPDX-License-Identifier: Apache-2.0
"""What a finer placement is worth: by kernel, by launch class, and by place in the sequence.

    python tools/placement_granularity.py            # four architectures, three pairs
    python tools/placement_granularity.py --seconds 20

Plans for throughput of the modelled launch sequences (32 requests with 1,024 tokens of prompt and
512 of output; two images of 20 steps), two units in flight. Printed: the period of a unit by what
is placed together, with the number of things to be placed, and the two gains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "control"))

from tessera.planning.costs import CostModel
from tessera.planning.machine import connect, load_catalogue, pick
from tessera.planning.models import workload
from tessera.planning.optimizer import Effort, optimize
from tessera.planning.problem import Node, Options, Problem, build, contract

CASES = (
    ("dense", 1024, 512, 32),
    ("moe", 1024, 512, 32),
    ("ssm", 1024, 512, 32),
    ("diffusion", 1024, 20, 2),
)
PAIRS = ("H100,L40S", "A100,L40S", "H20,L40S")
TOGETHER: dict[str, Callable[[Node], str]] = {
    "kernel": lambda node: node.name,
    "class": lambda node: node.launch_class,
    "position": lambda _: "",
}


def period(problem: Problem, together: Callable[[Node], str], seconds: float) -> tuple[float, int]:
    """Seconds of a unit of work, and how many things were placed."""
    nodes = tuple(replace(node, tie=together(node)) for node in problem.nodes)
    tied = replace(problem, nodes=nodes, slack=0.8)
    made = optimize(tied, "throughput", Effort(seconds, 0.005))
    return made.value, len(contract(tied).problem.nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="for each plan")
    seconds = parser.parse_args().seconds
    catalogue = load_catalogue()
    for architecture, prompt, output, batch in CASES:
        for pair in PAIRS:
            machine = connect(pick(catalogue, pair.split(",")))
            work = workload(architecture, prompt, output, batch)
            problem = build(work, machine, CostModel(), Options(in_flight=2))
            found = {name: period(problem, one, seconds) for name, one in TOGETHER.items()}
            cells = [f"{time * 1e3:8.2f} ms ({count})" for time, count in found.values()]
            kernel, by_class, position = (time for time, _ in found.values())
            gains = f"{kernel / by_class:.2f}x {by_class / position:.2f}x"
            print(f"{architecture:10} {pair:10} {' '.join(cells)}  {gains}", flush=True)


if __name__ == "__main__":
    main()
