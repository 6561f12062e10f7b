# SPDX-License-Identifier: Apache-2.0
"""What claims rest on: whether it can hold at all, and what a launch must satisfy for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.analysis.environment import Env, Proviso
from tessera.analysis.intervals import Form, Range, Term
from tessera.analysis.launch import INT64_MAX, INT64_MIN, Expr
from tessera.analysis.polynomial import Poly

if TYPE_CHECKING:
    from tessera.analysis.bounds import Bounds


class Provisos:
    """Judges the provisos of one program."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._launch = bounds.launch
        self._checks: dict[Proviso, bool] = {}
        self._check_needs: dict[Proviso, frozenset[Proviso]] = {}
        self._checking: set[Proviso] = set()
        self._conditions: dict[frozenset[Proviso], Expr | None] = {}
        self._closures: dict[frozenset[Proviso], list[Proviso] | None] = {}

    def holds(self, proviso: Proviso) -> bool:
        """False when a proviso cannot be shown, whatever the launch."""
        if proviso in self._checking:
            return True  # by induction: see environment.py
        return self._check(proviso)

    def ask_again(self, proviso: Proviso) -> None:
        """Forget what was found about a proviso: it says something else now."""
        self._checks.pop(proviso, None)

    def _check(self, proviso: Proviso) -> bool:
        known = self._checks.get(proviso)
        if known is not None:
            return known
        self._checking.add(proviso)
        needs, possible = proviso.needs, True
        for poly, least, most in proviso.in_order():
            assert proviso.env is not None
            found = self._bounds.range(poly, proviso.env)
            needs |= found.provisos
            if not _may_lie_within(found, least, most):
                possible = False
                break
        self._checking.discard(proviso)
        self._check_needs[proviso] = needs
        self._checks[proviso] = possible
        return possible

    def _within(self, found: Range, least: int, most: int) -> Expr | None:
        if found.lo is None or found.hi is None:
            return None
        launch = self._launch
        low = launch.less_equal(launch.const(max(least, INT64_MIN)), found.lo)
        high = launch.less_equal(found.hi, launch.const(min(most, INT64_MAX)))
        condition = launch.both(low, high)
        return None if condition is launch.zero else condition

    def conditions(self, provisos: frozenset[Proviso]) -> Expr | None:
        """All that a launch must satisfy for the provisos to hold, as one expression that is 0 or
        1; None: they cannot hold."""
        if not self._bounds.joins.guesses and provisos in self._conditions:
            return self._conditions[provisos]
        every = self._closure(provisos)
        found = None if every is None else self._conditions_of(every)
        if not self._bounds.joins.guesses:  # what a guess rests on is not known yet
            self._conditions[provisos] = found
        return found

    def conditions_beyond(
        self, provisos: frozenset[Proviso], known: frozenset[Proviso]
    ) -> Expr | None:
        """As `conditions`, without those that follow from `known`, where they hold."""
        every, given = self._closure(provisos), self._closure(known)
        if every is None or given is None:
            return None
        known_ones = set(given)
        return self._conditions_of([p for p in every if p not in known_ones])

    def can_hold(self, provisos: frozenset[Proviso]) -> bool:
        """False when the provisos fail whatever the launch."""
        return self._closure(provisos) is not None

    def _conditions_of(self, every: list[Proviso]) -> Expr | None:
        out = self._launch.one
        tightest: dict[tuple[Poly, Env], tuple[int, int]] = {}
        for proviso in every:
            for condition in proviso.conditions:
                out = self._launch.both(out, condition)
            for poly, least, most in proviso.in_order():
                assert proviso.env is not None
                number = poly.terms.get((), 0)
                key = (poly.shift(-number), proviso.env)
                lo, hi = tightest.get(key, (least - number, most - number))
                tightest[key] = max(lo, least - number), min(hi, most - number)
        for found, lo, hi in self._alike(tightest):
            within = self._within(found, lo, hi)
            if within is None:
                return None
            out = self._launch.both(out, within)
        return None if out is self._launch.zero else out

    def _alike(
        self, obligations: dict[tuple[Poly, Env], tuple[int, int]]
    ) -> list[tuple[Range, int, int]]:
        """Obligations of copies of one computation, as one: their terms have the same strides."""
        forms = [self._bounds.decompose(poly, env) for poly, env in obligations]
        self._bounds.align(forms)
        groups: dict[tuple[object, ...], tuple[Form, int, int]] = {}
        for form, (lo, hi) in zip(forms, obligations.values(), strict=True):
            form.terms.sort(key=_order)
            key = (tuple(_kin(t) for t in form.terms), form.rest)
            known = groups.get(key)
            if known is None:
                groups[key] = form, lo, hi
                continue
            joined = [
                Term(a.factor, a.part, 0, self._bounds.hull([a.range, b.range]))
                for a, b in zip(known[0].terms, form.terms, strict=True)
            ]
            groups[key] = Form(joined, form.rest), max(known[1], lo), min(known[2], hi)
        return [
            (self._bounds.sum(form.terms, form.rest), lo, hi) for form, lo, hi in groups.values()
        ]

    def _closure(self, provisos: frozenset[Proviso]) -> list[Proviso] | None:
        """The provisos and all that they rest on; None when one of them cannot hold."""
        if self._bounds.joins.guesses:
            return self._find_closure(provisos)  # what a guess rests on is not known yet
        if provisos not in self._closures:
            self._closures[provisos] = self._find_closure(provisos)
        return self._closures[provisos]

    def _find_closure(self, provisos: frozenset[Proviso]) -> list[Proviso] | None:
        work = sorted(provisos, key=lambda p: p.serial)
        seen = dict.fromkeys(work)
        while work:
            proviso = work.pop()
            if not self._check(proviso):
                return None
            for need in sorted(self._check_needs[proviso], key=lambda p: p.serial):
                if need not in seen:
                    seen[need] = None
                    work.append(need)
        return list(seen)


def _may_lie_within(found: Range, least: int, most: int) -> bool:
    """False where a range is surely too wide in every launch, or not known."""
    lo, hi = found.lo, found.hi
    if lo is None or hi is None:
        return False
    return (lo.hi is None or lo.hi >= least) and (hi.lo is None or hi.lo <= most)


def _order(term: Term) -> tuple[object, ...]:
    return term.factor.order(), term.range.lo.serial if term.range.lo is not None else -1


def _kin(term: Term) -> tuple[object, ...]:
    """Terms with equal kin may be joined: a symbolic stride makes them copies."""
    return (term.factor, None if term.factor.constant is None else term.range.lo)
