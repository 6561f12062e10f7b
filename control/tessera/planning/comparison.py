# SPDX-License-Identifier: Apache-2.0
"""One architecture, one set of devices, one request mix: every way to use the devices.

The cheap figures (busiest resource, memory) choose each way's best variant, batch and number
of units in flight; the simulator then gives the figure that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tessera.planning import baselines, milp
from tessera.planning.costs import CostModel
from tessera.planning.launches import Workload
from tessera.planning.machine import Machine
from tessera.planning.objective import evaluate, held, physical_bound
from tessera.planning.optimizer import Effort, Plan, optimize
from tessera.planning.problem import (
    Assignment,
    Floats,
    InfeasibleError,
    Options,
    Problem,
    build,
    with_in_flight,
)
from tessera.planning.rounding import kinds
from tessera.planning.simulator import Flight, Result, compile_job, simulate
from tessera.planning.tuning import Tuning

# Units in flight, share of links and streams that may be filled, and seconds that a stream is
# taken to wait at each change of the device: with more of it a plan changes devices less often.
PLANNED_WITH = (
    (2, 0.8, 0.0), (2, 0.7, 300e-6), (2, 0.8, 1e-3), (3, 0.8, 100e-6), (3, 0.7, 1e-3),
    (4, 0.7, 100e-6),
)  # fmt: skip
SIMULATED = 6  # options of each way that the simulator looks at
PATIENCE = 300e-6  # seconds that streams are taken to wait at each change, to tell options apart
PLANS_SIMULATED = 12  # plans differ in more than what an estimate sees
TUNED = 3  # different ones that are then tuned by simulation,
TUNING = 2.0  # seconds each
QUEUES = 0.9  # of its estimate a placement surely loses to waiting
IN_FLIGHT = (1, 2, 3, 4, 6)
KERNELS, TODAY, PARALLEL, SINGLE = "by kernel", "by kernel, today", "data parallel", "single"


@dataclass(frozen=True)
class Option:
    """A placement with a batch and units in flight, and the rate that it should reach."""

    problem: Problem  # with in_flight set
    assignment: Assignment
    rate: float  # outputs a second, estimated

    @property
    def load(self) -> Floats:
        """Seconds of every device and port for one output."""
        found = evaluate(self.problem, self.assignment)
        every = np.concatenate([found.busy, found.leaving, found.arriving])
        return np.asarray(every / self.problem.outputs)


@dataclass(frozen=True)
class Answer:
    """What one way of using the devices reaches."""

    way: str
    rate: float  # outputs a second, simulated; 0: it does not fit
    parts: tuple[tuple[Option, float], ...] = ()  # placements, and the rate of each
    result: Result | None = None
    plan: Plan | None = None

    @property
    def batch(self) -> str:
        """Requests in a unit of work times units in flight, for tables."""
        return " + ".join(
            f"{one.problem.name.rsplit('@', 1)[-1]}x{one.problem.in_flight}"
            for one, _ in self.parts
        )


Source = Callable[[float], Workload]


class Case:
    """Problems of one workload for each batch, on one machine."""

    def __init__(
        self,
        source: Source,
        batches: Sequence[float],
        machine: Machine,
        costs: CostModel | None = None,
        options: Options | None = None,
    ) -> None:
        self.machine = machine
        costs, options = costs or CostModel(), options or Options()
        self.problems = []
        for batch in batches:
            problem = build(source(batch), machine, costs, options)
            self.problems.append(replace(problem, name=f"{problem.name}@{batch:g}"))

    # Ways

    def single(self) -> Answer:
        return self._simulated(SINGLE, self._best(baselines.single))

    def parallel(self) -> Answer:
        """A replica on each device that can hold one, each with its own best batch."""
        found = []
        for device in range(self.machine.size):
            best = self._best(partial(_only, device))
            found += [(best[0], best[0].rate)] if best else []
        return self._mixed(PARALLEL, found)

    def disaggregated(self, way: str) -> Answer:
        return self._simulated(way, self._best(baselines.DISAGGREGATIONS[way]))

    def by_kernel(self, effort: Effort, given: Iterable[Answer] = (), way: str = KERNELS) -> Answer:
        """The optimizer's plan; with shares of the requests elsewhere where that is more."""
        given = list(given)
        plans = self._plans(effort, given)
        options = _varied((option for option, _ in plans), PLANS_SIMULATED)
        answers = [self._mixed(way, [(option, option.rate)]) for option in options]
        if way == KERNELS:
            # A coarser way is a placement too: it is kept where it is the best.
            answers += [replace(one, way=way) for one in given]
            answers += self._shared(options[:1], given, way)
            answers += self._tuned(options, given, way)
        best = max(answers, key=lambda one: one.rate, default=Answer(way, 0.0))
        plan = next((plan for option, plan in plans if option is best.parts[0][0]), None)
        return replace(best, plan=plan) if best.parts else best

    def bound(self) -> float:
        """Outputs a second that nothing beats, no mix of batches either: all devices full, links
        free, memory pooled.
        """
        return milp.best_rate(list(self._pooled()))

    def linked_bound(self) -> float:
        """Outputs a second that no single placement beats, links, memory and the order of
        launches in a unit counted: from linear programs of all batches and units in flight.
        """
        best = 0.0
        for problem in sorted(self._pooled(), key=lambda one: -one.outputs / physical_bound(one)):
            for units in IN_FLIGHT[::-1]:
                if problem.outputs / physical_bound(problem) <= best:
                    break
                several = with_in_flight(problem, units)
                model = milp.Model(several, "throughput", kinds(several))
                try:
                    bound = milp.relax(model, 20.0).bound
                except InfeasibleError:
                    continue
                best = max(best, problem.outputs / bound)
        return best

    def _pooled(self) -> Iterator[Problem]:
        """Problems whose memory fits into all devices together."""
        room = sum(self.machine.memory(device) for device in range(self.machine.size))
        for problem in self.problems:
            if sum(buffer.size for buffer in problem.buffers) <= room:
                yield problem

    # Choosing

    def _best(self, variants: baselines.Variants) -> list[Option]:
        """The options that promise most, of different problems or placements first."""
        options = [
            option
            for problem in self.problems
            for assignment in variants(problem)
            for option in self._in_flight(problem, assignment)
        ]
        return _varied(options)

    def _in_flight(
        self, problem: Problem, assignment: Assignment, most: Sequence[int] = IN_FLIGHT
    ) -> Iterator[Option]:
        """The placement with the fewest units in flight that should keep it busy, and with
        more of them: waiting for each other takes more than the estimate knows.
        """
        patient = replace(problem, machine=_waiting(problem.machine, PATIENCE))
        outcome = evaluate(patient, assignment)
        if not outcome.allowed:
            return
        kept = held(_without_state(problem), assignment)
        state = outcome.memory - kept
        apart = len(set(assignment.tolist())) > 1
        enough = 0
        for units in most:
            if (kept + units * state > outcome.capacity).any() or enough > (2 if apart else 0):
                return
            several = with_in_flight(problem, units)
            period = replace(outcome, in_flight=units).period
            enough += period <= outcome.busy.max() * 1.02
            yield Option(several, assignment, problem.outputs / period)

    def _plans(self, effort: Effort, given: Sequence[Answer]) -> list[tuple[Option, Plan]]:
        """Plans for the batches that promise most."""
        ranked = sorted(self._pooled(), key=lambda one: -one.outputs / physical_bound(one))
        found: list[tuple[Option, Plan]] = []
        for problem in ranked[:3]:
            reached = max((option.rate for option, _ in found), default=0.0)
            if problem.outputs / physical_bound(problem) < QUEUES * reached:
                break
            starts = [
                option.assignment
                for answer in given
                for option, _ in answer.parts
                if option.problem.name == problem.name
            ]
            for units, slack, wait in PLANNED_WITH[: None if given else 1]:
                several = replace(with_in_flight(problem, units), slack=slack)
                several = replace(several, machine=_waiting(problem.machine, wait))
                try:
                    plan = optimize(several, "throughput", effort, starts)
                except InfeasibleError:
                    continue
                options = self._in_flight(problem, plan.assignment)
                found += [(option, plan) for option in options]
        return found

    def _tuned(self, options: Sequence[Option], given: Sequence[Answer], way: str) -> list[Answer]:
        """The best of different batches and numbers of units in flight, whoever placed them,
        with parts of them moved while the simulator finds that better.
        """
        starts = [self._mixed(way, [(option, option.rate)]) for option in options]
        starts += [one for one in given if len(one.parts) == 1]
        tried: set[tuple[str, int]] = set()
        found = []
        for start in sorted(starts, key=lambda one: -one.rate):
            option = start.parts[0][0] if start.parts else None
            if option is None or not start.rate or len(tried) == TUNED:
                break
            key = (option.problem.name, option.problem.in_flight)
            if key in tried:
                continue
            tried.add(key)
            found.append(self._tuned_one(option, start.rate, way))
        return found

    def _tuned_one(self, option: Option, rate: float, way: str) -> Answer:
        def moved(where: Assignment) -> Option:
            return replace(option, assignment=where)

        def simulated(where: Assignment) -> float:
            return self._mixed(way, [(moved(where), rate)]).rate

        tuning = Tuning(option.problem)
        where, _ = tuning.best(option.assignment, rate, simulated, TUNING)
        return self._mixed(way, [(moved(where), rate)])

    def _shared(self, plans: Sequence[Option], given: Sequence[Answer], way: str) -> list[Answer]:
        """A plan for most requests, and a single device for the rest of them."""
        answers = []
        singles = [option for one in given for option, _ in one.parts if _is_single(option)]
        for plan in plans:
            for other in singles:
                rates = _shares(plan, other)
                if rates is not None and rates[0] + rates[1] > 1.005 * max(plan.rate, other.rate):
                    answers.append(self._mixed(way, [(plan, 0.0), (other, rates[1])]))
        return answers

    # Figures

    def _simulated(self, way: str, options: Sequence[Option]) -> Answer:
        answers = [self._mixed(way, [(option, option.rate)]) for option in options]
        return max(answers, key=lambda one: one.rate, default=Answer(way, 0.0))

    def _mixed(self, way: str, parts: Sequence[tuple[Option, float]]) -> Answer:
        """Placements side by side. A part's rate is held where it shares devices; 0: it is not."""
        memory = np.zeros(self.machine.size)
        for option, _ in parts:
            memory += held(option.problem, option.assignment)
        if not parts or (memory > [self.machine.memory(d) for d in range(self.machine.size)]).any():
            return Answer(way, 0.0)
        apart = way in (PARALLEL, SINGLE) or len(parts) == 1
        flights = [
            Flight(
                compile_job(option.problem, option.assignment),
                option.problem.in_flight,
                option.problem.outputs,
                0.0 if apart or not rate else option.problem.outputs / rate,
            )
            for option, rate in parts
        ]
        # Stream priorities are a choice that every way may make.
        runs = [simulate(parts[0][0].problem, flights, fair=fair) for fair in (False, True)]
        result = max(runs, key=lambda run: run.rate)
        return Answer(way, result.rate, tuple(parts), result)


def _only(device: int, problem: Problem) -> Iterator[Assignment]:
    yield problem.everything_on(device)


def _waiting(machine: Machine, wait: float) -> Machine:
    """The machine as a stream sees it that queues at each device it comes to."""
    links = {
        pair: replace(link, latency=link.latency + wait) for pair, link in machine.links.items()
    }
    return replace(machine, links=links)


def _varied(options: Iterable[Option], most: int = SIMULATED) -> list[Option]:
    """The most promising options, at most two of one batch and number of units in flight."""
    counts: dict[tuple[str, int], int] = {}
    chosen = []
    for option in sorted(options, key=lambda one: -one.rate):
        key = (option.problem.name, option.problem.in_flight)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= 2:
            chosen.append(option)
    return chosen[:most]


def _without_state(problem: Problem) -> Problem:
    kept = tuple(buffer for buffer in problem.buffers if not buffer.per_slot)
    return replace(problem, buffers=kept)


def _is_single(option: Option) -> bool:
    return bool((option.assignment == option.assignment[0]).all())


def _shares(one: Option, other: Option) -> tuple[float, float] | None:
    """The rates at which two placements together bring forth most.

    Two rates and a constraint a resource: the best is where two constraints meet.
    """
    a, b = one.load, other.load
    best: tuple[float, float] | None = None
    for i in range(len(a)):
        for j in range(i):
            matrix = np.array([[a[i], b[i]], [a[j], b[j]]])
            if abs(np.linalg.det(matrix)) < 1e-30:
                continue
            rates = np.linalg.solve(matrix, np.ones(2))
            if (rates < 0).any() or (a * rates[0] + b * rates[1] > 1 + 1e-9).any():
                continue
            if best is None or rates.sum() > sum(best):
                best = float(rates[0]), float(rates[1])
    return best
