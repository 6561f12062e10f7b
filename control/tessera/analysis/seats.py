# SPDX-License-Identifier: Apache-2.0
"""From where a range is asked for, so that it is computed once for all places where it is the same.

Most facts that a guard adds are about other quantities than the one in question: its range is
then that of the environment outside of the guard, and is found there.
"""

from __future__ import annotations

from typing import NamedTuple

from tessera.analysis.environment import Env
from tessera.analysis.polynomial import Atom, Poly

Excluded = frozenset[Poly]
NO_ATOMS: frozenset[Atom] = frozenset()
MAX_NESTED = 32  # facts that are used to bound one another
_FUNCTIONS = frozenset(("quot", "rem", "wrap", "min", "max", "and", "or", "xor", "pow2"))
"""Atoms whose ranges are made of the ranges of their arguments at the same place."""
_JOINS = frozenset(("phi", "loopphi", "other_lane", "stored"))
"""Atoms whose ranges depend on the joins that are being bounded, and not on the place."""


class Reach(NamedTuple):
    """What the range of an atom or polynomial is made of."""

    atoms: frozenset[Atom]  # varying
    counters: frozenset[Atom]  # of loops, among them
    is_placed: bool  # it depends on more of a place than facts about these
    joins: bool  # it depends on the joins that are being bounded


NOTHING = Reach(NO_ATOMS, NO_ATOMS, False, False)


class Seat(NamedTuple):
    """Where a range is computed, and the facts that do not count there."""

    env: Env
    excluded: Excluded
    joins: bool  # whether it depends on the joins that are being bounded


class Seats:
    """The seats of the polynomials of one program."""

    def __init__(self) -> None:
        self._atoms: dict[Atom, Reach] = {}
        self._polys: dict[Poly, Reach] = {}
        self._counted: dict[tuple[Env, frozenset[Atom]], Reach] = {}
        self._outer: dict[tuple[Env, frozenset[Atom], Excluded], Env] = {}

    def of(self, poly: Poly, env: Env, excluded: Excluded) -> Seat:
        """The outermost place at which a polynomial has the range that it has at `env`."""
        reach = self._of_poly(poly)
        settled = not env.is_being_built()
        if settled and not reach.is_placed and (reach.counters or _is_linked(env, reach)):
            reach = self._with_counters(reach, env)
        if reach.is_placed or not settled:
            return Seat(env, excluded, True)
        if excluded and len(excluded) <= MAX_NESTED:
            excluded = frozenset([e for e in excluded if e.varying_atoms <= reach.atoms])
        return Seat(self._outermost(env, reach.atoms, excluded), excluded, reach.joins)

    def _of_poly(self, poly: Poly) -> Reach:
        found = self._polys.get(poly)
        if found is None:
            found = self._polys[poly] = _union([self._of_atom(a) for a in poly.varying_atoms])
        return found

    def _of_atom(self, atom: Atom) -> Reach:
        found = self._atoms.get(atom)
        if found is None:
            inner: list[Reach] = []
            if atom.kind in _FUNCTIONS:
                inner = [self._of_poly(arg) for arg in atom.args if isinstance(arg, Poly)]
            below, own = _union(inner), frozenset((atom,))
            found = self._atoms[atom] = Reach(
                below.atoms | own,
                below.counters | own if atom.kind == "k" else below.counters,
                below.is_placed or atom.kind == "sel",
                below.joins or atom.kind in _JOINS,
            )
        return found

    def _with_counters(self, reach: Reach, env: Env) -> Reach:
        """A loop's counter is bounded by all facts in which it stands, and what else they are
        about; an index by those that link it to a variable."""
        key = (env, reach.atoms)
        found = self._counted.get(key)
        if found is None:
            found, about = reach, list(env.directions())
            links = [(index, d.poly) for index, ds in env.links().items() for d in ds]
            changed = True
            while changed and not found.is_placed:
                before = found
                for poly in about:
                    if not poly.varying_atoms.isdisjoint(found.counters):
                        found = self._joined(found, poly)
                for index, poly in links:
                    if index in found.atoms:
                        found = self._joined(found, poly)
                changed = found is not before
            self._counted[key] = found
        return found

    def _joined(self, reach: Reach, poly: Poly) -> Reach:
        within = poly.varying_atoms <= reach.atoms
        return reach if within else _union([reach, self._of_poly(poly)])

    def _outermost(self, env: Env, atoms: frozenset[Atom], excluded: Excluded) -> Env:
        """The outermost environment that knows as much as `env` about some atoms, apart from what
        does not count."""
        passed: list[Env] = []
        place = env
        while True:
            known = self._outer.get((place, atoms, excluded))
            if known is not None:
                place = known
                break
            outer = place.parent
            passed.append(place)
            if outer is None or _tells_of(place, atoms, excluded):
                break
            place = outer
        for inner in passed:
            self._outer[inner, atoms, excluded] = place
        return place


def _is_linked(env: Env, reach: Reach) -> bool:
    """Whether an index among the atoms is linked to a variable."""
    links = env.links()
    return bool(links) and not reach.atoms.isdisjoint(links)


def _union(parts: list[Reach]) -> Reach:
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    return Reach(
        NO_ATOMS.union(*(r.atoms for r in parts)),
        NO_ATOMS.union(*(r.counters for r in parts)),
        any(r.is_placed for r in parts),
        any(r.joins for r in parts),
    )


def _tells_of(env: Env, atoms: frozenset[Atom], excluded: Excluded) -> bool:
    """Whether an environment adds facts that count, about some atoms and no others."""
    return any(poly not in excluded and poly.varying_atoms <= atoms for poly in env.told())
