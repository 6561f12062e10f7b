# SPDX-License-Identifier: Apache-2.0
"""When an access is made at all, as far as the launch alone decides it."""

from __future__ import annotations

from tessera.analysis.bounds import Bounds
from tessera.analysis.environment import Env, Environments, Proviso
from tessera.analysis.launch import Expr
from tessera.analysis.polynomial import Atom, Poly
from tessera.analysis.sides import Sides


class Guards:
    """The guards of one program's accesses. None: made in every launch."""

    def __init__(self, environments: Environments, bounds: Bounds, sides: Sides) -> None:
        self._environments = environments
        self._bounds = bounds
        self._launch = bounds.launch
        self._sides = sides

    def both(self, a: Expr | None, b: Expr) -> Expr | None:
        both = b if a is None else self._launch.both(a, b)
        return None if both is self._launch.one else both

    def any(self, guards: list[Expr | None]) -> Expr | None:
        out = self._launch.zero
        for guard in guards:
            if guard is None:
                return None
            out = self._launch.either(out, guard)
        return out

    def of(self, env: Env) -> Expr | None:
        """What is known of the launch itself wherever the access is made."""
        launch = self._launch
        out = launch.one
        for fact in env.uniform_facts():
            holds = self._bounds.at_most(fact.poly, fact.slack)
            out = launch.both(out, self._unless_wrong(fact.proviso, holds))
        for poly, proviso in env.uniform_nonzero():
            holds = launch.not_equal(self._bounds.lower(poly), launch.zero)
            out = launch.both(out, self._unless_wrong(proviso, holds))
        for outer in env.chain():
            if outer in self._sides.met:
                stored, word = self._sides.met[outer]
                out = launch.both(out, self.meets(stored, [word.at]))
            if outer in self._sides.needed and outer.parent is not None:
                out = launch.both(out, self._reaches_zero(self._sides.needed[outer], outer.parent))
        return None if out is launch.one else out

    def _reaches_zero(self, poly: Poly, env: Env) -> Expr:
        """Whether the launch may make a polynomial as small as 0."""
        found = self._bounds.range(poly, env)
        reliable = self._bounds.provisos.conditions(found.provisos)
        if found.lo is None or reliable is None:
            return self._launch.one
        small = self._launch.less_equal(found.lo, self._launch.zero)
        return self._launch.select(reliable, small, self._launch.one)

    def _unless_wrong(self, proviso: Proviso, holds: Expr) -> Expr:
        """`holds` where the proviso does; 1 where it does not, or is never known to."""
        reliable = self._bounds.provisos.conditions(frozenset([proviso]))
        if reliable is None:
            return self._launch.one
        return self._launch.select(reliable, holds, self._launch.one)

    def meets(self, stored: Atom, places: list[int | None]) -> Expr:
        """Whether the launch may load from one of these places in an array of words."""
        _, index, offset, kind = stored.args
        env = self._environments.at(index)
        found = self._bounds.range(offset.poly, env)
        provisos = found.provisos | {self._environments.claim(offset.obligations, env)}
        reliable = self._bounds.provisos.conditions(provisos)
        launch = self._launch
        if found.lo is None or found.hi is None or reliable is None:
            return launch.one
        met = launch.zero
        for place in places:
            if place is None:
                return launch.one
            from_here = launch.less_equal(launch.const(place - kind.size + 1), found.hi)
            to_here = launch.less_equal(found.lo, launch.const(place + kind.size - 1))
            met = launch.either(met, launch.both(from_here, to_here))
        return launch.select(reliable, met, launch.one)
