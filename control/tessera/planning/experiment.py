# SPDX-License-Identifier: Apache-2.0
"""The adaptation experiment: a load that steps between light and heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessera.planning.adaptation import Chooser, Phase, Served, arrivals, fixed, serve
from tessera.planning.costs import CostModel
from tessera.planning.machine import connect, load_catalogue, pick
from tessera.planning.models import workload
from tessera.planning.optimizer import Effort, optimize
from tessera.planning.problem import Assignment, Objective, Options, Problem, build
from tessera.planning.simulator import Flight, compile_job, simulate

SECONDS = 20.0  # of each phase
SETTLED = 2.0  # seconds after a step that belong to the change
DEVICES = ("H20", "L40S")
PROMPT, OUTPUT = 512, 4


@dataclass(frozen=True)
class Adaptation:
    """Mean latency in seconds of each policy in each phase, and when the plan changed."""

    phases: tuple[Phase, ...]
    capacity: Mapping[Objective, float]  # requests a second that each plan sustains
    served: dict[str, Served]
    switches: tuple[float, ...]

    def means(self, after: float = 0.0) -> list[dict[str, float]]:
        """By phase; `after`: leaving out so many seconds at its start."""
        rows, begin = [], 0.0
        for phase in self.phases:
            end = begin + phase.seconds
            rows.append({name: one.mean(begin + after, end) for name, one in self.served.items()})
            begin = end
        return rows

    def settling(self) -> list[float]:
        """Seconds from each step of the load to the last switch in its phase."""
        found, begin = [], 0.0
        for phase in self.phases:
            inside = [s for s in self.switches if begin <= s < begin + phase.seconds]
            found.append(inside[-1] - begin if inside else 0.0)
            begin += phase.seconds
        return found


def requests() -> Problem:
    """Single requests to a dense model: prefill, then some steps of one row."""
    machine = connect(pick(load_catalogue(), DEVICES))
    unit = workload("dense", PROMPT, OUTPUT, 1)
    jobs = tuple(replace(job, count=1.0) for job in unit.jobs)
    return build(replace(unit, jobs=jobs, outputs=1.0), machine, CostModel(), Options(in_flight=4))


def run() -> Adaptation:
    """Plans for both objectives, then the same arrivals under three policies."""
    problem = requests()
    crowded = replace(problem, slack=0.8)
    plans: dict[Objective, Assignment] = {
        "latency": optimize(problem, "latency", Effort(2, 0.001)).assignment,
        "throughput": optimize(crowded, "throughput", Effort(3, 0.01)).assignment,
    }
    capacity = {name: _capacity(problem, plan) for name, plan in plans.items()}
    light = 0.2 * capacity["latency"]
    heavy = capacity["latency"] + 0.5 * (capacity["throughput"] - capacity["latency"])
    phases = tuple(Phase(SECONDS, rate) for rate in (light, heavy, light, heavy, light))
    times = arrivals(phases)
    chooser = Chooser(speedup=capacity["throughput"] / capacity["latency"])
    served = {
        "latency": serve(problem, plans, times, fixed("latency")),
        "throughput": serve(problem, plans, times, fixed("throughput")),
        "adaptive": serve(problem, plans, times, chooser.observe),
    }
    return Adaptation(phases, capacity, served, tuple(chooser.switches))


def _capacity(problem: Problem, plan: Assignment) -> float:
    """Requests a second with many at once: one main job stands for one request."""
    scripts = compile_job(problem, plan)
    return simulate(problem, [Flight(scripts, 8)], units=400, fair=True).rate
