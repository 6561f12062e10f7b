# SPDX-License-Identifier: Apache-2.0
"""Pass 6: the smallest and largest value of a polynomial over all threads of a launch, as
launch expressions.

Interval arithmetic over independent atoms, made tight by facts: where a polynomial contains a
combination of atoms that a guard bounds, as a row or column index, the combination is
taken as one quantity.
"""

from __future__ import annotations

from tessera.analysis.atoms import HANDLERS, linked
from tessera.analysis.environment import Direction, Env, Environments, Fact
from tessera.analysis.intervals import UNBOUNDED, Form, Intervals, Range, Term, sign_of
from tessera.analysis.joins import Joins
from tessera.analysis.launch import Expr
from tessera.analysis.lower import Lowering
from tessera.analysis.polynomial import Atom, Monomial, Poly
from tessera.analysis.provisos import Provisos
from tessera.analysis.registers import Registers
from tessera.analysis.seats import MAX_NESTED, NO_ATOMS, Excluded, Seats
from tessera.analysis.transfer import rejoin
from tessera.analysis.values import Value

WIDE = 1 << 24  # an atom with more values than this is as good as unbounded
_COUNTS = {"tid": "%ntid", "ctaid": "%nctaid", "cluster_ctaid": "%cluster_nctaid"}


class Bounds(Intervals):
    """Ranges of the polynomials of one program."""

    def __init__(
        self, registers: Registers, environments: Environments, lowering: Lowering
    ) -> None:
        super().__init__(registers.domain, environments, lowering)
        self.registers = registers
        self.environments = environments
        self._ranges: dict[tuple[Poly, Env, Excluded, frozenset[Atom]], Range] = {}
        self._forms: dict[tuple[Poly, Env, Excluded, frozenset[Atom]], Form] = {}
        self._boxes: dict[tuple[Poly, Env, Excluded, frozenset[Atom]], Range] = {}
        self._seats = Seats()
        self._limits: dict[Fact, Expr] = {}
        self.joins = Joins(self)
        self.provisos = Provisos(self)

    def release(self) -> None:
        """Cut the cycles with what knows this table. No question may follow."""
        del self.joins, self.provisos

    def range(self, poly: Poly, env: Env, excluded: Excluded = frozenset()) -> Range:
        number = poly.terms.get((), 0)
        base = poly.shift(-number) if number else poly
        # Inside a cycle of joins a result holds for that cycle only.
        active = frozenset(self.joins.active) if self.joins.active else NO_ATOMS
        key = (base, env, excluded, active)
        found = self._ranges.get(key)
        if found is None:
            seat = self._seats.of(base, env, excluded)
            outer = (base, seat.env, seat.excluded, active if seat.joins else NO_ATOMS)
            found = self._ranges.get(outer)
            if found is None:
                found = self._ranges[outer] = self._compute(base, seat.env, seat.excluded)
            self._ranges[key] = found
        return self.moved(found, number) if number else found

    def _compute(self, poly: Poly, env: Env, excluded: Excluded) -> Range:
        form = self.decompose(poly, env, excluded)
        return self.sum(form.terms, form.rest)

    def decompose(self, poly: Poly, env: Env, excluded: Excluded = frozenset()) -> Form:
        """A polynomial as a uniform rest and multiples of combinations that are bounded as one:
        those that facts are about first, then what is left, by the strides that it has."""
        varying, rest = poly.split()
        rest = rejoin(rest)
        if not varying:
            return Form([], rest)
        part = poly.varying_part()
        seat = self._seats.of(part, env, excluded)
        key = (
            part,
            seat.env,
            seat.excluded,
            frozenset(self.joins.active) if seat.joins else NO_ATOMS,
        )
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = self._decompose(part, seat.env, seat.excluded)
        return Form(list(found.terms), rest + found.rest)

    def _decompose(self, part: Poly, env: Env, excluded: Excluded) -> Form:
        varying, rest = self._joined(part, env, excluded).split()
        return Form(self._take_apart(dict(varying), env, excluded), rest)

    def _joined(self, poly: Poly, env: Env, excluded: Excluded) -> Poly:
        """`d * (x / d) + x mod d` as `x`, unless something is known about one of the parts."""
        whole = rejoin(poly)
        if whole is poly:
            return poly
        chosen = self._choose(poly.split()[0], env, excluded)
        parts = poly.atoms - whole.atoms
        return poly if chosen is not None and chosen[0].poly.atoms & parts else whole

    def _take_apart(
        self, varying: dict[Monomial, Poly], env: Env, excluded: Excluded
    ) -> list[Term]:
        terms: list[Term] = []
        while varying:
            chosen = self._choose(varying, env, excluded)
            if chosen is None:
                break
            direction, factor = chosen
            found = self._direction_range(direction, env, excluded)
            terms.append(Term(factor, direction.poly, 0, found))
            varying = {m: c for m, c in varying.items() if m not in direction.poly.split()[0]}
        for factor, part in _by_stride(varying):
            step, index = _in_steps(factor, part)
            terms.append(Term(step, index, 0, self._boxed(index, env, excluded)))
        return terms

    def _boxed(self, part: Poly, env: Env, excluded: Excluded) -> Range:
        seat = self._seats.of(part, env, excluded)
        active = frozenset(self.joins.active) if seat.joins else NO_ATOMS
        key = (part, seat.env, seat.excluded, active)
        found = self._boxes.get(key)
        if found is None:
            found = self._boxes[key] = self._box(part, seat.env, seat.excluded)
        return found

    def _box(self, part: Poly, env: Env, excluded: Excluded) -> Range:
        """Atom by atom. Thread and block indices are summed as polynomials: their ends cancel
        there."""
        varying, lo = part.split()
        hi = lo
        left: list[Range] = []
        for monomial, coefficient in varying.items():
            most = self.most(monomial)
            if most is not None and (beside := linked(self, monomial[0], env, excluded)):
                left.append(self.scale(coefficient, beside))
                continue
            sign = sign_of(coefficient)
            product = coefficient.times(most) if most is not None and sign else None
            if product is None:
                found = self._monomial_range(monomial, env, excluded)
                left.append(self.scale(coefficient, found))
            elif sign > 0:
                hi = hi + product
            else:
                lo = lo + product
        total = Range(self._lowering.poly(lo), self._lowering.poly(hi))
        for found in left:
            total = self.plus(total, found)
        return total

    def most(self, monomial: Monomial) -> Poly | None:
        """The largest value of a single thread or block index."""
        atom = monomial[0]
        count = _COUNTS.get(atom.kind)
        if count is None or len(monomial) > 1:
            return None
        return self.registers.special(0, count, atom.args[0]).shift(-1)

    def _choose(
        self, varying: dict[Monomial, Poly], env: Env, excluded: Excluded
    ) -> tuple[Direction, Poly] | None:
        """The widest known combination that the polynomial contains as a multiple."""
        best: tuple[Direction, Poly] | None = None
        if len(excluded) > MAX_NESTED:
            return None
        leads = env.directions_by_lead()
        for monomial in varying:
            for direction in leads.get(monomial, ()):
                key = direction.poly
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
            limit = self.limit(fact, direction, content)
            if limit is None:
                continue
            tighter = limit if hi is None else self.launch.min(hi, limit)
            if tighter is not hi:
                hi, provisos = tighter, provisos | {fact.proviso}
        for fact, content in direction.lower:
            limit = self.limit(fact, direction, content)
            if limit is None:
                continue
            limit = self.launch.sub(self.launch.zero, limit)
            tighter = limit if lo is None else self.launch.max(lo, limit)
            if tighter is not lo:
                lo, provisos = tighter, provisos | {fact.proviso}
        return Range(lo, hi, provisos)

    def limit(self, fact: Fact, direction: Direction, content: int) -> Expr | None:
        """`content * (+-direction) + rest <= slack`: the limit of `+-direction`."""
        if not self.provisos.holds(fact.proviso):
            return None
        found = self._limits.get(fact)
        if found is None:
            limit = self._lowering.poly(-fact.poly.split()[1])
            if fact.slack is not None:
                limit = self.launch.add(limit, fact.slack)
            found = self._limits[fact] = self.launch.floor_div(limit, self.launch.const(content))
        return found

    def _monomial_range(self, monomial: Monomial, env: Env, excluded: Excluded) -> Range:
        out = self._atom_range(monomial[0], env, excluded)
        for atom in monomial[1:]:
            out = self.times(out, self._atom_range(atom, env, excluded))
        return out

    def _atom_range(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        handler = HANDLERS.get(atom.kind)
        if handler is not None:
            return self._clip(handler(self, atom, env, excluded), atom)
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

    def value_range(self, value: Value, env: Env, excluded: Excluded = frozenset()) -> Range:
        found = self.range(value.poly, env, excluded)
        if value.obligations:
            found = found.relying_on(frozenset([self.environments.claim(value.obligations, env)]))
        return found


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


_LAUNCH_ATOMS = frozenset(("grid", "block", "cluster"))


def _by_stride(varying: dict[Monomial, Poly]) -> list[tuple[Poly, Poly]]:
    """(factor, part) for terms that have their parameters in common: `4*ld*(ty + 16*by)`."""
    groups: dict[Monomial, Poly] = {}
    for monomial, coefficient in varying.items():
        for uniform, number in coefficient.terms.items():
            stride = tuple(a for a in uniform if a.kind not in _LAUNCH_ATOMS)
            launch = tuple(a for a in uniform if a.kind in _LAUNCH_ATOMS)
            inner = Poly({tuple(sorted(monomial + launch)): number})
            groups[stride] = groups.get(stride, Poly({})) + inner
    out = []
    for stride, part in groups.items():
        content = part.content()
        if content:
            out.append((Poly({stride: content}), part.divide_exactly(content)))
    return out


def _in_steps(factor: Poly, part: Poly) -> tuple[Poly, Poly]:
    """`block * ctaid` alone is as many steps of a block: the gaps belong to the factor."""
    if len(part.terms) == 1 and part.single is None:
        ((monomial, number),) = part.terms.items()
        launch = tuple(a for a in monomial if a.kind in _LAUNCH_ATOMS)
        index = tuple(a for a in monomial if a.kind not in _LAUNCH_ATOMS)
        step = factor.times(Poly({launch: number}))
        if launch and len(index) == 1 and step is not None:
            return step, Poly({index: 1})
    return factor, part
