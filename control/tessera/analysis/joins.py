# SPDX-License-Identifier: Apache-2.0
"""Ranges of what has one of several values: by the way taken, by the iteration, by the place in an
array. They are bounded by the hull of what comes in, and may depend on one another in cycles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera.analysis.environment import Env, Proviso
from tessera.analysis.intervals import UNBOUNDED, Range
from tessera.analysis.polynomial import Atom
from tessera.analysis.values import Value

if TYPE_CHECKING:
    from tessera.analysis.bounds import Bounds


class Joins:
    """The joins of one program."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._known: dict[Atom, Range] = {}
        self.active: set[Atom] = set()  # being bounded
        self.guesses: dict[Atom, Range] = {}  # of loops' variables that are being bounded

    def phi(self, atom: Atom) -> Range:
        """What comes in along each edge."""
        inputs = zip(*atom.args, strict=True)
        on_edge = self._bounds.environments.on_edge
        return self._join(atom, lambda: [(value, on_edge(edge)) for edge, value in inputs])

    def stored(self, atom: Atom) -> Range:
        """Words of an array, each seen from where it is stored."""
        words, _, _, kind = atom.args
        registers, at = self._bounds.registers, self._bounds.environments.at
        return self._join(atom, lambda: [(w.value(registers, kind), at(w.store)) for w in words])

    def loopphi(self, atom: Atom) -> Range:
        """Between 0 and what it starts with, if every way round the loop keeps it there: a size
        that is halved, an index that is masked. Whether it does is asked at launch."""
        if atom in self.guesses:
            return self.guesses[atom]
        if atom in self._known:
            return self._known[atom]
        if atom in self.active:
            return UNBOUNDED
        definition, inputs = atom.args
        body = self._bounds.registers.flow.loops[definition.at].body
        on_edge = self._bounds.environments.on_edge
        ways = [(e.source in body, self._bounds.registers.value(d), on_edge(e)) for e, d in inputs]
        start = self._incoming(atom, [(v, env) for back, v, env in ways if not back])
        found = UNBOUNDED
        if start.lo is not None and start.hi is not None:
            zero = self._bounds.launch.zero
            guess = self._bounds.hull([start, Range(zero, zero)])
            found = self._kept(atom, guess, [(v, env) for back, v, env in ways if back])
        if not self.active:
            self._known[atom] = found
        return found

    def _kept(self, atom: Atom, guess: Range, back: list[tuple[Value, Env]]) -> Range:
        """A guess at a loop's variable, which rests on what every way round makes of it."""
        # Until more is known, it does not hold.
        assumed = Proviso(conditions=(self._bounds.launch.zero,))
        assert guess.lo is not None
        assert guess.hi is not None
        self.guesses[atom] = guess.relying_on(frozenset([assumed]))
        again = self._incoming(atom, back)
        found = self.guesses.pop(atom)
        if again.lo is None or again.hi is None:
            return UNBOUNDED
        launch = self._bounds.launch
        stays = launch.both(
            launch.less_equal(guess.lo, again.lo), launch.less_equal(again.hi, guess.hi)
        )
        assumed.conditions, assumed.needs = (stays,), again.provisos
        self._bounds.provisos.ask_again(assumed)
        return UNBOUNDED if stays is launch.zero else found

    def _join(self, atom: Atom, inputs: Callable[[], list[tuple[Value, Env]]]) -> Range:
        """The hull of what comes in from several places, seen from there."""
        if atom in self._known:
            return self._known[atom]
        if atom in self.active:
            return UNBOUNDED
        found = self._incoming(atom, inputs())
        if not self.active:
            self._known[atom] = found
        return found

    def _incoming(self, atom: Atom, inputs: list[tuple[Value, Env]]) -> Range:
        self.active.add(atom)
        try:
            ranges = [self._bounds.value_range(value, env) for value, env in inputs]
        finally:
            self.active.discard(atom)
        return self._bounds.hull(ranges) if ranges else UNBOUNDED
