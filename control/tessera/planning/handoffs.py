# SPDX-License-Identifier: Apache-2.0
"""What hand-offs take at least, which the relaxation does not see.

A relaxation that puts a half of every node on each of two alike devices has nothing to hand
over. A placement has: a device holds a set S of a stream's nodes, and what is made in S and
read outside, or the other way round, travels. Call its seconds cut(S). No device has more than
a period's load; of the sets with no more than that, those with load b have a least cut F(b),
found by dynamic programming along the stream. With w = min F(b) / b, cut(S) >= w load(S) for
whatever S a device holds. Summed over the devices of a kind, that is a row for the program:
every placement keeps it, such shares do not.

The first and the last stretch of a stream are cut on one side only. Their nodes count less, by
as much in all as one side costs, so that the rest may count in full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tessera.planning import milp
from tessera.planning.problem import Floats
from tessera.planning.terms import Ints, Lists, Terms, terms_of

BINS = 320  # that a period's load is counted in
OPEN = 9  # values that the dynamic program keeps in mind at once; others travel for nothing
SAFE = 0.999  # of what is found: single precision
INSIDE = (0.2, 0.8)  # of a stream's load: where its cheapest boundary is looked for
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Stream:
    """A stream's nodes, and the values that it waits for, with their nodes as positions."""

    nodes: Ints
    values: Ints
    members: list[Ints]


@dataclass
class _Walk:
    """The states along a stream: of each open value whether its nodes so far are all outside
    (0), all inside (1), or both (2).
    """

    stream: _Stream
    seconds: Floats  # by value
    states: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros((1, 0), dtype=np.int8))
    open: list[int] = field(default_factory=list)

    def steps(self) -> list[tuple[Ints, Ints, Floats]]:
        """By node: (state, outside) and (state, inside) pairs in the order of the states that
        follow, where each of these begins, and seconds cut (outside and inside, by state).
        """
        members = self.stream.members
        first = np.array([one.min() for one in members], dtype=np.int64)
        last = np.array([one.max() for one in members], dtype=np.int64)
        touched: list[list[int]] = [[] for _ in self.stream.nodes]
        for v in _kept(len(touched), first, last, self.seconds):
            for position in members[v]:
                touched[int(position)].append(v)
        return [self._step(position, mine, first, last) for position, mine in enumerate(touched)]

    def _step(
        self, position: int, mine: list[int], first: Ints, last: Ints
    ) -> tuple[Ints, Ints, Floats]:
        new = [v for v in mine if first[v] == position]
        old = [v for v in mine if first[v] != position]
        both, cut = [], np.zeros((2, len(self.states)))
        for label in (0, 1):
            fresh = np.full((len(self.states), len(new)), label, dtype=np.int8)
            after = np.concatenate([self.states, fresh], axis=1)
            for v in old:
                column = after[:, self.open.index(v)]
                parts = (column != label) & (column != 2)
                cut[label] += self.seconds[v] * parts
                column[parts] = 2
            both.append(after)
        every = [*self.open, *new]
        staying = [i for i, v in enumerate(every) if last[v] > position]
        self.open = [every[i] for i in staying]
        reached = np.concatenate(both)[:, staying]
        codes = reached.astype(np.int64) @ (3 ** np.arange(len(staying), dtype=np.int64))
        order = np.argsort(codes, kind="stable")
        begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
        self.states = reached[order[begins]]
        return order, begins, cut


def _kept(count: int, first: Ints, last: Ints, seconds: Floats) -> list[int]:
    """Values that the states keep: at most OPEN at once, short and dear ones before others."""
    width = np.zeros(count, dtype=np.int64)
    kept = []
    for v in np.argsort((last - first) / np.maximum(seconds, 1e-30), kind="stable"):
        if last[v] > first[v] and width[first[v] : last[v]].max() < OPEN:
            width[first[v] : last[v]] += 1
            kept.append(int(v))
    return kept


def _least_cuts(
    steps: list[tuple[Ints, Ints, Floats]], bins: Ints, extra: Floats, allowed: Bools
) -> Floats:
    """The least cut of the sets of each load, 0 to BINS, with `extra` of each of their nodes."""
    table = np.full((1, BINS + 1), np.inf, dtype=np.float32)
    table[0, 0] = 0.0
    for i, (order, begins, cut) in enumerate(steps):
        states, size = len(table), int(bins[i])
        wide = np.full((2 * states, BINS + 1), np.inf, dtype=np.float32)
        np.add(table, cut[0][:, None], out=wide[:states], casting="same_kind")
        if allowed[i] and size <= BINS:
            inside = (cut[1] + extra[i])[:, None]
            shifted = table[:, : BINS + 1 - size]
            np.add(shifted, inside, out=wide[states:, size:], casting="same_kind")
        table = np.minimum.reduceat(wide[order], begins, axis=0)
    return np.asarray(table.min(axis=0), dtype=np.float64)


def _one_side(stream: _Stream, seconds: Floats, bins: Ints) -> tuple[Floats, float]:
    """What nodes count less, so that both ends of the stream are cut on two sides, too."""
    crossing = np.zeros(len(bins))
    for members, time in zip(stream.members, seconds, strict=True):
        crossing[members.min() : members.max()] += time
    reached = np.cumsum(bins)
    total = int(reached[-1])
    less = np.zeros(len(bins))
    inside = (reached > INSIDE[0] * total) & (reached < INSIDE[1] * total)
    if not inside.any():
        return less, 0.0
    side = float(crossing[inside].min())
    length = min(BINS, total // 2)
    for end in (reached <= length, total - reached + bins <= length):
        if bins[end].sum():
            less[end] += side * bins[end] / bins[end].sum()
    return less, side


class Handoffs:
    """Rows for a program, true for all placements with a period below `period` seconds."""

    def __init__(self, model: milp.Model, streams: tuple[str, ...], period: float) -> None:
        self.model, self.period = model, period
        self.terms = terms_of(model.problem)
        self.extra = milp.Extra()
        for name in streams:
            self._stream(name, self._nodes_and_values(name))

    def _nodes_and_values(self, name: str) -> _Stream:
        terms, problem = self.terms, self.model.problem
        nodes = np.array([i for i, node in enumerate(problem.nodes) if node.job == name])
        place = np.full(terms.nodes, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        users = Lists.of(terms.uses[1], terms.uses[0], len(terms.producer))
        values = np.flatnonzero(terms.stream == problem.streams.index(name))
        members = []
        for v in values:
            inside = place[np.append(users[int(v)], terms.producer[v])]
            members.append(np.unique(inside[inside >= 0]))
        return _Stream(nodes, values, members)

    def _stream(self, name: str, stream: _Stream) -> None:
        """The stream's row again, with what travels between alike devices in it."""
        among = [self._kind(stream, kind) for kind in range(self.model.devices)]
        index, seconds = self.model.stream_terms(name)
        room = self.model.problem.in_flight * self.model.problem.slack
        self.extra.rows.add(
            -milp.INFINITY, 0.0,
            [*index, *among, self.model.period], [*seconds, *([1.0] * len(among)), -room],
        )  # fmt: skip

    def _kind(self, stream: _Stream, kind: int) -> int:
        """The column of the seconds that travel between the devices of a kind."""
        model, terms, device = self.model, self.terms, self.model.kinds.first(kind)
        column = self.extra.column(model)
        loads = terms.loads[stream.nodes, device]
        bins = np.floor(loads / (self.period / BINS)).astype(np.int64)
        seconds = _fastest(terms, stream.values, device)
        if not bins.any() or not len(stream.values):
            return column
        steps = _Walk(stream, seconds).steps()
        less, side = _one_side(stream, seconds, bins)
        for off in [np.zeros(len(bins)), less] if side else [less]:
            cuts = _least_cuts(steps, bins, off, terms.allowed[stream.nodes, device])[1:]
            weight = SAFE * float((cuts / np.arange(1, BINS + 1)).min())
            if np.isfinite(weight) and weight > 0:
                self._row(stream, kind, column, seconds, weight * bins - off)
        return column

    def _row(self, stream: _Stream, kind: int, column: int, seconds: Floats, least: Floats) -> None:
        """What arrives at and leaves devices of a kind is no less than their nodes say. What
        travels between two of them is in the cuts of both.
        """
        model = self.model
        index, amounts = [column], [2.0]
        for v, time in zip(stream.values, seconds, strict=True):
            for p, pair in enumerate(model.pairs):
                if kind in pair:
                    index.append(model.travels(int(v), p))
                    amounts.append(float(time) * model.scale)
        index += [model.placed(int(node), kind) for node in stream.nodes]
        amounts += (-least * model.scale).tolist()
        self.extra.rows.add(0.0, milp.INFINITY, index, amounts)


def _fastest(terms: Terms, values: Ints, device: int) -> Floats:
    """Seconds that values take to or from a device over its fastest link, latency counted."""
    others = [d for d in range(terms.devices) if d != device]
    slow = min(terms.slow[device, others].min(), terms.slow[others, device].min())
    late = min(terms.late[device, others].min(), terms.late[others, device].min())
    return np.asarray(terms.weight[values] * slow + terms.count[values] * late)
