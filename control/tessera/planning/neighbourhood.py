# SPDX-License-Identifier: Apache-2.0
"""Some nodes placed anew on some devices, all else as it is: a small integral program."""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from tessera.planning import clock, milp
from tessera.planning.problem import Assignment, Floats, Objective
from tessera.planning.terms import Ints, Lists, Terms, spread, totals

SIDE = 0.02  # weight of the mean load of what the nodes touch, beside that of the busiest


@dataclass
class _Columns:
    """Columns of the program: what each costs every resource, and its value as it is."""

    resources: int
    now: list[float] = field(default_factory=list)
    cost: list[tuple[int, int, float]] = field(default_factory=list)  # resource, column, amount

    def add(self, now: float, costs: list[tuple[int, float]]) -> int:
        self.now.append(now)
        column = len(self.now) - 1
        self.cost += [(resource, column, amount) for resource, amount in costs if amount]
        return column


class Neighbourhood:
    """The placement of `free` nodes on `devices`; what else there is stays on its device."""

    def __init__(self, terms: Terms, objective: Objective, lists: Uses, where: Assignment) -> None:
        self.terms, self.objective, self.lists, self.where = terms, objective, lists, where
        self.there, self.kept = spread(terms, where)
        self.total = totals(terms, where, self.there, self.kept)

    def busy(self) -> Floats:
        """The period that each resource would need for itself: devices, ports out and in,
        streams.
        """
        terms = self.terms
        return np.asarray(self.total[: terms.travel] / terms.limits)

    def best(self, free: Ints, devices: list[int], seconds: float, gap: float) -> Assignment | None:
        """The best placement of these nodes, which are on these devices now, that the solver
        finds; none: none in time.
        """
        return _Program(self, free, devices).solved(seconds, gap)


@dataclass(frozen=True)
class Uses:
    """Who makes, reads and holds what, node by node and the other way round."""

    made: Lists
    used: Lists
    users: Lists
    held: Lists
    holders: Lists

    @classmethod
    def of(cls, terms: Terms) -> Uses:
        values = len(terms.producer)
        return cls(
            Lists.of(terms.producer, np.arange(values), terms.nodes),
            Lists.of(*terms.uses, terms.nodes),
            Lists.of(terms.uses[1], terms.uses[0], values),
            Lists.of(*terms.holds, terms.nodes),
            Lists.of(terms.holds[1], terms.holds[0], len(terms.sizes)),
        )


class _Program:
    def __init__(self, around: Neighbourhood, free: Ints, devices: list[int]) -> None:
        self.around, self.terms, self.where = around, around.terms, around.where
        self.free, self.devices = free, devices
        self.place = {int(node): i for i, node in enumerate(free)}
        self.columns = _Columns(self.terms.resources)
        self.rows = milp.Rows()
        self._nodes()
        lists = around.lists
        values = np.concatenate([lists.made.several(free)[1], lists.used.several(free)[1]])
        for value in np.unique(values):
            self._value(int(value))
        self.memory_rows = bool(len(self.terms.sizes))
        if self.memory_rows:
            for buffer in np.unique(lists.held.several(free)[1]):
                self._buffer(int(buffer))
        self._resources()

    def _x(self, node: int, k: int) -> int:
        return self.place[node] * len(self.devices) + k

    def _nodes(self) -> None:
        terms, streams = self.terms, 3 * self.terms.devices
        for node in self.free:
            ks = []
            for device in self.devices:
                costs = [(device, float(terms.loads[node, device]))]
                costs += [(streams + s, float(t)) for s, t in
                          enumerate(terms.alone[node, :, device]) if t]  # fmt: skip
                ks.append(self.columns.add(float(self.where[node] == device), costs))
            self.rows.add(1.0, 1.0, ks, [1.0] * len(ks))

    def _travel(self, value: int, source: int, target: int) -> list[tuple[int, float]]:
        """What a value on its way costs."""
        terms, devices = self.terms, self.terms.devices
        seconds = float(terms.weight[value] * terms.slow[source, target])
        late = seconds + float(terms.count[value] * terms.late[source, target])
        costs = [(devices + source, seconds), (2 * devices + target, seconds), (terms.travel, late)]
        if terms.stream[value] >= 0:
            costs.append((3 * devices + int(terms.stream[value]), late))
        return costs

    def _value(self, value: int) -> None:
        users = self.around.lists.users[value]
        free = [int(node) for node in users if int(node) in self.place]
        fixed = {int(self.where[node]) for node in users if int(node) not in self.place}
        producer = int(self.terms.producer[value])
        if producer in self.place:
            self._made_here(value, producer, free, fixed)
        else:
            self._made_elsewhere(value, int(self.where[producer]), free, fixed)

    def _made_elsewhere(self, value: int, source: int, free: list[int], fixed: set[int]) -> None:
        for k, target in enumerate(self.devices):
            if target == source or target in fixed:
                continue
            now = float(any(self.where[node] == target for node in free))
            column = self.columns.add(now, self._travel(value, source, target))
            for node in free:
                self.rows.add(0.0, milp.INFINITY, [column, self._x(node, k)], [1.0, -1.0])

    def _made_here(self, value: int, producer: int, free: list[int], fixed: set[int]) -> None:
        leaving: list[list[int]] = [[] for _ in self.devices]
        mine = int(self.where[producer])
        for target in {*(self.devices if free else ()), *fixed}:
            readers = [node for node in free if target in self.devices]
            here = target in fixed or any(self.where[node] == target for node in readers)
            arriving = []
            for k, source in enumerate(self.devices):
                if source == target:
                    continue
                now = float(here and source == mine)
                column = self.columns.add(now, self._travel(value, source, target))
                arriving.append(column)
                leaving[k].append(column)
            index, ones = list(arriving), [1.0] * len(arriving)
            if target in self.devices:
                k = self.devices.index(target)
                index, ones = [*index, self._x(producer, k)], [*ones, 1.0]
            if target in fixed:
                self.rows.add(1.0, milp.INFINITY, index, ones)
                continue
            for node in readers:
                self.rows.add(0.0, milp.INFINITY, [*index, self._x(node, k)], [*ones, -1.0])
        if len(self.devices) > 2 or fixed - set(self.devices):
            for k, columns in enumerate(leaving):
                for column in columns:
                    self.rows.add(-milp.INFINITY, 0.0, [column, self._x(producer, k)], [1.0, -1.0])

    def _buffer(self, buffer: int) -> None:
        holders = self.around.lists.holders[buffer]
        free = [int(node) for node in holders if int(node) in self.place]
        fixed = {int(self.where[node]) for node in holders if int(node) not in self.place}
        size = float(self.terms.sizes[buffer])
        for k, device in enumerate(self.devices):
            if device in fixed or self.terms.held[device]:
                continue
            now = float(any(self.where[node] == device for node in free))
            column = self.columns.add(now, [(self.terms.memory + device, size)])
            for node in free:
                self.rows.add(0.0, milp.INFINITY, [column, self._x(node, k)], [1.0, -1.0])

    def _resources(self) -> None:
        """The period is no shorter than what is touched; memory holds."""
        terms, columns = self.terms, self.columns
        self.scale = 1000.0 / max(float((self.around.total[: terms.travel] / terms.limits).max()),
                                  1e-30)  # fmt: skip
        by_resource: dict[int, tuple[list[int], list[float]]] = {}
        for resource, column, amount in columns.cost:
            index, amounts = by_resource.setdefault(resource, ([], []))
            index.append(column)
            amounts.append(amount)
        latency = self.around.objective == "latency"
        self.period = len(columns.now)
        self.objective = np.zeros(self.period + 1)
        self.objective[self.period] = 0.0 if latency else 1.0
        worst = 0.0
        touched = sum(resource < terms.travel for resource in by_resource)
        for resource, (index, amounts) in by_resource.items():
            values = np.array(amounts)
            rest = float(self.around.total[resource] - values @ np.array(columns.now)[index])
            if resource >= terms.memory:
                room = float(terms.room[resource - terms.memory])
                self.rows.add(-milp.INFINITY, (room - rest) / 1e9, index, (values / 1e9).tolist())
                continue
            if resource == terms.travel:
                if latency:
                    self.objective[index] += values * self.scale
                continue
            limit = float(terms.limits[resource])
            if latency:
                if resource < terms.devices:
                    self.objective[index] += values * self.scale
                continue
            seconds = values * self.scale / limit
            self.rows.add(
                -milp.INFINITY, -rest * self.scale / limit,
                [*index, self.period], [*seconds.tolist(), -1.0],
            )  # fmt: skip
            self.objective[index] += seconds * SIDE / touched
            worst = max(worst, float(self.around.total[resource] / limit))
        self.now = np.array([*columns.now, worst * self.scale])

    def solved(self, seconds: float, gap: float) -> Assignment | None:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.now), len(self.rows.lower)
        lp.col_cost_ = self.objective
        upper = np.ones(len(self.now))
        count = len(self.free) * len(self.devices)
        upper[:count] = self.terms.allowed[self.free][:, self.devices].ravel()
        upper[self.period] = milp.INFINITY
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.now)), upper
        self.rows.into(lp)
        kinds = [highspy.HighsVarType.kContinuous] * len(self.now)
        kinds[:count] = [highspy.HighsVarType.kInteger] * count
        lp.integrality_ = kinds
        solver = milp.quiet_solver()
        solver.setOptionValue("time_limit", clock.brief_limit(seconds))
        solver.setOptionValue("mip_rel_gap", gap)
        solver.passModel(lp)
        warm = highspy.HighsSolution()
        warm.col_value = self.now.tolist()
        solver.setSolution(warm)
        solver.run()
        status = solver.getInfo().primal_solution_status
        if status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = np.asarray(solver.getSolution().col_value)[:count]
        shares: Floats = values.reshape(len(self.free), len(self.devices))
        result = np.array(self.where)
        result[self.free] = np.array(self.devices)[shares.argmax(axis=1)]
        return result
