# SPDX-License-Identifier: Apache-2.0
"""Runs placements over time: units of work in flight, queues at devices and ports, transfers
that overlap with launches.

Every unit in flight (a slot) runs its main job again and again; side jobs (prefill) run
beside it, as often as their count says, in a stream of their own. A stream is serial: a
launch waits for the one before it and for what it reads from other devices. A device serves
main jobs in order of arrival, and side jobs launch by launch: in streams of lower priority,
or, where `fair`, in turn with main jobs. A port serves transfers in order of arrival.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tessera.planning.dataflow import flows
from tessera.planning.launches import Job
from tessera.planning.problem import Assignment, Floats, Problem

AHEAD = 2  # side jobs of a slot that may be under way before its main job has to wait
CREDIT = 2e-3  # seconds that main or side jobs may be behind the other on a device
QUANTUM = 200e-6  # seconds: shorter launches of side jobs are served together


@dataclass(frozen=True)
class Transfer:
    """Bytes that go from one device to another before a stretch can start."""

    source: int
    target: int
    size: float
    ready: int  # stretch of the job whose end makes it possible; -1: the job's start


@dataclass(frozen=True)
class Stretch:
    """Launches in a row on one device."""

    device: int
    seconds: float
    needs: tuple[Transfer, ...]
    label: str = ""
    outgoing: tuple[Transfer, ...] = ()  # for other jobs: nobody here waits for them
    launches: int = 1


@dataclass(frozen=True)
class Script:
    """A job under a placement."""

    name: str
    count: float
    stretches: tuple[Stretch, ...]


def compile_job(problem: Problem, assignment: Assignment) -> tuple[Script, ...]:
    """What each job of a problem does under a placement.

    The problem has to come from `build`: the scripts follow its launches one by one.
    """
    if problem.folded is None:
        raise ValueError("the problem has no launch sequence to follow")
    launches = [launch for job in problem.jobs for launch in job.launches]
    node_of = problem.folded.node_of
    device_of = [int(assignment[node_of[i]]) for i in range(len(launches))]
    bounds = np.cumsum([0, *(len(job.launches) for job in problem.jobs)])
    job_of = np.searchsorted(bounds, np.arange(len(launches)), side="right") - 1
    stretch_of = _stretches(device_of, bounds)
    inside: dict[int, dict[tuple[int, int], float]] = {}
    outgoing: dict[int, dict[tuple[int, int], float]] = {}
    for flow in flows(launches):
        source = device_of[flow.producer]
        first: dict[int, int] = {}  # by target: the consumer that needs it first
        for consumer in flow.consumers:
            if device_of[consumer] != source:
                first.setdefault(device_of[consumer], consumer)
        for target, consumer in first.items():
            if job_of[consumer] == job_of[flow.producer] and consumer > flow.producer:
                key = (stretch_of[flow.producer], source)
                sizes = inside.setdefault(stretch_of[consumer], {})
            else:
                key = (source, target)
                sizes = outgoing.setdefault(stretch_of[flow.producer], {})
            sizes[key] = sizes.get(key, 0.0) + flow.size
    times = [problem.nodes[node_of[i]].times[device_of[i]].time for i in range(len(launches))]
    return tuple(
        _script(
            job, range(bounds[j], bounds[j + 1]), device_of, stretch_of, times, inside, outgoing
        )
        for j, job in enumerate(problem.jobs)
    )


def _stretches(device_of: Sequence[int], bounds: np.ndarray) -> list[int]:
    """The number of each launch's stretch, counted over all jobs."""
    begins = set(bounds.tolist())
    number, result = -1, []
    for i, device in enumerate(device_of):
        if i in begins or device != device_of[i - 1]:
            number += 1
        result.append(number)
    return result


def _script(
    job: Job,
    positions: range,
    device_of: Sequence[int],
    stretch_of: Sequence[int],
    times: Sequence[float],
    inside: dict[int, dict[tuple[int, int], float]],
    outgoing: dict[int, dict[tuple[int, int], float]],
) -> Script:
    offset = stretch_of[positions.start]
    members: dict[int, list[int]] = {}
    for i in positions:
        members.setdefault(stretch_of[i], []).append(i)
    stretches = []
    for number, launched in members.items():
        device = device_of[launched[0]]
        needs = tuple(
            Transfer(source, device, size, ready - offset)
            for (ready, source), size in inside.get(number, {}).items()
        )
        leaving = tuple(
            Transfer(source, target, size, number - offset)
            for (source, target), size in outgoing.get(number, {}).items()
        )
        seconds = sum(times[i] for i in launched)
        label = _label([(job.launches[i - positions.start].role, times[i]) for i in launched])
        stretches.append(Stretch(device, seconds, needs, label, leaving, len(launched)))
    return Script(job.name, job.count, tuple(stretches))


def _label(launched: Sequence[tuple[str, float]]) -> str:
    """The role that most of a stretch's time goes to, or `mixed`."""
    times: dict[str, float] = {}
    for role, seconds in launched:
        times[role] = times.get(role, 0.0) + seconds
    role = max(times, key=lambda name: times[name])
    return role if times[role] >= 0.8 * sum(times.values()) else "mixed"


@dataclass
class Interval:
    """Something that a device or a port did, for timelines."""

    resource: str  # device 0, out 0, in 1
    begin: float
    end: float
    job: str
    label: str
    slot: int


@dataclass(frozen=True)
class Result:
    """Figures of a run, after its start-up has been left out."""

    rate: float  # outputs a second
    busy: Floats  # share of the time, by device
    ports: Floats  # share of the time that each port sends
    latency: float  # seconds of a main job, mean
    units: int
    trace: tuple[Interval, ...] = ()


class _Server:
    """Serves requests one after another, in order of arrival."""

    def __init__(self) -> None:
        self.free_at = 0.0
        self.busy = 0.0


@dataclass
class Stream:
    """One job that is under way."""

    slot: int
    script: Script
    begun: float
    done: Callable[[float], None]
    side: bool = False
    index: int = 0
    ended: dict[int, float] = field(default_factory=lambda: {-1: 0.0})


@dataclass
class _Turn:
    """A stretch that waits for its device."""

    stretch: Stretch
    stream: Stream
    ended: Callable[[float], None]
    left: float  # seconds


@dataclass(frozen=True)
class Flight:
    """Units that are under way under one placement."""

    scripts: tuple[Script, ...]
    slots: int
    outputs: float = 1.0  # of a unit
    period: float = 0.0  # seconds between starts of units, at least: a share of the requests


class Simulation:
    """One run; see `simulate`."""

    def __init__(
        self,
        problem: Problem,
        flights: Sequence[Flight],
        prefetch: bool,
        fair: bool,
        record: float,
    ) -> None:
        self.machine = problem.machine
        self.prefetch, self.fair, self.record = prefetch, fair, record
        self.devices = [_Server() for _ in range(self.machine.size)]
        self.senders = [_Server() for _ in range(self.machine.size)]
        self.receivers = [_Server() for _ in range(self.machine.size)]
        self.queues: list[tuple[deque[_Turn], deque[_Turn]]] = [
            (deque(), deque()) for _ in range(self.machine.size)
        ]
        self.had = [[0.0, 0.0] for _ in range(self.machine.size)]
        self.running = [False] * self.machine.size
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.number = 0
        self.finished: list[tuple[float, float, float]] = []  # when, latency, outputs
        self.trace: list[Interval] = []
        self.slots: list[_Slot] = []
        for flight in flights:
            gate = _Gate(flight.period)
            for i in range(flight.slots):
                self.slots.append(_Slot(self, len(self.slots), flight, i / flight.slots, gate))

    def at(self, when: float, action: Callable[[float], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (when, self.number, action))

    def run(self, units: int) -> None:
        for slot in self.slots:
            slot.fill(0.0)
            slot.next_unit(0.0)
        while self.events and len(self.finished) < units:
            now, _, action = heapq.heappop(self.events)
            action(now)

    def start(self, stream: Stream, now: float) -> None:
        """The next stretch of a stream: first what it needs, then its turn on the device."""
        if stream.index == len(stream.script.stretches):
            stream.done(now)
            return
        stretch = stream.script.stretches[stream.index]
        arrival = now
        for need in stretch.needs:
            ready = stream.ended[need.ready] if self.prefetch else now
            arrival = max(arrival, self._transfer(need, max(ready, stream.begun), stream))
        if arrival > now:
            self.at(arrival, lambda when: self._enqueue(stream, stretch, when))
        else:
            self._enqueue(stream, stretch, now)

    def _transfer(self, need: Transfer, ready: float, stream: Stream) -> float:
        """When the bytes are there. Ports keep the order in which transfers are asked for."""
        link = self.machine.links[need.source, need.target]
        out, into = self.senders[need.source], self.receivers[need.target]
        begin = max(ready, out.free_at, into.free_at)
        seconds = link.time(need.size)
        out.free_at = into.free_at = begin + seconds
        out.busy += seconds
        into.busy += seconds
        self._note(f"link {need.source}-{need.target}", begin, begin + seconds, stream, "copy")
        return begin + seconds + link.latency

    def _enqueue(self, stream: Stream, stretch: Stretch, now: float) -> None:
        def ended(when: float) -> None:
            stream.ended[stream.index] = when
            for leaving in stretch.outgoing:
                self._transfer(leaving, when, stream)
            stream.index += 1
            self.start(stream, when)

        turn = _Turn(stretch, stream, ended, stretch.seconds)
        self.queues[stretch.device][int(stream.side)].append(turn)
        if not self.running[stretch.device]:
            self._serve(stretch.device, now)

    def _serve(self, device: int, now: float) -> None:
        """The next stretch of a main job; of a side job only the next launch."""
        first, second = self.queues[device]
        queue = first or second
        if first and second:
            had = self.had[device]
            queue = first if not self.fair or had[0] <= had[1] else second
        self.running[device] = bool(queue)
        if not queue:
            return
        turn = queue.popleft()
        whole = turn.stretch.seconds / turn.stretch.launches
        seconds = min(turn.left, max(whole, QUANTUM)) if turn.stream.side else turn.left
        turn.left -= seconds
        had = self.had[device]
        had[int(turn.stream.side)] += seconds
        # Who has not asked for a while has no claim to all that time.
        most = max(had)
        self.had[device] = [max(one, most - CREDIT) for one in had]
        self.devices[device].busy += seconds
        self._note(f"device {device}", now, now + seconds, turn.stream, turn.stretch.label)

        def finish(when: float) -> None:
            if turn.left > 1e-12:
                second.append(turn)
            else:
                turn.ended(when)
            self._serve(device, when)

        self.at(now + seconds, finish)

    def _note(self, name: str, begin: float, end: float, stream: Stream, label: str) -> None:
        if begin < self.record:
            self.trace.append(Interval(name, begin, end, stream.script.name, label, stream.slot))


def _split(flight: Flight) -> tuple[Script, list[Script]]:
    """The main job, the one that runs once a unit, and the side jobs."""
    scripts = [script for script in flight.scripts if script.stretches]
    main = max(scripts, key=lambda script: (script.count == 1.0, script.count))
    return main, [script for script in scripts if script is not main]


class _Gate:
    """Lets units of a flight start no more often than its share of the requests allows."""

    def __init__(self, period: float) -> None:
        self.period, self.next = period, 0.0

    def enter(self, now: float) -> float:
        """When a unit that wants to start now may."""
        start = max(now, self.next)
        self.next = start + self.period
        return start


class _Slot:
    """A unit in flight: starts its main job again when it ends, and side jobs when due."""

    def __init__(
        self, simulation: Simulation, number: int, flight: Flight, share: float, gate: _Gate
    ) -> None:
        self.simulation, self.number, self.gate = simulation, number, gate
        self.outputs = flight.outputs
        self.main, self.side = _split(flight)
        # Slots that start together would ask for all their side jobs at once: hence `share`.
        self.due = {script.name: share for script in self.side}
        self.pending = 0
        self.blocked: float | None = None

    def fill(self, now: float) -> None:
        """As many side jobs as may be under way: main jobs get no start that does not last."""
        for script in self.side:
            for _ in range(AHEAD if script.count < 1 else 1):
                self.pending += 1
                stream = Stream(self.number, script, now, self._side_done, True)
                self.simulation.start(stream, now)

    def next_unit(self, now: float) -> None:
        """Main job; a side job that is due while its forerunner still runs holds it up."""
        wanted = [s for s in self.side if self.due[s.name] + s.count / self.main.count >= 1.0]
        if wanted and self.pending >= AHEAD:
            self.blocked = now
            return
        for script in self.side:
            self.due[script.name] += script.count / self.main.count
            while self.due[script.name] >= 1.0:
                self.due[script.name] -= 1.0
                self.pending += 1
                stream = Stream(self.number, script, now, self._side_done, True)
                self.simulation.start(stream, now)

        begun = self.gate.enter(now)

        def done(when: float) -> None:
            self.simulation.finished.append((when, when - begun, self.outputs))
            self.next_unit(when)

        stream = Stream(self.number, self.main, begun, done)
        self.simulation.at(begun, lambda when: self.simulation.start(stream, when))

    def _side_done(self, now: float) -> None:
        self.pending -= 1
        if self.blocked is not None and self.pending < AHEAD:
            self.blocked = None
            self.next_unit(now)


def simulate(
    problem: Problem,
    flights: Sequence[Flight],
    units: int = 0,
    prefetch: bool = True,
    fair: bool = False,
    record: float = 0.0,
) -> Result:
    """Steady-state figures of placements that share the machine, each with units in flight.

    `units`: main jobs to run; 0: enough for some of the rarest side job of each slot.
    `record`: seconds from the start of which a timeline is kept.
    """
    slots = sum(flight.slots for flight in flights)
    if units == 0:
        rarest = min(s.count for f in flights for s in f.scripts if s.stretches and s.count > 0)
        units = int(slots * min(200.0, max(24.0, 6.0 / rarest)))
    one = Simulation(problem, flights, prefetch, fair, record)
    one.run(units)
    ends = np.array([when for when, _, _ in one.finished])
    if len(ends) < units:
        raise RuntimeError("the simulation stopped before its end")
    warm = len(ends) // 4
    span = float(ends[-1] - ends[warm])
    total = max(float(ends[-1]), 1e-30)
    return Result(
        rate=sum(outputs for _, _, outputs in one.finished[warm + 1 :]) / max(span, 1e-30),
        busy=np.array([server.busy for server in one.devices]) / total,
        ports=np.array([server.busy for server in one.senders]) / total,
        latency=float(np.mean([latency for _, latency, _ in one.finished[warm:]])),
        units=len(ends),
        trace=tuple(one.trace),
    )
