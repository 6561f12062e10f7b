# SPDX-License-Identifier: Apache-2.0
"""Local search over placements, by arrays: what every single move would change is known at
all times, so that a step looks at all of them at once.

Several levels: first stretches of nodes that are together anyway move as one, then shorter
ones, then single nodes; exchanges of two nodes balance what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tessera.planning import clock
from tessera.planning.problem import Assignment, Floats, Objective
from tessera.planning.terms import Ints, Lists, Terms, coarse, spread, totals, value_of

PENALTY = 1e3  # times the excess of memory, in shares of the capacity
SHARPNESS = (3, 6)  # powers of two: with 2 ** 6 hardly more than the busiest resource counts
AT_ONCE = 24  # moves tried after one look at all of them
EXCHANGED = 40  # nodes of each side that exchanges are looked for among
DEPTHS = (24, 64)  # stretches of the depth whose nodes move as one
EXCHANGED_WITH = 4  # devices, the idlest
LEVELS = (32, 16, 8, 4, 2, 1)  # nodes that move as one


class Descent:
    """A placement, its figures, and what each move of one node would change in them."""

    def __init__(self, terms: Terms, objective: Objective, where: Assignment) -> None:
        self.terms, self.objective = terms, objective
        self.where = np.array(where, dtype=np.int64)
        self.travel, self.memory, self.resources = terms.travel, terms.memory, terms.resources
        nodes, values = terms.nodes, len(terms.producer)
        self.made_by = Lists.of(terms.producer, np.arange(values), nodes)
        self.used_by = Lists.of(*terms.uses, nodes)
        self.users_of = Lists.of(terms.uses[1], terms.uses[0], values)
        self.held_by = Lists.of(*terms.holds, nodes)
        self.holders_of = Lists.of(terms.holds[1], terms.holds[0], len(terms.sizes))
        self.there, self.kept = spread(terms, self.where)
        self.odd = np.random.default_rng(0).uniform(1.0, 2.0, self.resources)
        self.total = totals(terms, self.where, self.there, self.kept)
        self.change = self._changes(np.arange(nodes))

    # Figures

    def _changes(self, nodes: Ints) -> Floats:
        """What moving each node to each device adds to each resource."""
        terms, devices = self.terms, self.terms.devices
        shape = (len(nodes), devices, self.resources)
        always: list[tuple[Ints, Ints, Floats]] = []  # row, resource, amount: wherever it goes
        there: list[tuple[Ints, Ints, Ints, Floats]] = []  # row, device, resource, amount
        here, rows = self.where[nodes], np.arange(len(nodes))
        gone = terms.loads[nodes, here]
        always.append((rows, here, -gone))
        every = np.tile(np.arange(devices), len(nodes))
        there.append((np.repeat(rows, devices), every, every, terms.loads[nodes].ravel()))
        self._of_consumers(nodes, here, always, there)
        self._of_producers(nodes, here, always, there)
        self._of_memory(nodes, here, always, there)
        size = len(nodes) * self.resources
        index = np.concatenate([row * self.resources + r for row, r, _ in always])
        common = np.bincount(index, np.concatenate([x for _, _, x in always]), size)
        index = np.concatenate([(row * devices + d) * self.resources + r for row, d, r, _ in there])
        flat = np.bincount(index, np.concatenate([x for *_, x in there]), size * devices)
        every_way = common.reshape(len(nodes), 1, self.resources)
        change = (flat.reshape(shape) + every_way).astype(np.float64)
        alone = terms.alone[nodes]
        change[:, :, 3 * devices : self.travel] += (
            alone - np.take_along_axis(alone, here[:, None, None], axis=2)
        ).transpose(0, 2, 1)
        change[rows, here] = 0.0
        return change

    def _transfers(
        self, row: Ints, value: Ints, source: Ints, target: Ints
    ) -> list[tuple[Ints, Ints, Floats]]:
        """(row, resource, seconds) of values on their way."""
        terms, devices = self.terms, self.terms.devices
        seconds = terms.weight[value] * terms.slow[source, target]
        late = seconds + terms.count[value] * terms.late[source, target]
        waits = terms.stream[value] >= 0
        return [
            (row, devices + source, seconds),
            (row, 2 * devices + target, seconds),
            (row[waits], 3 * devices + terms.stream[value][waits], late[waits]),
            (row, np.full(len(row), self.travel), late),
        ]

    def _of_consumers(self, nodes: Ints, here: Ints, always: list, there: list) -> None:  # type: ignore[type-arg]
        row, value = self.used_by.several(nodes)
        source = self.where[self.terms.producer[value]]
        alone = (self.there[value, here[row]] == 1) & (here[row] != source)
        for r, resource, x in self._transfers(
            row[alone], value[alone], source[alone], here[row][alone]
        ):
            always.append((r, resource, -x))
        pair, target = np.nonzero(self.there[value] == 0)
        apart = target != source[pair]
        pair, target = pair[apart], target[apart]
        found = self._transfers(np.arange(len(pair)), value[pair], source[pair], target)
        there += [(row[pair[i]], target[i], resource, x) for i, resource, x in found]

    def _of_producers(self, nodes: Ints, here: Ints, always: list, there: list) -> None:  # type: ignore[type-arg]
        row, value = self.made_by.several(nodes)
        pair, target = np.nonzero(self.there[value] > 0)
        away = target != here[row[pair]]
        p, t = pair[away], target[away]
        for r, resource, x in self._transfers(row[p], value[p], here[row[p]], t):
            always.append((r, resource, -x))
        devices = self.terms.devices
        p, t = np.repeat(pair, devices), np.repeat(target, devices)
        source = np.tile(np.arange(devices), len(pair))
        away = source != t
        p, t, source = p[away], t[away], source[away]
        found = self._transfers(np.arange(len(p)), value[p], source, t)
        there += [(row[p[i]], source[i], resource, x) for i, resource, x in found]

    def _of_memory(self, nodes: Ints, here: Ints, always: list, there: list) -> None:  # type: ignore[type-arg]
        if not len(self.terms.sizes):
            return
        row, buffer = self.held_by.several(nodes)
        size = self.terms.sizes[buffer]
        alone = self.kept[buffer, here[row]] == 1
        always.append((row[alone], self.memory + here[row][alone], -size[alone]))
        pair, target = np.nonzero(self.kept[buffer] == 0)
        there.append((row[pair], target, self.memory + target, size[pair]))

    # Worth

    def scores(self, reached: Floats, scale: float, sharpness: int) -> Floats:
        """What is to be made small, for resources along the last axis."""
        excess: Floats | float = 0.0
        if len(self.terms.sizes):
            used = reached[..., self.memory :] / self.terms.room
            excess = np.maximum(used - 1.0, 0.0).sum(axis=-1)
        if self.objective == "latency":
            worth = reached[..., : self.terms.devices].sum(axis=-1) + reached[..., self.travel]
            return np.asarray(worth / scale + PENALTY * excess)
        shares = reached[..., : self.travel] / (self.terms.limits * scale)
        for _ in range(sharpness):
            shares = shares * shares
        return np.asarray(shares.sum(axis=-1) + PENALTY * excess)

    def value(self) -> float:
        """Seconds by the objective, whatever the memory."""
        return value_of(self.terms, self.objective, self.total)

    def fits(self) -> bool:
        return bool((self.total[self.memory :] <= self.terms.room * (1 + 1e-9)).all())

    # Moves

    def move(self, node: int, device: int) -> None:
        was = int(self.where[node])
        if was == device:
            return
        self.total = self.total + self.change[node, device]
        self.where[node] = device
        used, made, held = self.used_by[node], self.made_by[node], self.held_by[node]
        self.there[used, was] -= 1
        self.there[used, device] += 1
        self.kept[held, was] -= 1
        self.kept[held, device] += 1
        touched = [np.array([node]), self.terms.producer[used],
                   self.users_of.several(used)[1], self.users_of.several(made)[1],
                   self.holders_of.several(held)[1]]  # fmt: skip
        nodes = np.unique(np.concatenate(touched))
        self.change[nodes] = self._changes(nodes)

    def descend(self, sharpness: int, deadline: float, enough: float = 0.0) -> None:
        """Moves and exchanges while they help."""
        while clock.now() < deadline:
            if self.value() <= enough and self.fits():
                return
            scale = max(self.value(), 1e-30)
            if not self._moves(scale, sharpness, deadline) and not self._exchange(scale, sharpness):
                return

    def _moves(self, scale: float, sharpness: int, deadline: float) -> bool:
        now = float(self.scores(self.total, scale, sharpness))
        scores = self.scores(self.total + self.change, scale, sharpness)
        scores[~self.terms.allowed] = np.inf
        order = np.argpartition(scores, min(AT_ONCE, scores.size - 1), axis=None)[:AT_ONCE]
        order = order[np.argsort(scores.ravel()[order])]
        moved = False
        for place in order:
            node, device = divmod(int(place), self.terms.devices)
            score = float(self.scores(self.total + self.change[node, device], scale, sharpness))
            if score >= now - 1e-9 * abs(now):
                if not moved:
                    return False
                continue
            self.move(node, device)
            now, moved = score, True
            if clock.now() > deadline:
                break
        return moved

    def _exchange(self, scale: float, sharpness: int) -> bool:
        """One exchange of a node of the busiest device with one of another device."""
        devices = self.terms.devices
        now = float(self.scores(self.total, scale, sharpness))
        hot = int((self.total[:devices]).argmax())
        mine = np.flatnonzero(self.where == hot)
        for other in np.argsort(self.total[:devices])[:EXCHANGED_WITH]:
            if other == hot:
                continue
            theirs = np.flatnonzero(self.where == other)
            left = self._best_to(mine, int(other), scale, sharpness)
            right = self._best_to(theirs, hot, scale, sharpness)
            if not len(left) or not len(right):
                continue
            both = self.change[left, other][:, None] + self.change[right, hot][None, :]
            scores = self.scores(self.total + both, scale, sharpness)
            for place in np.argsort(scores, axis=None)[:3]:
                i, j = divmod(int(place), len(right))
                if scores[i, j] >= now - 1e-9 * abs(now):
                    break
                self.move(int(left[i]), int(other))
                self.move(int(right[j]), hot)
                if float(self.scores(self.total, scale, sharpness)) < now - 1e-9 * abs(now):
                    return True
                self.move(int(right[j]), int(other))
                self.move(int(left[i]), hot)
        return False

    def _best_to(self, nodes: Ints, device: int, scale: float, sharpness: int) -> Ints:
        """Nodes whose move to a device harms least for what it brings, one of each kind."""
        nodes = nodes[self.terms.allowed[nodes, device]]
        if not len(nodes):
            return nodes
        change = self.change[nodes, device]
        # Those that are alike are as good as each other: equal sums with odd weights tell them.
        sums = np.round(change @ self.odd / scale, 6)
        _, first = np.unique(sums, return_index=True)
        nodes, change = nodes[first], change[first]
        harm = np.maximum(change[:, : self.travel] / (self.terms.limits * scale), 0.0).sum(axis=1)
        return nodes[np.argsort(harm)[:EXCHANGED]]


def improve(
    terms: Terms, objective: Objective, where: Assignment, deadline: float, enough: float = 0.0
) -> Descent:
    """Local search on all levels from one placement, until clock.now() is `deadline`
    or the value is `enough`.
    """
    where = np.array(where, dtype=np.int64)
    for group_of in _levels(terms, where):
        now = group_of(where)
        first = np.zeros(int(now.max()) + 1, dtype=np.int64)
        first[now] = where
        found = Descent(coarse(terms, now), objective, first)
        for sharpness in SHARPNESS if objective == "throughput" else (1,):
            found.descend(sharpness, deadline, enough)
        where = found.where[now]
        if clock.now() > deadline or (found.value() <= enough and found.fits()):
            break
    return Descent(terms, objective, where)


def _levels(terms: Terms, where: Assignment) -> Iterator[Callable[[Assignment], Ints]]:
    """Ways to make groups of nodes that are on one device, coarse ones first."""
    if len(terms.sizes):
        # Memory becomes free only when all who read it go.
        for stretches in DEPTHS:
            yield partial(_by_depth, terms, stretches)
        yield partial(_by_memory, terms)
    for length in LEVELS:
        yield partial(_in_a_row, terms, length)


def _numbered(keys: Ints) -> Ints:
    return np.asarray(np.unique(keys, return_inverse=True)[1], dtype=np.int64)


def _by_depth(terms: Terms, stretches: int, where: Assignment) -> Ints:
    """Nodes of all streams at like depths."""
    place = np.minimum((terms.depth * stretches).astype(np.int64), stretches - 1)
    return _numbered(place * terms.devices + where)


def _by_memory(terms: Terms, where: Assignment) -> Ints:
    """Nodes that read one buffer."""
    group = np.arange(terms.nodes)
    nodes, buffers = terms.holds
    keys = buffers * terms.devices + where[nodes]
    for _ in range(8):
        least = np.full(len(terms.sizes) * terms.devices, terms.nodes)
        np.minimum.at(least, keys, group[nodes])
        before = group.copy()
        np.minimum.at(group, nodes, least[keys])
        if (before == group).all():
            break
    return _numbered(group)


def _in_a_row(terms: Terms, length: int, where: Assignment) -> Ints:
    """Up to `length` nodes in a row, of one stream."""
    stream = terms.alone.sum(axis=2).argmax(axis=1)
    changes = (np.diff(where) != 0) | (np.diff(stream) != 0)
    run = np.concatenate([[0], np.cumsum(changes)])
    begins = np.flatnonzero(np.concatenate([[True], changes]))
    inside = (np.arange(terms.nodes) - begins[run]) // length
    return _numbered(run * terms.nodes + inside)
