# SPDX-License-Identifier: Apache-2.0
"""Pass 6: the smallest and largest value of a polynomial over all threads of a launch, as
launch expressions.

Interval arithmetic over independent atoms, made tight by facts: where a polynomial contains a
combination of atoms that a guard bounds, as a row or column index, the combination is
taken as one quantity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from tessera.analysis.domain import Obligation, Value
from tessera.analysis.environment import Direction, Env, Environments, Fact, Proviso
from tessera.analysis.launch import INT64_MAX, INT64_MIN, Expr
from tessera.analysis.lower import Lowering
from tessera.analysis.polynomial import Atom, Monomial, Poly, constant
from tessera.analysis.registers import Registers
from tessera.analysis.seats import MAX_NESTED, NO_ATOMS, Excluded, Seats
from tessera.analysis.transfer import rejoin

WIDE = 1 << 24  # an atom with more values than this is as good as unbounded
SMALL_MASK = 1 << 16
NARROW = 16  # bits of a number that is expected to wrap around
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
_COUNTS = {"tid": "%ntid", "ctaid": "%nctaid", "cluster_ctaid": "%cluster_nctaid"}


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
        self._forms: dict[tuple[Poly, Env, Excluded, frozenset[Atom]], Form] = {}
        self._seats = Seats()
        self._claims: dict[tuple[frozenset[Obligation], Env], Proviso] = {}
        self._limits: dict[Fact, Expr] = {}
        self._joins: dict[Atom, Range] = {}
        self._active: set[Atom] = set()
        self._guesses: dict[Atom, Range] = {}  # of loops' variables that are being bounded
        self._checks: dict[Proviso, bool] = {}
        self._check_needs: dict[Proviso, frozenset[Proviso]] = {}
        self._checking: set[Proviso] = set()
        self._conditions: dict[frozenset[Proviso], Expr | None] = {}
        self._closures: dict[frozenset[Proviso], list[Proviso] | None] = {}

    # Ranges

    def range(self, poly: Poly, env: Env, excluded: Excluded = frozenset()) -> Range:
        number = poly.terms.get((), 0)
        base = poly.shift(-number) if number else poly
        # Inside a cycle of joins a result holds for that cycle only.
        active = frozenset(self._active) if self._active else NO_ATOMS
        key = (base, env, excluded, active)
        found = self._ranges.get(key)
        if found is None:
            seat = self._seats.of(base, env, excluded)
            outer = (base, seat.env, seat.excluded, active if seat.joins else NO_ATOMS)
            found = self._ranges.get(outer)
            if found is None:
                found = self._ranges[outer] = self._compute(base, seat.env, seat.excluded)
            self._ranges[key] = found
        return self._moved(found, number) if number else found

    def _moved(self, found: Range, number: int) -> Range:
        by = self.launch.const(number)
        lo = None if found.lo is None else self.launch.add(found.lo, by)
        hi = None if found.hi is None else self.launch.add(found.hi, by)
        return Range(lo, hi, found.provisos)

    def _compute(self, poly: Poly, env: Env, excluded: Excluded) -> Range:
        form = self.decompose(poly, env, excluded)
        return self._sum(form.terms, form.rest)

    def _sum(self, terms: list[Term], rest: Poly) -> Range:
        value = self._lowering.poly(rest)
        total = Range(value, value)
        for term in terms:
            total = self._plus(total, self.scaled(term))
            if total.lo is None and total.hi is None:
                return UNBOUNDED
        return total

    def decompose(self, poly: Poly, env: Env, excluded: Excluded = frozenset()) -> Form:
        """A polynomial as a uniform rest and multiples of combinations that are bounded as one:
        those that facts are about first, then what is left, by the strides that it has."""
        varying, rest = poly.split()
        rest = rejoin(rest)
        if not varying:
            return Form([], rest)
        part = poly.varying_part()
        seat = self._seats.of(part, env, excluded)
        key = (part, seat.env, seat.excluded, frozenset(self._active) if seat.joins else NO_ATOMS)
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
            terms.append(Term(step, index, 0, self._box(index, env, excluded)))
        return terms

    def shifted(self, term: Term, shift: int) -> Term:
        """The term for `part + shift` in the place of `part`."""
        if not shift:
            return term
        moved = self._moved(term.range, shift)
        return Term(term.factor, term.part, term.shift + shift, moved)

    def finer(self, term: Term, factor: Poly, times: int) -> Term:
        """The term with a factor that is smaller by a whole number."""
        if times == 1:
            return term
        found = self._scale(Poly({(): times}), term.range)
        return Term(factor, term.part.scale(times), term.shift * times, found)

    def scaled(self, term: Term) -> Range:
        return self._scale(term.factor, term.range)

    def _box(self, part: Poly, env: Env, excluded: Excluded) -> Range:
        """Atom by atom. Thread and block indices are summed as polynomials: their ends cancel
        there."""
        varying, lo = part.split()
        hi = lo
        left: list[Range] = []
        for monomial, coefficient in varying.items():
            most = self._most(monomial)
            if most is not None and (linked := self._linked(monomial[0], env, excluded)):
                left.append(self._scale(coefficient, linked))
                continue
            sign = _sign(coefficient)
            product = coefficient.times(most) if most is not None and sign else None
            if product is None:
                found = self._monomial_range(monomial, env, excluded)
                left.append(self._scale(coefficient, found))
            elif sign > 0:
                hi = hi + product
            else:
                lo = lo + product
        total = Range(self._lowering.poly(lo), self._lowering.poly(hi))
        for found in left:
            total = self._plus(total, found)
        return total

    def _most(self, monomial: Monomial) -> Poly | None:
        """The largest value of a single thread or block index."""
        atom = monomial[0]
        count = _COUNTS.get(atom.kind)
        if count is None or len(monomial) > 1:
            return None
        return self._registers.special(0, count, atom.args[0]).shift(-1)

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

    def _linked(self, index: Atom, env: Env, excluded: Excluded) -> Range | None:
        """A thread or block index as far as facts bound it by a variable: `tid < s`."""
        about = env.links().get(index, ())
        if not about or len(excluded) > MAX_NESTED:
            return None
        best = self._index_range(index, env, excluded)
        for direction in about:
            key = direction.poly
            if key not in excluded:
                best = self._no_more_than(best, index, direction, env, excluded | {key})
        return best

    def _index_range(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        most = self._most((atom,))
        assert most is not None
        return Range(self.launch.zero, self._lowering.poly(most))

    _range_tid = _range_ctaid = _range_cluster_ctaid = _index_range

    def _range_k(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        """Iterations of a loop: as many as the facts about its variables allow."""
        best = Range(self.launch.zero, None)
        if len(excluded) > MAX_NESTED:
            return best
        for key, direction in env.directions().items():
            if key not in excluded:
                best = self._no_more_than(best, atom, direction, env, excluded | {key})
        return best

    def _no_more_than(
        self, best: Range, atom: Atom, direction: Direction, env: Env, excluded: Excluded
    ) -> Range:
        """The range of an atom, where a combination that it is part of makes it smaller."""
        key = direction.poly
        step = key.split()[0].get((atom,))
        if step is None:
            return best
        rest = key - (step.times(Poly({(atom,): 1})) or key)
        if atom in rest.atoms:
            return best
        limit = self._iterations(direction, step, rest, env, excluded)
        if limit is None or limit.hi is None:
            return best
        hi = limit.hi if best.hi is None else self.launch.min(best.hi, limit.hi)
        return best if hi is best.hi else Range(best.lo, hi, best.provisos | limit.provisos)

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
        divisor = self._divisor(atom, env, excluded)
        if divisor.lo is divisor.hi and divisor.lo is not None:
            lo = None if inner.lo is None else self.launch.floor_div(inner.lo, divisor.lo)
            hi = None if inner.hi is None else self.launch.floor_div(inner.hi, divisor.lo)
            return Range(lo, hi, inner.provisos | divisor.provisos)
        # The value is obliged to have a numerator of at least 0 and a divisor of at least 1.
        if inner.hi is None:
            return Range(self.launch.zero, None)
        least = self.launch.one
        if divisor.lo is not None:
            least = self.launch.max(self.launch.one, divisor.lo)
        hi = self.launch.floor_div(inner.hi, least)
        return Range(self.launch.zero, hi, inner.provisos | divisor.provisos)

    def _range_rem(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        divisor = self._divisor(atom, env, excluded)
        inner = self.range(atom.args[0], env, excluded)
        most = None
        if divisor.hi is not None:
            most = self.launch.add(divisor.hi, self.launch.const(-1))
        if _is_natural(inner.lo) and inner.hi is not None:
            if isinstance(atom.args[1], int) and inner.lo is not self.launch.zero:
                return self._window(inner, atom.args[1])
            hi = inner.hi if most is None else self.launch.min(most, inner.hi)
            return Range(self.launch.zero, hi, inner.provisos | divisor.provisos)
        return Range(self.launch.zero, most, divisor.provisos)

    def _range_wrap(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        poly, bits, signed = atom.args
        inner = self.range(poly, env, excluded)
        if bits > NARROW or inner.lo is None or inner.hi is None:
            return UNBOUNDED
        below = 1 << (bits - 1) if signed else 0
        return self._moved(self._window(self._moved(inner, below), 1 << bits), -below)

    def _window(self, inner: Range, divisor: int) -> Range:
        """The remainders of numbers from some place on: all of them, unless no multiple of the
        divisor lies between the ends."""
        launch = self.launch
        assert inner.lo is not None
        assert inner.hi is not None
        size = launch.const(divisor)
        first, last = launch.floor_div(inner.lo, size), launch.floor_div(inner.hi, size)
        same = launch.less_equal(last, first)
        base = launch.mul(first, size)
        lo = launch.select(same, launch.sub(inner.lo, base), launch.zero)
        hi = launch.select(same, launch.sub(inner.hi, base), launch.const(divisor - 1))
        return Range(lo, hi, inner.provisos)

    def _divisor(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        divisor = atom.args[1]
        poly = constant(divisor) if isinstance(divisor, int) else divisor
        return self.range(poly, env, excluded)

    def _range_min(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        lo = None if a.lo is None or b.lo is None else self.launch.min(a.lo, b.lo)
        known = [bound for bound in (a.hi, b.hi) if bound is not None]
        hi = self.launch.min(*known) if len(known) == 2 else next(iter(known), None)
        return Range(lo, hi, a.provisos | b.provisos)

    def _range_max(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        hi = None if a.hi is None or b.hi is None else self.launch.max(a.hi, b.hi)
        known = [bound for bound in (a.lo, b.lo) if bound is not None]
        lo = self.launch.max(*known) if len(known) == 2 else next(iter(known), None)
        return Range(lo, hi, a.provisos | b.provisos)

    def _range_and(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        a, b = (self.range(p, env, excluded) for p in atom.args)
        highs = [r.hi for r in (a, b) if r.hi is not None]
        if not highs:
            return UNBOUNDED
        hi = highs[0] if len(highs) == 1 else self.launch.min(*highs)
        return Range(self.launch.zero, hi, a.provisos | b.provisos)

    def _range_or(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        """At most the sum; or, where one side is small, what its bits can fill up."""
        a, b = (self.range(p, env, excluded) for p in atom.args)
        if a.hi is None or b.hi is None:
            return UNBOUNDED
        provisos = a.provisos | b.provisos
        for x, y in ((a.hi, b.hi), (b.hi, a.hi)):
            if y.hi is not None and 0 <= y.hi < SMALL_MASK:
                size = self.launch.const(1 << y.hi.bit_length())
                high = self.launch.mul(self.launch.floor_div(x, size), size)
                hi = self.launch.add(high, self.launch.const(size.value - 1))
                return Range(self.launch.zero, hi, provisos)
        return Range(self.launch.zero, self.launch.add(a.hi, b.hi), provisos)

    _range_xor = _range_or

    def _range_pow2(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        inner = self.range(atom.args[0], env, excluded)
        if inner.lo is None or inner.hi is None:
            return UNBOUNDED
        one = self.launch.one
        return Range(self.launch.shl(one, inner.lo), self.launch.shl(one, inner.hi), inner.provisos)

    def _range_other_lane(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        return self._value_range(atom.args[0], self._environments.empty)

    def _range_sel(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        pred, a, b = atom.args
        for side, what in ((a, pred), (b, pred.negated())):
            if env.is_made_for(what):
                return self._value_range(side, env, excluded)
        # A fact about a choice may be what bounds its sides: each fact counts once on the way.
        first = self._value_range(a, self._environments.refine(env, pred), excluded)
        second = self._value_range(b, self._environments.refine(env, pred.negated()), excluded)
        return self.hull([first, second])

    def _range_phi(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        inputs = zip(*atom.args, strict=True)
        on_edge = self._environments.on_edge
        return self._join(atom, lambda: [(value, on_edge(edge)) for edge, value in inputs])

    def _range_stored(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        """Words of an array, each seen from where it is stored."""
        words, _, _, kind = atom.args
        registers, at = self._registers, self._environments.at
        return self._join(atom, lambda: [(w.value(registers, kind), at(w.store)) for w in words])

    def _range_loopphi(self, atom: Atom, env: Env, excluded: Excluded) -> Range:
        """Between 0 and what it starts with, if every way round the loop keeps it there: a size
        that is halved, an index that is masked. Whether it does is asked at launch."""
        if atom in self._guesses:
            return self._guesses[atom]
        if atom in self._joins:
            return self._joins[atom]
        if atom in self._active:
            return UNBOUNDED
        definition, inputs = atom.args
        body = self._registers.flow.loops[definition.at].body
        on_edge = self._environments.on_edge
        ways = [(e.source in body, self._registers.value(d), on_edge(e)) for e, d in inputs]
        start = self._incoming(atom, [(v, env) for back, v, env in ways if not back])
        found = UNBOUNDED
        if start.lo is not None and start.hi is not None:
            guess = self.hull([start, Range(self.launch.zero, self.launch.zero)])
            found = self._kept(atom, guess, [(v, env) for back, v, env in ways if back])
        if not self._active:
            self._joins[atom] = found
        return found

    def _kept(self, atom: Atom, guess: Range, back: list[tuple[Value, Env]]) -> Range:
        """A guess at a loop's variable, which rests on what every way round makes of it."""
        assumed = Proviso(conditions=(self.launch.zero,))  # until more is known, it does not hold
        assert guess.lo is not None
        assert guess.hi is not None
        self._guesses[atom] = guess.relying_on(frozenset([assumed]))
        again = self._incoming(atom, back)
        found = self._guesses.pop(atom)
        if again.lo is None or again.hi is None:
            return UNBOUNDED
        launch = self.launch
        stays = launch.both(
            launch.less_equal(guess.lo, again.lo), launch.less_equal(again.hi, guess.hi)
        )
        assumed.conditions, assumed.needs = (stays,), again.provisos
        self._checks.pop(assumed, None)
        return UNBOUNDED if stays is launch.zero else found

    def _join(self, atom: Atom, inputs: Callable[[], list[tuple[Value, Env]]]) -> Range:
        """The hull of what comes in from several places, seen from there."""
        if atom in self._joins:
            return self._joins[atom]
        if atom in self._active:
            return UNBOUNDED
        found = self._incoming(atom, inputs())
        if not self._active:
            self._joins[atom] = found
        return found

    def _incoming(self, atom: Atom, inputs: list[tuple[Value, Env]]) -> Range:
        self._active.add(atom)
        try:
            ranges = [self._value_range(value, env) for value, env in inputs]
        finally:
            self._active.discard(atom)
        return self.hull(ranges) if ranges else UNBOUNDED

    def _value_range(self, value: Value, env: Env, excluded: Excluded = frozenset()) -> Range:
        found = self.range(value.poly, env, excluded)
        if value.obligations:
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

    def at_most(self, poly: Poly, slack: Expr | None) -> Expr:
        """`poly <= slack` as a launch expression."""
        return self._lowering.at_most(poly, slack)

    def lower(self, poly: Poly) -> Expr:
        """A uniform polynomial as a launch expression."""
        return self._lowering.poly(poly)

    def _scale(self, factor: Poly, r: Range) -> Range:
        sign = _sign(factor)
        if not sign and (positive := self._registers.domain.positive_part(factor)) is not None:
            sign, obligation = positive
            r = r.relying_on(frozenset([self.claim(obligation, self._environments.empty)]))
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
        return self._check(proviso)

    def _check(self, proviso: Proviso) -> bool:
        known = self._checks.get(proviso)
        if known is not None:
            return known
        self._checking.add(proviso)
        needs, possible = proviso.needs, True
        for poly, least, most in proviso.in_order():
            assert proviso.env is not None
            found = self.range(poly, proviso.env)
            needs |= found.provisos
            if self._within(found, least, most) is None:
                possible = False
                break
        self._checking.discard(proviso)
        self._check_needs[proviso] = needs
        self._checks[proviso] = possible
        return possible

    def _within(self, found: Range, least: int, most: int) -> Expr | None:
        if found.lo is None or found.hi is None:
            return None
        launch = self.launch
        low = launch.less_equal(launch.const(max(least, INT64_MIN)), found.lo)
        high = launch.less_equal(found.hi, launch.const(min(most, INT64_MAX)))
        condition = launch.both(low, high)
        return None if condition is launch.zero else condition

    def conditions(self, provisos: frozenset[Proviso]) -> Expr | None:
        """All that a launch must satisfy for the provisos to hold, as one expression that is 0 or
        1; None: they cannot hold."""
        if not self._guesses and provisos in self._conditions:
            return self._conditions[provisos]
        every = self._closure(provisos)
        found = None if every is None else self._conditions_of(every)
        if not self._guesses:  # what a guess rests on is not known yet
            self._conditions[provisos] = found
        return found

    def _conditions_of(self, every: list[Proviso]) -> Expr | None:
        out = self.launch.one
        tightest: dict[tuple[Poly, Env], tuple[int, int]] = {}
        for proviso in every:
            for condition in proviso.conditions:
                out = self.launch.both(out, condition)
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
            out = self.launch.both(out, within)
        return None if out is self.launch.zero else out

    def _alike(
        self, obligations: dict[tuple[Poly, Env], tuple[int, int]]
    ) -> list[tuple[Range, int, int]]:
        """Obligations of copies of one computation, as one: their terms have the same strides."""
        forms = [self.decompose(poly, env) for poly, env in obligations]
        self.align(forms)
        groups: dict[tuple[object, ...], tuple[Form, int, int]] = {}
        for form, (lo, hi) in zip(forms, obligations.values(), strict=True):
            form.terms.sort(key=_order)
            key = (tuple(_kin(t) for t in form.terms), form.rest)
            known = groups.get(key)
            if known is None:
                groups[key] = form, lo, hi
                continue
            joined = [
                Term(a.factor, a.part, 0, self.hull([a.range, b.range]))
                for a, b in zip(known[0].terms, form.terms, strict=True)
            ]
            groups[key] = Form(joined, form.rest), max(known[1], lo), min(known[2], hi)
        return [(self._sum(form.terms, form.rest), lo, hi) for form, lo, hi in groups.values()]

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

    def can_hold(self, provisos: frozenset[Proviso]) -> bool:
        """False when the provisos fail whatever the launch."""
        return self._closure(provisos) is not None

    def conditions_beyond(
        self, provisos: frozenset[Proviso], known: frozenset[Proviso]
    ) -> Expr | None:
        """As `conditions`, without those that follow from `known`, where they hold."""
        every, given = self._closure(provisos), self._closure(known)
        if every is None or given is None:
            return None
        known_ones = set(given)
        return self._conditions_of([p for p in every if p not in known_ones])

    def _closure(self, provisos: frozenset[Proviso]) -> list[Proviso] | None:
        """The provisos and all that they rest on; None when one of them cannot hold."""
        if self._guesses:
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


def _order(term: Term) -> tuple[object, ...]:
    return term.factor.order(), term.range.lo.serial if term.range.lo is not None else -1


def _kin(term: Term) -> tuple[object, ...]:
    """Terms with equal kin may be joined: a symbolic stride makes them copies."""
    return (term.factor, None if term.factor.constant is None else term.range.lo)


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


def _sign(poly: Poly) -> int:
    """1 or -1 where the sign is known statically (0 counts as either); else 0."""
    lo, hi = poly.bound()
    if lo is not None and lo >= 0:
        return 1
    return -1 if hi is not None and hi <= 0 else 0
