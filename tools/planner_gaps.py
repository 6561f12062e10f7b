# SPDX-License-Identifier: Apache-2.0
"""How small a gap the planner proves, and in what time, over a seeded set of instances.

    python tools/planner_gaps.py                  # 36 instances, 5 seconds each
    python tools/planner_gaps.py --count 12 --devices 4
    python tools/planner_gaps.py --cpu                # limits in CPU seconds: a busy machine

An instance is a model of the catalogue, a request mix, a batch, a set of GPUs and a number of
units in flight, drawn at random; its layers are folded so that about 1,000 nodes are left
(models of fewer launches have fewer). Prints each gap with wall and CPU seconds, and the share
of instances whose gap is below the goal.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "control"))

from tessera.planning import clock
from tessera.planning.costs import CostModel
from tessera.planning.machine import connect, load_catalogue, pick
from tessera.planning.models import ARCHITECTURES, workload
from tessera.planning.models.catalogue import mixes
from tessera.planning.optimizer import Effort, Plan, optimize
from tessera.planning.problem import InfeasibleError, Options, Problem, build, with_in_flight

GOAL = 0.01
NODES = 1000
PARTS = (64, 48, 40, 32, 24, 16, 8, 4, 2, 1)
SETS = {
    2: (("H100", "L40S"), ("H20", "L40S"), ("A100", "L40S"), ("H100", "RTX PRO 6000")),
    3: (("H100", "L40S", "L40S"), ("H20", "A100", "L40S")),
    4: (("H100", "L40S", "A100", "H20"), ("H100", "H100", "L40S", "L40S"),
        ("A100", "L40S", "L40S", "L40S"), ("H20", "RTX PRO 6000", "L40S", "A100")),
    8: (("H100",) * 4 + ("L40S",) * 4, ("H20", "H20", "A100", "A100") + ("L40S",) * 4),
    16: (("H100",) * 4 + ("L40S",) * 12, ("H20",) * 8 + ("L40S",) * 8),
}  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """What a problem is made of."""

    architecture: str
    mix: int
    batch: int
    devices: tuple[str, ...]
    in_flight: int

    def name(self) -> str:
        counts = {key: self.devices.count(key) for key in self.devices}
        keys = "+".join(f"{n}x{key}" if n > 1 else key for key, n in counts.items())
        mix = mixes(self.architecture)[self.mix].name.split()[0]
        return f"{self.architecture} {mix} b{self.batch} f{self.in_flight} {keys}"

    def may_fit(self) -> bool:
        """Whether weights and states are no more than what all GPUs together hold."""
        problem = self.problem((1,))
        room = sum(problem.machine.memory(device) for device in range(problem.machine.size))
        return sum(buffer.size for buffer in problem.buffers) < 0.95 * room

    def problem(self, parts_tried: tuple[int, ...] = PARTS) -> Problem:
        """Folded to as many nodes as there may be."""
        mix = mixes(self.architecture)[self.mix]
        machine = connect(pick(load_catalogue(), self.devices))
        unit = workload(self.architecture, mix.prompt, mix.output, self.batch)
        for parts in parts_tried:
            found = build(unit, machine, CostModel(), Options(parts, 10 * NODES))
            if len(found.nodes) <= 1.1 * NODES:
                break
        return replace(with_in_flight(found, self.in_flight), slack=0.8)


def instances(count: int, seed: int, devices: tuple[int, ...]) -> Iterator[Instance]:
    """Architectures and numbers of devices in turn, the rest at random."""
    generator = random.Random(seed)
    architectures = list(ARCHITECTURES)
    for i in range(count):
        architecture = architectures[i % len(architectures)]
        size = devices[i // len(architectures) % len(devices)]
        while True:
            number = generator.randrange(3)
            drawn = Instance(
                architecture,
                number,
                generator.choice(mixes(architecture)[number].batches),
                generator.choice(SETS[size]),
                generator.choice((2, 4, 8, 16)),
            )
            if drawn.may_fit():
                yield drawn
                break


def run(one: Instance, seconds: float) -> tuple[Problem, Plan | None, float, float]:
    """The plan (none: nothing fits), wall and CPU seconds."""
    problem = one.problem()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        plan = optimize(problem, "throughput", Effort(seconds, GOAL))
    except InfeasibleError:
        plan = None
    return problem, plan, time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--count", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--devices", type=int, nargs="*", default=list(SETS))
    arguments = parser.parse_args()
    clock.use_cpu_time(arguments.cpu)
    print(f"{'instance':58} nodes     gap    wall     CPU  found by")
    gaps, times = [], []
    for one in instances(arguments.count, arguments.seed, tuple(arguments.devices)):
        problem, plan, wall, cpu = run(one, arguments.seconds)
        gap = f"{plan.gap:7.2%}" if plan else "no fit "
        method = plan.method if plan else ""
        print(f"{one.name():58} {len(problem.nodes):5} {gap} {wall:6.1f}s {cpu:6.1f}s  {method}",
              flush=True)  # fmt: skip
        if plan:
            gaps.append(plan.gap)
            times.append(cpu)
    small = sum(gap < GOAL for gap in gaps)
    print(f"gap under {GOAL:.0%}: {small} of {len(gaps)} that fit; "
          f"worst {max(gaps, default=0):.1%}, most CPU {max(times, default=0):.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
