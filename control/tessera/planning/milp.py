# SPDX-License-Identifier: Apache-2.0
"""The placement problem as a mixed-integer linear program for HiGHS.

x[n, d]      node n runs on device d (binary)
s[v, a, b]   value v travels from a to b
h[m, d]      buffer m is held by d

Devices that nothing tells apart are one d in the relaxation: the mean of all ways to exchange
them is a solution as good as any, so that the bound is the same and the program small.

throughput   minimize the load of the busiest device or port
latency      minimize launches and transfers of one unit, one after another
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from tessera.planning import clock
from tessera.planning.problem import Assignment, Floats, InfeasibleError, Objective, Problem, Value
from tessera.planning.rounding import Kinds, apart

INFINITY = highspy.kHighsInf
SIMPLEX_SECONDS = 2.5
LARGE_PROGRAM = 12_000  # columns
SETTLED = 0.999  # share above which a node counts as placed
NOTHING_FITS = "no placement fits: memory, rules and what kernels need exclude each other"
LARGE = 0.25  # of a device's part of all work: nodes that may bound the period alone
SERIAL = 1e-3  # the dual of a stream's row above which it bounds the period
TINY = 1e-4  # weight of the work that moves or waits, beside the objective's own


@functools.cache
def _quiet_start() -> None:
    """HiGHS prints a banner when its first solver is made, before it can be told not to."""
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        highspy.Highs()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


def quiet_solver() -> highspy.Highs:
    """A solver that prints nothing."""
    _quiet_start()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    return solver


class SolverError(Exception):
    """HiGHS gave up for a reason that the problem does not explain."""


@dataclass(frozen=True)
class Solution:
    """What HiGHS found. `bound`: no placement is better, in seconds."""

    assignment: Assignment | None  # None: only the bound is known
    shares: Floats | None  # of each node on each device, of the relaxed problem
    bound: float
    optimal: bool
    seconds: float
    serial: tuple[str, ...] = ()  # streams that bound the relaxation


@dataclass
class Rows:
    """Constraints, row by row."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, lower: float, upper: float, index: Sequence[int], value: Sequence[float]) -> None:
        self.lower.append(lower)
        self.upper.append(upper)
        self.index.extend(index)
        self.value.extend(value)
        self.start.append(len(self.index))

    def into(self, lp: highspy.HighsLp) -> None:
        lp.row_lower_, lp.row_upper_ = np.array(self.lower), np.array(self.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self.index, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self.value)


@dataclass
class Extra:
    """Columns (seconds, no less than 0) and rows beside those of a program."""

    columns: int = 0
    rows: Rows = field(default_factory=Rows)

    def column(self, model: Model) -> int:
        self.columns += 1
        return model.columns + self.columns - 1

    def into(self, solver: highspy.Highs) -> None:
        none = np.zeros(0)
        for _ in range(self.columns):
            solver.addCol(0.0, 0.0, INFINITY, 0, none.astype(np.int32), none)
        rows = self.rows
        solver.addRows(
            len(rows.lower), np.array(rows.lower), np.array(rows.upper), len(rows.index),
            np.array(rows.start[:-1], dtype=np.int32), np.array(rows.index, dtype=np.int32),
            np.array(rows.value),
        )  # fmt: skip


class Model:
    """The program of one problem; ties have to be contracted before."""

    def __init__(self, problem: Problem, objective: Objective, kinds: Kinds | None = None) -> None:
        self.problem, self.objective = problem, objective
        self.kinds = kinds or apart(problem)
        self.devices, self.nodes = self.kinds.size, len(problem.nodes)
        chosen = [one[0] for one in self.kinds.members]
        self.pairs = [(a, b) for a in range(self.devices) for b in range(self.devices) if a != b]
        self.first_travel = self.nodes * self.devices
        self.first_held = self.first_travel + len(problem.values) * len(self.pairs)
        self.period = self.first_held + len(problem.buffers) * self.devices
        self.columns = self.period + 1
        self.loads, self.allowed = problem.loads[:, chosen], problem.allowed()[:, chosen]
        self.links = {pair: problem.machine.links[self.kinds.link(*pair)] for pair in self.pairs}
        # Seconds are scaled so that the best single device takes 1000.
        allowed = np.where(self.allowed, self.loads, np.inf)
        self.scale = 1000.0 / max(1e-12, float(allowed.min(axis=1).sum()))
        self.rows = Rows()
        self.stream_rows: dict[str, int] = {}
        self._build()

    def placed(self, node: int, device: int) -> int:
        """The column of the share of a node that a device has."""
        return node * self.devices + device

    def travels(self, value: int, pair: int) -> int:
        """The column of the share of a value that travels between a pair of devices."""
        return self.first_travel + value * len(self.pairs) + pair

    def _h(self, buffer: int, device: int) -> int:
        return self.first_held + buffer * self.devices + device

    def _build(self) -> None:
        self._assignment_rows()
        self._travel_rows()
        self._memory_rows()
        self._load_rows()

    def _assignment_rows(self) -> None:
        for node in range(self.nodes):
            index = [self.placed(node, device) for device in range(self.devices)]
            self.rows.add(1.0, 1.0, index, [1.0] * self.devices)

    def _travel_rows(self) -> None:
        """A value travels to b from elsewhere when a consumer is on b and its producer is not."""
        for v, value in enumerate(self.problem.values):
            for b in range(self.devices):
                arriving = [self.travels(v, p) for p, pair in enumerate(self.pairs) if pair[1] == b]
                for consumer in value.consumers:
                    self.rows.add(
                        0.0, INFINITY,
                        [*arriving, self.placed(value.producer, b), self.placed(consumer, b)],
                        [1.0] * len(arriving) + [1.0, -1.0],
                    )  # fmt: skip
            if self.devices > 2:
                self._source_rows(v, value)

    def _source_rows(self, v: int, value: Value) -> None:
        """It travels from where it was made, and to as many places as it has consumers at most.
        With two devices nothing else is possible.
        """
        most = float(min(self.devices - 1, len(value.consumers)))
        for a in range(self.devices):
            leaving = [self.travels(v, p) for p, pair in enumerate(self.pairs) if pair[0] == a]
            self.rows.add(
                -INFINITY, 0.0,
                [*leaving, self.placed(value.producer, a)], [1.0] * len(leaving) + [-most],
            )  # fmt: skip

    def _memory_rows(self) -> None:
        total = sum(buffer.size for buffer in self.problem.buffers)
        for device in range(self.devices):
            room = self.problem.machine.memory(self.kinds.first(device)) * self.kinds.sizes[device]
            if total <= room:
                continue
            index, value = [], []
            for m, buffer in enumerate(self.problem.buffers):
                index.append(self._h(m, device))
                value.append(buffer.size / 1e9)
                for reader in buffer.readers:
                    self.rows.add(
                        0.0,
                        INFINITY,
                        [self._h(m, device), self.placed(reader, device)],
                        [1.0, -1.0],
                    )
            self.rows.add(-INFINITY, room / 1e9, index, value)

    def _load_rows(self) -> None:
        """The period is no shorter than any device's or port's load."""
        for device in range(self.devices):
            nodes = np.arange(self.nodes)
            index = [*(nodes * self.devices + device).tolist(), self.period]
            copies = self.kinds.sizes[device]
            loads = [*(self.loads[:, device] * self.scale).tolist(), -copies]
            self.rows.add(-INFINITY, 0.0, index, loads)
            for end in (0, 1):
                ports = self._port(device, end)
                if ports[0]:
                    room = copies * self.problem.slack
                    index, loads = [*ports[0], self.period], [*ports[1], -room]
                    self.rows.add(-INFINITY, 0.0, index, loads)
        for stream in self.problem.streams:
            self._stream_row(stream)
        self._large_nodes()

    def _large_nodes(self) -> None:
        """A node is on one device only: its time there is part of that device's load."""
        fastest = np.where(self.allowed, self.loads, np.inf).min(axis=1)
        share = LARGE * float(fastest.sum()) / self.problem.machine.size
        for n in np.flatnonzero(fastest > share):
            index = [*(self.placed(int(n), device) for device in range(self.devices)), self.period]
            self.rows.add(-INFINITY, 0.0, index, [*(self.loads[n] * self.scale).tolist(), -1.0])

    def _stream_row(self, stream: str) -> None:
        """A unit in flight takes its jobs one launch after another; so many are in flight."""
        index, seconds = self.stream_terms(stream)
        room = self.problem.in_flight * self.problem.slack
        self.stream_rows[stream] = len(self.rows.lower)
        self.rows.add(-INFINITY, 0.0, [*index, self.period], [*seconds, -room])

    def stream_terms(self, stream: str) -> tuple[list[int], list[float]]:
        """Columns, and the scaled seconds that they add to one unit's stream."""
        index: list[int] = []
        seconds: list[float] = []
        for n, node in enumerate(self.problem.nodes):
            if node.job == stream:
                index += [self.placed(n, device) for device in range(self.devices)]
                seconds += (self.loads[n] * self.scale).tolist()
        for v, value in enumerate(self.problem.values):
            if self.problem.stream_of(value) == stream:
                for p, pair in enumerate(self.pairs):
                    link = self.links[pair]
                    time = value.count * (link.time(value.size) + link.latency)
                    index.append(self.travels(v, p))
                    seconds.append(time * self.scale)
        return index, seconds

    def _port(self, device: int, end: int) -> tuple[list[int], list[float]]:
        index, seconds = [], []
        for p, pair in enumerate(self.pairs):
            if pair[end] != device:
                continue
            link = self.links[pair]
            for v, value in enumerate(self.problem.values):
                index.append(self.travels(v, p))
                seconds.append(value.count * link.time(value.size) * self.scale)
        return index, seconds

    def _costs(self) -> Floats:
        latency = self.objective == "latency"
        costs = np.zeros(self.columns)
        weight = 1.0 if latency else TINY / self.problem.machine.size
        costs[: self.first_travel] = (self.loads * self.scale * weight).ravel()
        for p, pair in enumerate(self.pairs):
            link = self.links[pair]
            for v, value in enumerate(self.problem.values):
                seconds = link.time(value.size) + (link.latency if latency else 0.0)
                costs[self.travels(v, p)] = value.count * seconds * self.scale * weight
        costs[self.period] = 0.0 if latency else 1.0
        return costs

    def _bounds(self) -> tuple[Floats, Floats]:
        lower, upper = np.zeros(self.columns), np.ones(self.columns)
        upper[: self.first_travel] = self.allowed.ravel().astype(np.float64)
        upper[self.first_held : self.period] = np.tile(self.kinds.sizes, len(self.problem.buffers))
        upper[self.period] = INFINITY
        if self.problem.home_holds_all:
            for m in range(len(self.problem.buffers)):
                lower[self._h(m, 0)] = 1.0
        return lower, upper

    def highs(self, integral: bool, time_limit: float, gap: float) -> highspy.Highs:
        """A solver with the program in it."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(self.rows.lower)
        lp.col_cost_ = self._costs()
        lp.col_lower_, lp.col_upper_ = self._bounds()
        self.rows.into(lp)
        if integral:
            kinds = [highspy.HighsVarType.kContinuous] * self.columns
            kinds[: self.first_travel] = [highspy.HighsVarType.kInteger] * self.first_travel
            lp.integrality_ = kinds
        solver = quiet_solver()
        solver.setOptionValue("time_limit", clock.solver_limit(max(0.01, time_limit)))
        solver.setOptionValue("mip_rel_gap", gap)
        solver.passModel(lp)
        return solver

    def start_values(self, assignment: Assignment) -> Floats:
        """The values of x and what follows from them, for a warm start."""
        values = np.zeros(self.columns)
        values[np.arange(self.nodes) * self.devices + assignment] = 1.0
        for v, value in enumerate(self.problem.values):
            source = int(assignment[value.producer])
            for target in {int(assignment[i]) for i in value.consumers} - {source}:
                values[self.travels(v, self.pairs.index((source, target)))] = 1.0
        for m, buffer in enumerate(self.problem.buffers):
            for device in {int(assignment[i]) for i in buffer.readers}:
                values[self._h(m, device)] = 1.0
            if self.problem.home_holds_all:
                values[self._h(m, 0)] = 1.0
        from tessera.planning.objective import evaluate

        values[self.period] = evaluate(self.problem, assignment).period * self.scale
        return values

    def shares_of(self, values: npt.NDArray[Any]) -> Floats:
        return np.asarray(values[: self.first_travel]).reshape(self.nodes, self.devices)


def relax(model: Model, time_limit: float, extra: Extra | None = None) -> Solution:
    """The linear relaxation: a bound, and shares to round from.

    Simplex first; where it is slow, and for large programs, the interior point method.
    Raises InfeasibleError when not even shares of nodes fit, SolverError.
    """
    begun = clock.now()
    large = model.columns > LARGE_PROGRAM
    solver = _relaxed(
        model, time_limit if large else min(SIMPLEX_SECONDS, time_limit), extra, large
    )
    if solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit and not large:
        solver = _relaxed(model, time_limit - (clock.now() - begun), extra, True)
    seconds = clock.now() - begun
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        raise InfeasibleError(NOTHING_FITS)
    if status == highspy.HighsModelStatus.kTimeLimit:
        return Solution(None, None, 0.0, False, seconds)
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS: {solver.modelStatusToString(status)}")
    values = np.asarray(solver.getSolution().col_value)
    duals = solver.getSolution().row_dual
    serial = tuple(name for name, row in model.stream_rows.items() if abs(duals[row]) > SERIAL)
    bound = _certain_bound(model, float(solver.getInfo().objective_function_value))
    return Solution(None, model.shares_of(values), bound, True, seconds, serial)


def _relaxed(model: Model, time_limit: float, extra: Extra | None, interior: bool) -> highspy.Highs:
    """The solver when it is through, or out of time."""
    solver = model.highs(False, time_limit, 0.0)
    if extra is not None:
        extra.into(solver)
    if interior:
        solver.setOptionValue("solver", "ipm")
        solver.setOptionValue("run_crossover", "off")
        solver.setOptionValue("presolve", "off")
    solver.run()
    return solver


def _certain_bound(model: Model, objective: float) -> float:
    """The bound in seconds, without what the objective holds beside its own.

    For throughput that is TINY / devices of all loads and transfers; their sum is at most
    twice the period times the devices, whatever the placement: so period * (1 + 2 TINY) is
    at least the objective.
    """
    part = 0.0 if model.objective == "latency" else 2.0 * TINY
    return max(0.0, objective) / (1.0 + part) / model.scale


def solve(
    model: Model,
    time_limit: float,
    gap: float = 0.005,
    start: Assignment | None = None,
    fixed: Floats | None = None,
) -> Solution:
    """The integral problem, from a warm start when there is one. Raises InfeasibleError.

    `fixed`: shares of a relaxed solution; nodes that lie on one device there stay on it, and
    the bound says nothing of the whole problem then.
    """
    begun = clock.now()
    solver = model.highs(True, time_limit, gap)
    if fixed is not None:
        settled = np.flatnonzero(fixed.max(axis=1) > SETTLED)
        columns = settled * model.devices + fixed[settled].argmax(axis=1)
        ones = np.ones(len(columns))
        solver.changeColsBounds(len(columns), columns.astype(np.int32), ones, ones)
    if start is not None:
        warm = highspy.HighsSolution()
        warm.col_value = model.start_values(start).tolist()
        solver.setSolution(warm)
    solver.run()
    seconds = clock.now() - begun
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible and fixed is None:
        raise InfeasibleError(NOTHING_FITS)
    bound = _certain_bound(model, float(info.mip_dual_bound))
    optimal = status == highspy.HighsModelStatus.kOptimal
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solution(None, None, bound, False, seconds)
    shares = model.shares_of(np.asarray(solver.getSolution().col_value))
    return Solution(shares.argmax(axis=1).astype(np.int64), shares, bound, optimal, seconds)


def fractional_bound(problem: Problem) -> float:
    """Seconds of a unit when launches may be shared out at will and nothing has to travel."""
    loads = np.where(problem.allowed(), problem.loads, np.inf)
    devices = problem.machine.size
    if devices == 1:
        return float(loads.sum())
    solver = quiet_solver()
    scale = 1000.0 / max(1e-12, float(loads.min(axis=1).sum()))
    period = solver.addVariable(0.0, INFINITY, 1.0)
    totals: list[list[Any]] = [[] for _ in range(devices)]
    for row in loads:
        shares = []
        for device in range(devices):
            if np.isfinite(row[device]):
                share = solver.addVariable(0.0, 1.0)
                totals[device].append(share * float(row[device] * scale))
                shares.append(share)
        solver.addConstr(solver.qsum(shares) == 1)
    for terms in totals:
        if terms:
            solver.addConstr(solver.qsum(terms) <= period)
    solver.run()
    return float(solver.getInfo().objective_function_value) / scale


def best_rate(problems: Sequence[Problem]) -> float:
    """Outputs a second when units of all these problems, of one machine, run side by side in
    the best proportion, launches may be shared out at will, and nothing has to travel.

    Variables are how often a second each launch runs on each device; none works more than all
    the time, and all launches of a problem run as often.
    """
    if not problems:
        return 0.0
    devices = problems[0].machine.size
    sizes = [len(one.nodes) for one in problems]
    first = np.concatenate([[0], np.cumsum(sizes)])
    nodes, columns = int(first[-1]), int(first[-1]) * devices
    loads = np.concatenate([np.where(one.allowed(), one.loads, 0.0) for one in problems])
    scale = 1.0 / max(1e-30, float(loads.max()))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns + len(problems), nodes + devices
    outputs = np.array([one.outputs for one in problems])
    lp.col_cost_ = np.concatenate([np.zeros(columns), -outputs / outputs.max()])
    allowed = np.concatenate([one.allowed() for one in problems])
    lp.col_lower_ = np.zeros(columns + len(problems))
    lp.col_upper_ = np.concatenate(
        [np.where(allowed, INFINITY, 0.0).ravel(), np.full(len(problems), INFINITY)]
    )
    rows = Rows()
    for p, size in enumerate(sizes):
        for n in range(first[p], first[p] + size):
            index = [*range(n * devices, (n + 1) * devices), columns + p]
            rows.add(0.0, 0.0, index, [1.0] * devices + [-1.0])
    for device in range(devices):
        index = list(range(device, columns, devices))
        rows.add(-INFINITY, 1.0, index, (loads[:, device] * scale).tolist())
    rows.into(lp)
    solver = quiet_solver()
    solver.passModel(lp)
    solver.run()
    return -float(solver.getInfo().objective_function_value) * float(outputs.max()) * scale
