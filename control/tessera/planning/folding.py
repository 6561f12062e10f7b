# SPDX-License-Identifier: Apache-2.0
"""Finds what repeats in a launch sequence, so that many alike layers are a small problem.

The result is a tree: launches, and stretches of them that repeat. Positions that repeat
share a node, once for each of the `parts` that a repetition is cut into; two launches of
one kernel at different places of the repeating stretch are different nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MAX_PERIOD = 4096  # launches in a stretch that repeats


@dataclass(frozen=True)
class Leaf:
    """One launch."""

    position: int


@dataclass(frozen=True)
class Repeat:
    """A stretch that repeats; `iterations` are its occurrences, all of one shape."""

    iterations: tuple[tuple[Leaf | Repeat, ...], ...]

    @property
    def count(self) -> int:
        return len(self.iterations)


Tree = tuple[Leaf | Repeat, ...]


def find_repeats(keys: Sequence[Hashable]) -> Tree:
    """The tree of a sequence in which equal keys may stand for each other."""
    numbers: dict[Hashable, int] = {}
    symbols = [numbers.setdefault(key, len(numbers)) for key in keys]
    return _fold(symbols, 0, len(symbols))


def _fold(symbols: list[int], begin: int, end: int) -> Tree:
    """Takes the repetition that covers most, and folds what is before, inside and behind it."""
    found = _widest(symbols, begin, end)
    if found is None:
        return tuple(Leaf(i) for i in range(begin, end))
    start, period, count = found
    stop = start + period * count
    body = _fold(symbols, start, start + period)
    iterations = tuple(_shifted(body, i * period) for i in range(count))
    return (*_fold(symbols, begin, start), Repeat(iterations), *_fold(symbols, stop, end))


def _widest(symbols: list[int], begin: int, end: int) -> tuple[int, int, int] | None:
    """(start, period, count) of the repetition that saves the most launches.

    Of two that save the same, the one with the longer period: steps before layers.
    """
    best: tuple[int, int, int] | None = None
    saved = 0
    for period in _periods(symbols, begin, end):
        run = 0
        for i in range(begin, end - period):
            run = run + 1 if symbols[i] == symbols[i + period] else 0
            count = run // period + 1
            saving = period * (count - 1)
            if count > 1 and saving >= saved and run % period == 0:
                better = best is None or saving > saved or period > best[1]
                if better:
                    best, saved = (i + period + 1 - period * count, period, count), saving
    return best


def _periods(symbols: list[int], begin: int, end: int) -> list[int]:
    """Distances at which a symbol comes again: the only periods that there can be."""
    places: dict[int, list[int]] = {}
    near: dict[int, int] = {}
    for i in range(begin, end):
        seen = places.setdefault(symbols[i], [])
        for j in seen[-8:]:
            near[i - j] = near.get(i - j, 0) + 1
        seen.append(i)
    # Layers show in distances that are frequent, steps in those of launches that are rare.
    far: dict[int, int] = {}
    for rare in sorted(places.values(), key=len)[:6]:
        for j, place in enumerate(rare[1:9]):
            far[place - rare[j]] = far.get(place - rare[j], 0) + 1
    longest = min(MAX_PERIOD, (end - begin) // 2)
    likely = [d for d in sorted(near, key=lambda d: (-near[d], d)) if d <= longest][:48]
    likely += [d for d in sorted(far, key=lambda d: (-far[d], d)) if d <= longest][:16]
    return sorted(set(likely))


def _shifted(tree: Tree, by: int) -> Tree:
    return tuple(
        Leaf(item.position + by)
        if isinstance(item, Leaf)
        else Repeat(tuple(_shifted(iteration, by) for iteration in item.iterations))
        for item in tree
    )


@dataclass(frozen=True)
class Folded:
    """Where each launch of a sequence went: node numbers in order of first appearance."""

    node_of: tuple[int, ...]  # by position in the sequence
    members: tuple[tuple[int, ...], ...]  # positions by node

    @property
    def size(self) -> int:
        return len(self.members)


def fold(keys: Sequence[Hashable], parts: int = 1) -> Folded:
    """Folds a sequence. Each outermost repetition is cut into up to `parts` stretches whose
    nodes are placed apart; repetitions inside it are cut too.
    """
    labels: dict[int, Hashable] = {}
    _label(find_repeats(keys), (), parts, labels)
    numbers: dict[Hashable, int] = {}
    node_of = tuple(numbers.setdefault(labels[i], len(numbers)) for i in range(len(keys)))
    members: list[list[int]] = [[] for _ in numbers]
    for position, node in enumerate(node_of):
        members[node].append(position)
    return Folded(node_of, tuple(tuple(one) for one in members))


def _label(tree: Tree, path: tuple[Hashable, ...], parts: int, labels: dict[int, Hashable]) -> None:
    """The same label for all positions that share a node: their place without iterations."""
    for place, item in enumerate(tree):
        if isinstance(item, Leaf):
            labels[item.position] = (*path, place)
            continue
        stretches = max(1, min(parts, item.count))
        for i, iteration in enumerate(item.iterations):
            part = i * stretches // item.count
            _label(iteration, (*path, place, part), parts, labels)
