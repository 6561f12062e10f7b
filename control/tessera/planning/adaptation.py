# SPDX-License-Identifier: Apache-2.0
"""The adaptive policy: when to trade latency for throughput, and an experiment with it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tessera.planning.problem import Assignment, Floats, Objective, Problem
from tessera.planning.simulator import Script, Simulation, Stream, compile_job


@dataclass(frozen=True)
class Observation:
    """What is seen of the load at one moment."""

    time: float  # seconds, on any clock that only grows
    queue: float  # requests (or launches) that wait, beside those that run
    utilization: float  # of the busiest device, 0 to 1
    latency: float = 0.0  # seconds, of what ended lately; 0: nothing did


@dataclass
class Chooser:
    """Chooses between the plan for latency and the plan for throughput.

    Two thresholds with a distance between them, a time to stay, and at most so many switches
    in a window: a load at the edge does not make it swing.
    """

    busy_above: float = 0.9  # utilization from which throughput counts
    idle_below: float = 0.55  # utilization, scaled to the latency plan, below which latency does
    queue_above: float = 4.0
    queue_below: float = 1.0
    stay: float = 0.5  # seconds between switches
    window: float = 60.0  # seconds
    most_switches: int = 6  # in a window
    speedup: float = 1.0  # throughput of its plan over that of the latency plan
    smoothing: float = 0.1  # seconds: a queue is answered quickly
    patience: float = 0.7  # seconds: that a device is idle has to show for longer
    objective: Objective = "latency"
    switches: list[float] = field(default_factory=list)
    _queue: float = 0.0
    _utilization: float = 0.0
    _seen: float | None = None

    def observe(self, seen: Observation) -> Objective:
        """The plan to use from now on."""
        self._smooth(seen)
        wanted = self._wanted()
        if wanted != self.objective and self._may_switch(seen.time):
            self.objective = wanted
            self.switches.append(seen.time)
        return self.objective

    def _smooth(self, seen: Observation) -> None:
        if self._seen is None:
            self._queue, self._utilization = seen.queue, seen.utilization
        else:
            passed = max(0.0, seen.time - self._seen)
            quick = 1.0 - math.exp(-passed / self.smoothing)
            slow = 1.0 - math.exp(-passed / self.patience)
            self._queue += quick * (seen.queue - self._queue)
            self._utilization += slow * (seen.utilization - self._utilization)
        self._seen = seen.time

    def _wanted(self) -> Objective:
        if self.objective == "latency":
            full = self._utilization > self.busy_above and self._queue > self.queue_below
            return "throughput" if full or self._queue > self.queue_above else "latency"
        # The same load would keep the latency plan busier, by what the other plan is faster.
        calm = self._queue < self.queue_below
        return (
            "latency"
            if calm and self._utilization * self.speedup < self.idle_below
            else ("throughput")
        )

    def _may_switch(self, now: float) -> bool:
        if self.switches and now - self.switches[-1] < self.stay:
            return False
        recent = [when for when in self.switches if now - when < self.window]
        # The last switch that is allowed is one to throughput: that plan survives any load
        # that the other does.
        kept = 0 if self.objective == "latency" else 2
        return len(recent) < self.most_switches - kept


@dataclass(frozen=True)
class Phase:
    """A stretch of time with requests at one rate."""

    seconds: float
    rate: float  # requests a second


@dataclass(frozen=True)
class Served:
    """What became of the requests under one policy."""

    arrived: Floats
    latency: Floats
    switches: tuple[float, ...] = ()
    modes: tuple[tuple[float, float], ...] = ()  # time, 1.0 where throughput was chosen

    def mean(self, begin: float, end: float) -> float:
        """Mean latency of the requests that arrived in a stretch of time."""
        inside = (self.arrived >= begin) & (self.arrived < end)
        return float(self.latency[inside].mean()) if inside.any() else 0.0


Decide = Callable[[Observation], Objective]


def arrivals(phases: Sequence[Phase], seed: int = 1) -> list[float]:
    """Times of Poisson arrivals."""
    generator = np.random.default_rng(seed)
    times, begin = [], 0.0
    for phase in phases:
        now = begin
        while (now := now + float(generator.exponential(1.0 / phase.rate))) < begin + phase.seconds:
            times.append(now)
        begin += phase.seconds
    return times


class _Open:
    """An open loop: each request runs its jobs one after another under the plan of its start."""

    def __init__(
        self,
        problem: Problem,
        plans: dict[Objective, Assignment],
        decide: Decide,
        every: float = 0.05,
    ) -> None:
        self.simulation = Simulation(problem, [], True, False, 0.0)
        self.scripts = {
            name: tuple(one for one in compile_job(problem, plan) if one.stretches)
            for name, plan in plans.items()
        }
        self.decide, self.every = decide, every
        self.under_way = 0
        self.mode: Objective = "latency"
        self.latencies: dict[int, float] = {}
        self.modes: list[tuple[float, float]] = []
        self.busy_before = 0.0

    def run(self, times: Sequence[float]) -> Served:
        one = self.simulation
        for number, when in enumerate(times):
            one.at(when, partial(self._arrive, number))
        ticks = np.arange(self.every, times[-1], self.every)
        for tick in ticks:
            one.at(float(tick), self._tick)
        while one.events:
            now, _, action = heapq.heappop(one.events)
            action(now)
        latency = np.array([self.latencies[i] for i in range(len(times))])
        return Served(np.array(times), latency, modes=tuple(self.modes))

    def _arrive(self, number: int, now: float) -> None:
        self.under_way += 1
        self._next(number, self.scripts[self.mode], now, now)

    def _next(self, number: int, left: Sequence[Script], begun: float, now: float) -> None:
        if not left:
            self.under_way -= 1
            self.latencies[number] = now - begun
            return
        script, rest = left[0], left[1:]
        stream = Stream(number, script, now, lambda when: self._next(number, rest, begun, when))
        self.simulation.start(stream, now)

    def _tick(self, now: float) -> None:
        busy = max(server.busy for server in self.simulation.devices)
        utilization = min(1.0, (busy - self.busy_before) / self.every)
        self.busy_before = busy
        waiting = max(0.0, self.under_way - 2.0)
        self.mode = self.decide(Observation(now, waiting, utilization))
        self.modes.append((now, float(self.mode == "throughput")))


def serve(
    problem: Problem,
    plans: dict[Objective, Assignment],
    times: Sequence[float],
    decide: Decide,
) -> Served:
    """Requests that arrive at given times, each under the plan that `decide` wants then."""
    return _Open(problem, plans, decide).run(times)


def fixed(objective: Objective) -> Decide:
    """A policy that never changes."""

    def decide(seen: Observation) -> Objective:
        return objective

    return decide


__all__ = ["Chooser", "Observation", "Phase", "Served", "arrivals", "fixed", "serve"]
