# SPDX-License-Identifier: Apache-2.0
"""Pass 6: the smallest and largest value of a polynomial over all threads of a launch, as
launch expressions.

Interval arithmetic over independent atoms, made tight by facts: where a polynomial contains a
combination of atoms that a guard bounds, as a row or column index, the combination is
taken as one quantity.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.analysis.domain import Obligation, Value
from tessera.analysis.environment import Direction, Env, Environments, Fact, Proviso
from tessera.analysis.launch import INT64_MAX, INT64_MIN, Expr
from tessera.analysis.lower import Lowering
from tessera.analysis.polynomial import Atom, Monomial, Poly, constant
from tessera.analysis.registers import Registers
from tessera.analysis.transfer import rejoin

WIDE = (1 << 31) - 1  # an atom with more values than this is as good as unbounded
_NO_PROVISOS: frozenset[Proviso] = frozenset()


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive; None: unbounded. Right if every proviso holds."""

    lo: Expr | None
    hi: Expr | None
    provisos: frozenset[Proviso] = _NO_PROVISOS

    def relying_on(self, provisos: frozenset[Proviso]) -> Range:
        return Range(self.lo, self.hi, self.provisos | provisos) if provisos else self


UNBOUNDED = Range(None, None)
Excluded = frozenset[Poly]


class Bounds:
    """Ranges of the polynomials of one program."""

    def __init__(
        self, registers: Registers, environments: Environments, lowering: Lowering
    ) -> None:
        self._registers = registers
        self._environments = environments
        self._lowering = lowering
        self.launch = lowering.launch
        self._ranges: dict[tuple[Poly, Env, Excluded, frozenset[Atom]], Range] = {}
        self._claims: dict[tuple[frozenset[Obligation], Env], Proviso] = {}
        self._joins: dict[Atom, Range] = {}
        self._active: set[Atom] = set()
        self._checks: dict[Proviso, tuple[Expr, ...] | None] = {}
        self._check_needs: dict[Proviso, frozenset[Proviso]] = {}
        self._checking: set[Proviso] = set()

    # Ranges

    def range(self, poly: Poly, env: Env, excluded: Excluded = frozenset()) -> Range:
        # Inside a cycle of joins a result holds for that cycle only.
        key = (poly, env, excluded, frozenset(self._active))
        found = self._ranges.get(key)
        if found is None:
            found = self._ranges[key] = self._compute(rejoin(poly), env, excluded)
        return found

    def _compute(self, poly: Poly, env: Env, excluded: Excluded) -> Range:
        varying, rest = poly.split()
        if not varying:
            value = self._lowering.poly(rest)
            return Range(value, value)
        chosen = self._choose(varying, env, excluded)
        if chosen is not None:
            direction, factor = chosen
            product = factor.times(direction.poly)
            if product is not None:
                inner = self._direction_range(direction, env, excluded)
                outer = self.range(poly - product, env, excluded)
                return self._plus(self._scale(factor, inner), outer)
        total = Range(self._lowering.poly(rest), self._lowering.poly(rest))
        for monomial, coefficient in varying.items():
            part = self._monomial_range(monomial, env, excluded)
            total = self._plus(total, self._scale(coefficient, part))
            if total.lo is None and total.hi is None:
                return UNBOUNDED
        return total

    def _choose(
        self, varying: dict[Monomial, Poly], env: Env, excluded: Excluded
    ) -> tuple[Direction, Poly] | None:
        """The widest known combination that the polynomial contains as a multiple."""
        best: tuple[Direction, Poly] | None = None
        for key, direction in env.directions().items():
            if key in excluded or (best and len(best[0].poly.terms) >= len(key.terms)):
                continue
            factor = _multiple(varying, key)
            if factor is not None:
                best = direction, factor
        return best

    def _direction_range(self, direction: Direction, env: Env, excluded: Excluded) -> Range:
        found = self.range(direction.poly, env, excluded | {direction.poly})
        lo, hi, provisos = found.lo, found.hi, found.provisos
        for fact, content in direction.upper:
            limit = self._limit(fact, direction, content)
            if limit is None:
                continue
            tighter = limit if hi is None else self.launch.min(hi, limit)
            if tighter is not hi:
                hi, provisos = tighter, provisos | {fact.proviso}
        for fact, content in direction.lower:
            limit = self._limit(fact, direction, content)
            if limit is None:
                continue
            limit = self.launch.sub(self.launch.zero, limit)
            tighter = limit if lo is None else self.launch.max(lo, limit)
            if tighter is not lo:
                lo, provisos = tighter, provisos | {fact.proviso}
        return Range(lo, hi, provisos)

    def _limit(self, fact: Fact, direction: Direction, content: int) -> Expr | None:
        """`content * (+-direction) + rest <= slack`: the limit of `+-direction`."""
        if not self.holds(fact.proviso):
            return None
        limit = self._lowering.poly(-fact.poly.split()[1])
        if fact.slack is not None:
            limit = self.launch.add(limit, fact.slack)
        return self.launch.floor_div(limit, self.launch.const(content))

    def _monomial_range(self, monomial: Monomial, env: Env, excluded: Excluded) -> Range:
        out = self._atom_range(monomial[0], env, excluded)
        for atom in monomial[1:]:
            out = self._times(out, self._atom_range(atom, env, excluded))
        return out

    def _atom_range(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        handler = getattr(self, f"_range_{atom.kind}", None)
        if handler is not None:
            found: Range = handler(atom, env, excluded)
            return self._clip(found, atom)
        if atom.lo is None or atom.hi is None or atom.hi - atom.lo >= WIDE:
            return UNBOUNDED
        return Range(self.launch.const(atom.lo), self.launch.const(atom.hi))

    def _clip(self, found: Range, atom: Atom) -> Range:
        """A range made no wider than what is known statically of an atom that is narrow."""
        lo, hi = found.lo, found.hi
        if atom.lo is not None and atom.hi is not None and atom.hi - atom.lo < WIDE:
            low, high = self.launch.const(atom.lo), self.launch.const(atom.hi)
            lo = low if lo is None else self.launch.max(lo, low)
            hi = high if hi is None else self.launch.min(hi, high)
        return Range(lo, hi, found.provisos)

    def _range_tid(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self._index_range("%ntid", atom.args[0])

    def _range_ctaid(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self._index_range("%nctaid", atom.args[0])

    def _range_cluster_ctaid(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self._index_range("%cluster_nctaid", atom.args[0])

    def _index_range(self, count: str, axis: int) -> Range:
        size = self._lowering.poly(self._registers.special(0, count, axis))
        return Range(self.launch.zero, self.launch.add(size, self.launch.const(-1)))

    def _range_k(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        """Iterations of a loop: as many as the facts about its variables allow."""
        best = Range(self.launch.zero, None)
        for key, direction in env.directions().items():
            step = key.split()[0].get((atom,))
            if step is None or key in excluded:
                continue
            rest = key - (step.times(Poly({(atom,): 1})) or key)
            if atom in rest.atoms:
                continue
            limit = self._iterations(direction, step, rest, env, excluded | {key})
            if limit is None or limit.hi is None:
                continue
            hi = limit.hi if best.hi is None else self.launch.min(best.hi, limit.hi)
            if hi is not best.hi:
                best = Range(best.lo, hi, best.provisos | limit.provisos)
        return best

    def _iterations(
        self, direction: Direction, step: Poly, rest: Poly, env: Env, excluded: Excluded
    ) -> Range | None:
        """From `step * k + rest` at most (at least) something: the largest k."""
        sign = _sign(step)
        facts = direction.upper if sign > 0 else direction.lower
        if sign == 0 or not facts:
            return None
        others = self.range(rest.scale(sign), env, excluded)
        if others.lo is None:
            return None
        divisor = self._lowering.poly(step.scale(sign))
        best: Expr | None = None
        provisos = others.provisos
        for fact, content in facts:
            limit = self._limit(fact, direction, content)
            if limit is None:
                continue
            hi = self.launch.floor_div(self.launch.sub(limit, others.lo), divisor)
            tighter = hi if best is None else self.launch.min(best, hi)
            if tighter is not best:
                best, provisos = tighter, provisos | {fact.proviso}
        return Range(None, best, provisos)

    def _range_quot(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        inner = self.range(atom.args[0], env, excluded)
        divisor = self._divisor(atom)
        lo = None if inner.lo is None else self.launch.floor_div(inner.lo, divisor)
        hi = None if inner.hi is None else self.launch.floor_div(inner.hi, divisor)
        return Range(lo, hi, inner.provisos)

    def _range_rem(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        most = self.launch.add(self._divisor(atom), self.launch.const(-1))
        inner = self.range(atom.args[0], env, excluded)
        if _is_natural(inner.lo) and inner.hi is not None:
            return Range(self.launch.zero, self.launch.min(most, inner.hi), inner.provisos)
        return Range(self.launch.zero, most)

    def _divisor(self, atom: Atom) -> Expr:
        divisor = atom.args[1]
        return self._lowering.poly(constant(divisor) if isinstance(divisor, int) else divisor)

    def _range_min(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        lo = None if a.lo is None or b.lo is None else self.launch.min(a.lo, b.lo)
        if a.hi is None or b.hi is None:
            hi = a.hi or b.hi
        else:
            hi = self.launch.min(a.hi, b.hi)
        return Range(lo, hi, a.provisos | b.provisos)

    def _range_max(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        hi = None if a.hi is None or b.hi is None else self.launch.max(a.hi, b.hi)
        if a.lo is None or b.lo is None:
            lo = a.lo or b.lo
        else:
            lo = self.launch.max(a.lo, b.lo)
        return Range(lo, hi, a.provisos | b.provisos)

    def _range_and(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        highs = [r.hi for r in (a, b) if r.hi is not None]
        if not highs:
            return UNBOUNDED
        hi = highs[0] if len(highs) == 1 else self.launch.min(*highs)
        return Range(self.launch.zero, hi, a.provisos | b.provisos)

    def _range_pow2(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        inner = self.range(atom.args[0], env, excluded)
        if inner.lo is None or inner.hi is None:
            return UNBOUNDED
        one = self.launch.one
        return Range(
            self.launch.shl(one, inner.lo), self.launch.shl(one, inner.hi), inner.provisos
        )

    def _range_other_lane(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self.range(atom.args[0].poly, self._environments.empty)

    def _range_sel(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        pred, a, b = atom.args
        first = self._value_range(a, self._environments.refine(env, pred))
        second = self._value_range(b, self._environments.refine(env, pred.negated()))
        return self.hull([first, second])

    def _range_phi(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self._join(atom, list(zip(*atom.args, strict=True)))

    def _range_loopphi(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        _, inputs = atom.args
        return self._join(atom, [(edge, self._registers.value(d)) for edge, d in inputs])

    def _join(self, atom: Atom, inputs: list[tuple[object, Value]]) -> Range:
        """The hull of what comes in along each edge, seen from there."""
        if atom in self._joins:
            return self._joins[atom]
        if atom in self._active:
            return UNBOUNDED
        self._active.add(atom)
        try:
            ranges = [
                self._value_range(value, self._environments.on_edge(edge))  # type: ignore[arg-type]
                for edge, value in inputs
            ]
        finally:
            self._active.discard(atom)
        found = self.hull(ranges)
        if not self._active:
            self._joins[atom] = found
        return found

    def _value_range(self, value: Value, env: Env) -> Range:
        found = self.range(value.poly, env)
        if value.obligations and found is not UNBOUNDED:
            found = found.relying_on(frozenset([self.claim(value.obligations, env)]))
        return found

    def claim(self, obligations: frozenset[Obligation], env: Env) -> Proviso:
        """The proviso that obligations hold at a place."""
        key = (obligations, env)
        found = self._claims.get(key)
        if found is None:
            found = self._claims[key] = Proviso(obligations, env)
        return found

    # Arithmetic

    def hull(self, ranges: list[Range]) -> Range:
        lo, hi = ranges[0].lo, ranges[0].hi
        provisos = ranges[0].provisos
        for other in ranges[1:]:
            lo = None if lo is None or other.lo is None else self.launch.min(lo, other.lo)
            hi = None if hi is None or other.hi is None else self.launch.max(hi, other.hi)
            provisos |= other.provisos
        return Range(lo, hi, provisos)

    def _plus(self, a: Range, b: Range) -> Range:
        lo = None if a.lo is None or b.lo is None else self.launch.add(a.lo, b.lo)
        hi = None if a.hi is None or b.hi is None else self.launch.add(a.hi, b.hi)
        return Range(lo, hi, a.provisos | b.provisos)

    def plus(self, a: Range, b: Range) -> Range:
        return self._plus(a, b)

    def lower(self, poly: Poly) -> Expr:
        """A uniform polynomial as a launch expression."""
        return self._lowering.poly(poly)

    def _scale(self, factor: Poly, r: Range) -> Range:
        sign = _sign(factor)
        by = self._lowering.poly(factor)
        lo = None if r.lo is None else self.launch.mul(r.lo, by)
        hi = None if r.hi is None else self.launch.mul(r.hi, by)
        if sign > 0:
            return Range(lo, hi, r.provisos)
        if sign < 0:
            return Range(hi, lo, r.provisos)
        if lo is None or hi is None:
            return UNBOUNDED
        return Range(self.launch.min(lo, hi), self.launch.max(lo, hi), r.provisos)

    def _times(self, a: Range, b: Range) -> Range:
        launch = self.launch
        provisos = a.provisos | b.provisos
        if a.lo is None or b.lo is None:
            return UNBOUNDED
        if _is_natural(a.lo) and _is_natural(b.lo):
            hi = None if a.hi is None or b.hi is None else launch.mul(a.hi, b.hi)
            return Range(launch.mul(a.lo, b.lo), hi, provisos)
        if a.hi is None or b.hi is None:
            return UNBOUNDED
        corners = [launch.mul(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        lo = hi = corners[0]
        for corner in corners[1:]:
            lo, hi = launch.min(lo, corner), launch.max(hi, corner)
        return Range(lo, hi, provisos)

    # Provisos

    def holds(self, proviso: Proviso) -> bool:
        """False when a proviso cannot be shown, whatever the launch."""
        if proviso in self._checking:
            return True  # by induction: see environment.py
        return self._check(proviso) is not None

    def _check(self, proviso: Proviso) -> tuple[Expr, ...] | None:
        if proviso in self._checks:
            return self._checks[proviso]
        self._checking.add(proviso)
        conditions: list[Expr] | None = list(proviso.conditions)
        needs = proviso.needs
        for poly, least, most in proviso.obligations:
            assert proviso.env is not None
            found = self.range(poly, proviso.env)
            needs |= found.provisos
            condition = self._within(found, least, most)
            if condition is None or conditions is None:
                conditions = None
                break
            conditions.append(condition)
        self._checking.discard(proviso)
        self._check_needs[proviso] = needs
        self._checks[proviso] = None if conditions is None else tuple(conditions)
        return self._checks[proviso]

    def _within(self, found: Range, least: int, most: int) -> Expr | None:
        if found.lo is None or found.hi is None:
            return None
        launch = self.launch
        low = launch.less_equal(launch.const(max(least, INT64_MIN)), found.lo)
        high = launch.less_equal(found.hi, launch.const(min(most, INT64_MAX)))
        condition = launch.both(low, high)
        return None if condition is launch.zero else condition

    def conditions(self, provisos: frozenset[Proviso]) -> list[Expr] | None:
        """All that a launch must satisfy for the provisos to hold; None: they cannot."""
        out: dict[Expr, None] = {}
        seen = set(provisos)
        work = list(provisos)
        while work:
            proviso = work.pop()
            found = self._check(proviso)
            if found is None:
                return None
            for condition in found:
                if not condition.is_const:
                    out[condition] = None
            for need in self._check_needs[proviso]:
                if need not in seen:
                    seen.add(need)
                    work.append(need)
        return list(out)


def _multiple(varying: dict[Monomial, Poly], key: Poly) -> Poly | None:
    """`f` with `f * key` among the varying terms, whole."""
    factor: Poly | None = None
    for monomial, coefficient in key.split()[0].items():
        mine = varying.get(monomial)
        if mine is None:
            return None
        if factor is None:
            factor = mine.ratio(coefficient)
            if factor is None:
                return None
        elif factor.times(coefficient) != mine:
            return None
    return factor


def _is_natural(value: Expr | None) -> bool:
    return value is not None and value.lo is not None and value.lo >= 0


def _sign(poly: Poly) -> int:
    """1 or -1 where the sign is known statically (0 counts as either); else 0."""
    lo, hi = poly.bound()
    if lo is not None and lo >= 0:
        return 1
    return -1 if hi is not None and hi <= 0 else 0
