# SPDX-License-Identifier: Apache-2.0
"""Ranges with launch expressions as their ends, and arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from tessera.analysis.domain import Domain
from tessera.analysis.environment import Environments, Proviso
from tessera.analysis.launch import Expr
from tessera.analysis.lower import Lowering
from tessera.analysis.polynomial import Poly

_NO_PROVISOS: frozenset[Proviso] = frozenset()


class Range(NamedTuple):
    """Inclusive; None: unbounded. Right if every proviso holds."""

    lo: Expr | None
    hi: Expr | None
    provisos: frozenset[Proviso] = _NO_PROVISOS

    def least_span(self) -> int:
        """By how much the ends surely differ."""
        lo, hi = self.lo, self.hi
        if lo is None or hi is None or lo.hi is None or hi.lo is None:
            return 0
        return max(hi.lo - lo.hi, 0)

    def relying_on(self, provisos: frozenset[Proviso]) -> Range:
        return Range(self.lo, self.hi, self.provisos | provisos) if provisos else self


class Term(NamedTuple):
    """`factor * (part + shift)`, where `range` bounds `part + shift`."""

    factor: Poly  # uniform
    part: Poly  # varying
    shift: int
    range: Range


@dataclass(slots=True)
class Form:
    """The sum of some terms and a uniform rest."""

    terms: list[Term]
    rest: Poly


UNBOUNDED = Range(None, None)


class Intervals:
    """Arithmetic on the ranges of one program."""

    def __init__(self, domain: Domain, environments: Environments, lowering: Lowering) -> None:
        self._domain = domain
        self._environments = environments
        self._lowering = lowering
        self.launch = lowering.launch

    def at_most(self, poly: Poly, slack: Expr | None) -> Expr:
        """`poly <= slack` as a launch expression."""
        return self._lowering.at_most(poly, slack)

    def lower(self, poly: Poly) -> Expr:
        """A uniform polynomial as a launch expression."""
        return self._lowering.poly(poly)

    def hull(self, ranges: list[Range]) -> Range:
        lo, hi = ranges[0].lo, ranges[0].hi
        provisos = ranges[0].provisos
        for other in ranges[1:]:
            lo = None if lo is None or other.lo is None else self.launch.min(lo, other.lo)
            hi = None if hi is None or other.hi is None else self.launch.max(hi, other.hi)
            provisos |= other.provisos
        return Range(lo, hi, provisos)

    def moved(self, found: Range, number: int) -> Range:
        by = self.launch.const(number)
        lo = None if found.lo is None else self.launch.add(found.lo, by)
        hi = None if found.hi is None else self.launch.add(found.hi, by)
        return Range(lo, hi, found.provisos)

    def plus(self, a: Range, b: Range) -> Range:
        lo = None if a.lo is None or b.lo is None else self.launch.add(a.lo, b.lo)
        hi = None if a.hi is None or b.hi is None else self.launch.add(a.hi, b.hi)
        return Range(lo, hi, a.provisos | b.provisos)

    def sum(self, terms: list[Term], rest: Poly) -> Range:
        value = self._lowering.poly(rest)
        total = Range(value, value)
        for term in terms:
            total = self.plus(total, self.scaled(term))
            if total.lo is None and total.hi is None:
                return UNBOUNDED
        return total

    def scale(self, factor: Poly, r: Range) -> Range:
        sign = sign_of(factor)
        if not sign and (positive := self._domain.positive_part(factor)) is not None:
            sign, obligation = positive
            claim = self._environments.claim(obligation, self._environments.empty)
            r = r.relying_on(frozenset([claim]))
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

    def times(self, a: Range, b: Range) -> Range:
        launch = self.launch
        provisos = a.provisos | b.provisos
        if a.lo is None or b.lo is None:
            return UNBOUNDED
        if is_natural(a.lo) and is_natural(b.lo):
            hi = None if a.hi is None or b.hi is None else launch.mul(a.hi, b.hi)
            return Range(launch.mul(a.lo, b.lo), hi, provisos)
        if a.hi is None or b.hi is None:
            return UNBOUNDED
        corners = [launch.mul(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        lo = hi = corners[0]
        for corner in corners[1:]:
            lo, hi = launch.min(lo, corner), launch.max(hi, corner)
        return Range(lo, hi, provisos)

    def scaled(self, term: Term) -> Range:
        return self.scale(term.factor, term.range)

    def shifted(self, term: Term, shift: int) -> Term:
        """The term for `part + shift` in the place of `part`."""
        if not shift:
            return term
        moved = self.moved(term.range, shift)
        return Term(term.factor, term.part, term.shift + shift, moved)

    def finer(self, term: Term, factor: Poly, times: int) -> Term:
        """The term with a factor that is smaller by a whole number."""
        if times == 1:
            return term
        found = self.scale(Poly({(): times}), term.range)
        return Term(factor, term.part.scale(times), term.shift * times, found)

    def align(self, forms: list[Form]) -> None:
        """Write equal symbolic strides as equal factors, and the rest's share of a stride as a
        shift: row `4*k + 1` of a matrix is row `4*k`, shifted by one."""
        common: dict[Poly, int] = {}
        for form in forms:
            for term in form.terms:
                if term.factor.constant is None:
                    unit, size = _unit(term.factor)
                    common[unit] = gcd(common.get(unit, 0), size, _share(form.rest, unit))
        for form in forms:
            for place, term in enumerate(form.terms):
                if term.factor.constant is None:
                    unit, size = _unit(term.factor)
                    whole = common[unit]
                    shift = _share(form.rest, unit) // whole
                    form.rest = form.rest - unit.scale(shift * whole)
                    finer = self.finer(term, unit.scale(whole), size // whole)
                    form.terms[place] = self.shifted(finer, shift)


def sign_of(poly: Poly) -> int:
    """1 or -1 where the sign is known statically (0 counts as either); else 0."""
    lo, hi = poly.bound()
    if lo is not None and lo >= 0:
        return 1
    return -1 if hi is not None and hi <= 0 else 0


def is_natural(value: Expr | None) -> bool:
    return value is not None and value.lo is not None and value.lo >= 0


def _unit(factor: Poly) -> tuple[Poly, int]:
    """A factor as a primitive polynomial with a positive lead, and a whole number."""
    content = factor.content()
    if factor.terms[max(factor.terms)] < 0:
        content = -content
    return factor.divide_exactly(content), content


def _share(rest: Poly, unit: Poly) -> int:
    """How often a rest contains a unit, by its leading term."""
    lead = max(unit.terms)
    return rest.terms.get(lead, 0) // unit.terms[lead]
