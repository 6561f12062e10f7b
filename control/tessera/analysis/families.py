# SPDX-License-Identifier: Apache-2.0
"""Touches that are copies of one another, as unrolling and tiling make them, taken as one.

Members of a family have the same strides and the same varying parts, and differ by shifts. A
family is cut where it has gaps wider than what one member surely covers, so that its
interval claims little that its members do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tessera.analysis.bounds import Bounds
from tessera.analysis.environment import Env, Proviso
from tessera.analysis.intervals import Form, Range, Term
from tessera.analysis.launch import Expr, Op
from tessera.analysis.model import MAX_LEVELS
from tessera.analysis.polynomial import ONE, Atom, Monomial, Poly
from tessera.analysis.touches import Touch

NO_LIMITS: Mapping[Poly, Poly] = {}
MAX_STEP = 1 << 62  # sorts symbolic strides behind all constant ones


@dataclass(slots=True)
class Member:
    """One touch relative to a root: `sum(terms) + rest + number`, for `extent` bytes."""

    touch: Touch
    env: Env
    terms: list[Term]
    rest: Poly  # uniform, without its constant
    number: int
    extent: int
    provisos: frozenset[Proviso]


@dataclass(slots=True)
class Family:
    """Members in the order of the code."""

    root: Atom
    members: list[Member] = field(default_factory=list)

    @property
    def first(self) -> Member:
        return self.members[0]


def member_of(
    bounds: Bounds, touch: Touch, env: Env, offset: Poly, provisos: frozenset[Proviso]
) -> Member:
    """Precondition: the extent of the touch is bounded statically."""
    form = bounds.decompose(offset, env)
    number = form.rest.terms.get((), 0)
    extent = touch.extent.bound()[1] or 0
    rest = form.rest.shift(-number)
    return Member(touch, env, list(form.terms), rest, number, extent, provisos)


def families(bounds: Bounds, root: Atom, members: list[Member]) -> Iterator[Family]:
    """Members of one root and direction, put together where that loses nothing."""
    _align(bounds, members)
    groups: dict[tuple[object, ...], Family] = {}
    for member in members:
        shape = frozenset((term.factor, term.part) for term in member.terms)
        bounded = all(t.range.lo is not None and t.range.hi is not None for t in member.terms)
        key = (shape, len(member.terms), member.rest, bounded)
        groups.setdefault(key, Family(root)).members.append(member)
    for family in groups.values():
        for piece in _cut(family):
            _part_at_gaps(bounds, piece)
            yield piece


def _part_at_gaps(bounds: Bounds, family: Family) -> None:
    """Cut the terms of members that all lie at one place where their parts leave gaps."""
    for term in list(family.first.terms):
        pieces = _without_gaps(term.part)
        if len(pieces) < 2 or any(_term(m, term).shift != term.shift for m in family.members):
            continue
        if any(term.part in member.env.directions() for member in family.members):
            continue  # what is known of the whole would be lost
        if term.shift and pieces[0].content() > 1:
            continue  # it is no whole number of any piece's steps
        for member in family.members:
            mine = _term(member, term)
            place = member.terms.index(mine)
            member.terms[place : place + 1] = _pieces_of(bounds, mine, pieces, member.env)


def _pieces_of(bounds: Bounds, term: Term, pieces: list[Poly], env: Env) -> Iterator[Term]:
    for place, piece in enumerate(pieces):
        content = piece.content()
        part = piece.divide_exactly(content)
        found = Term(term.factor.scale(content), part, 0, bounds.range(part, env))
        # The shift is one of the finest steps: the first piece has them.
        yield found if place else bounds.shifted(found, term.shift)


def _align(bounds: Bounds, members: list[Member]) -> None:
    """Symbolic strides as in `Bounds.align`; of constant ones, the number's share as a shift."""
    forms = [Form(list(m.terms), m.rest) for m in members]
    bounds.align(forms)
    for member, form in zip(members, forms, strict=True):
        member.rest = form.rest
        member.terms = []
        for term in sorted(form.terms, key=lambda t: -(t.factor.constant or 0)):
            size = term.factor.constant or 0
            shift = member.number // size if size > 0 else 0
            member.number -= shift * size
            member.terms.append(bounds.shifted(term, shift))


def _cut(family: Family) -> list[Family]:
    """Cut along each term, and along the bytes, wherever there is a gap."""
    parts = [family]
    for term in family.first.terms:
        parts = [piece for part in parts for piece in _cut_along(part, term)]
    parts = [piece for part in parts for piece in _cut_bytes(part)]
    return [piece for part in parts for piece in _cut_unlike(part)]


def _cut_along(family: Family, term: Term) -> list[Family]:
    shifts = {id(m): _term(m, term).shift for m in family.members}
    return _runs(family, shifts, _least_width(term.part))


def _cut_bytes(family: Family) -> list[Family]:
    numbers = {id(m): m.number for m in family.members}
    return _runs(family, numbers, min(m.extent for m in family.members))


def _cut_unlike(family: Family) -> list[Family]:
    """Members at different bytes of a step are no copies of one another where their steps end for
    reasons that have nothing to do with one another."""
    ends = {tuple((t.range.lo, t.range.hi) for t in m.terms) for m in family.members}
    if len(ends) == 1 or len({m.number for m in family.members}) == 1:
        return [family]
    kinds: dict[frozenset[Expr], Family] = {}
    for member in family.members:
        kind = frozenset(p for term in member.terms for p in _parameters_of(term.range))
        kinds.setdefault(kind, Family(family.root)).members.append(member)
    places = [n for part in kinds.values() for n in {m.number for m in part.members}]
    return list(kinds.values()) if len(set(places)) == len(places) else [family]


def _parameters_of(found: Range) -> Iterator[Expr]:
    """The parameters that the ends of a range are made of."""
    work = [end for end in (found.lo, found.hi) if end is not None]
    seen = set(work)
    while work:
        expr = work.pop()
        if expr.op is Op.PARAMETER:
            yield expr
        work += [arg for arg in expr.args if arg not in seen]
        seen.update(expr.args)


def _runs(family: Family, places: dict[int, int], width: int) -> list[Family]:
    ordered = sorted(family.members, key=lambda m: places[id(m)])
    out: list[Family] = []
    last: int | None = None
    for member in ordered:
        here = places[id(member)]
        if last is None or here - last > width:
            out.append(Family(family.root))
        out[-1].members.append(member)
        last = here
    for part in out:
        part.members.sort(key=lambda m: m.touch.index)
    return out


def _least_width(part: Poly) -> int:
    """How far a varying part surely reaches: the widest spread that is statically known."""
    width = 0
    for monomial, coefficient in part.terms.items():
        if len(monomial) == 1 and is_full(monomial[0]):
            width += abs(coefficient) * ((monomial[0].hi or 0) - (monomial[0].lo or 0))
    return width + 1


def _without_gaps(part: Poly) -> list[Poly]:
    """A sum cut where its larger terms leave gaps that the smaller ones surely do not fill."""
    if len(part.terms) < 2:
        return [part] if part.terms else []
    terms = sorted(part.terms.items(), key=lambda term: abs(term[1]))
    pieces: list[dict[Monomial, int]] = [{}]
    reach: int | None = 0  # from the smallest to the largest value of a piece, at most
    step = abs(terms[0][1])
    for monomial, weight in terms:
        room = None if reach is None else reach if weight % step else reach + step
        if room is not None and abs(weight) > room:
            pieces.append({})
            reach, step = 0, abs(weight)
        pieces[-1][monomial] = weight
        lo, hi = Poly({monomial: weight}).bound()
        reach = None if reach is None or lo is None or hi is None else reach + hi - lo
    return [Poly(piece) for piece in pieces if piece]


def is_full(atom: Atom) -> bool:
    """Whether an atom takes both of its static ends in every launch: a thread index whose count
    the kernel requires, or bits of one."""
    if atom.kind == "tid":
        return bool(atom.required)
    if atom.kind in ("rem", "quot") and isinstance(atom.args[1], int):
        inner = atom.args[0].single
        if inner is None or not is_full(inner) or inner.hi is None:
            return False
        count = inner.hi + 1
        return bool(count % atom.args[1] == 0)
    return False


def _term(member: Member, like: Term) -> Term:
    return next(t for t in member.terms if t.factor == like.factor and t.part == like.part)


@dataclass(frozen=True, slots=True)
class Box:
    """Bytes [lo, hi), and a copy of them at every step of each level (pitch, count). Right if
    every proviso holds."""

    lo: Expr | None
    hi: Expr | None
    levels: tuple[tuple[Expr, Expr], ...]
    provisos: frozenset[Proviso]


def _start(bounds: Bounds, pitch: Expr, found: Range) -> Range:
    """Where the first row of a level lies."""
    assert found.lo is not None
    first = bounds.launch.mul(found.lo, pitch)
    return Range(first, first, found.provisos)


def _limited(
    bounds: Bounds, terms: list[tuple[Poly, Range]], limits: Mapping[Poly, Poly]
) -> list[tuple[Poly, Range]]:
    out = []
    for factor, found in terms:
        if factor in limits and found.hi is not None:
            hi = bounds.launch.min(found.hi, bounds.lower(limits[factor]))
            out.append((factor, Range(found.lo, hi, found.provisos)))
        else:
            out.append((factor, found))
    return out


@dataclass(slots=True)
class Hull:
    """The interval of one or more families, term by term."""

    family: Family
    terms: list[tuple[Poly, Range]]
    rest: Poly
    lo: int
    hi: int

    def key(self) -> tuple[object, ...]:
        """Hulls with equal keys start at the same byte and have the same strides: their union is
        an interval of the same kind."""
        ends = tuple((unit, id(found.lo)) for unit, found in self.terms)
        return ends, self.rest, self.lo

    def interval(self, bounds: Bounds) -> Box:
        """The bytes from the first to the last that the terms reach."""
        row = self._row(bounds, self.terms)
        return Box(row.lo, row.hi, (), row.provisos)

    def _row(self, bounds: Bounds, terms: list[tuple[Poly, Range]]) -> Range:
        launch = bounds.launch
        rest = bounds.lower(self.rest)
        row = Range(
            launch.add(rest, launch.const(self.lo)), launch.add(rest, launch.const(self.hi))
        )
        for factor, found in terms:
            row = bounds.plus(row, bounds.scaled(Term(factor, ONE, 0, found)))
        return row

    def box(self, bounds: Bounds, limits: Mapping[Poly, Poly] = NO_LIMITS) -> Box:
        """The bytes that the terms reach: terms that leave no gaps as one interval, the others,
        as many as a summary has levels, as steps from copy to copy of it. `limits`: largest
        values of terms, by their factors."""
        launch = bounds.launch
        close, apart = (_limited(bounds, terms, limits) for terms in self._sorted_out())
        row = self._row(bounds, close)
        levels: list[tuple[Expr, Expr]] = []
        for factor, found in apart:
            assert found.lo is not None
            assert found.hi is not None
            pitch = bounds.lower(factor)
            count = launch.add(launch.sub(found.hi, found.lo), launch.one)
            row = bounds.plus(row, _start(bounds, pitch, found))
            levels.append((pitch, count))
        return Box(row.lo, row.hi, tuple(levels), row.provisos)

    def apart(self) -> list[tuple[Poly, Range]]:
        """The terms that make levels."""
        return self._sorted_out()[1]

    def _sorted_out(self) -> tuple[list[tuple[Poly, Range]], list[tuple[Poly, Range]]]:
        """Terms that belong to a row, and those that make copies of it."""
        width = self.hi - self.lo
        close, apart = [], []
        terms = sorted(self.terms, key=lambda t: abs(t[0].constant or MAX_STEP))
        for factor, found in terms:
            step = factor.constant
            if found.lo is None or found.hi is None or found.lo is found.hi:
                close.append((factor, found))
            elif step is not None and abs(step) <= width:
                close.append((factor, found))
                least = found.least_span()
                width += abs(step) * least
            else:
                apart.append((factor, found))
        excess = max(len(apart) - MAX_LEVELS, 0)
        return close + apart[:excess], apart[excess:]

    def joined(self, bounds: Bounds, other: Hull) -> Hull:
        """The hull of both; their keys are equal."""
        terms = [
            (factor, bounds.hull(_distinct([mine, theirs])))
            for (factor, mine), (_, theirs) in zip(self.terms, other.terms, strict=True)
        ]
        members = self.family.members + other.family.members
        family = Family(self.family.root, sorted(members, key=lambda m: m.touch.index))
        return Hull(family, terms, self.rest, self.lo, max(self.hi, other.hi))


def hull(bounds: Bounds, family: Family) -> Hull:
    """Bytes [lo, hi) of all members."""
    terms = []
    for term in family.first.terms:
        ranges = [_term(m, term).range for m in family.members]
        terms.append((term.factor, bounds.hull(_distinct(ranges))))
    terms.sort(key=lambda item: (sorted(item[0].terms), tuple(item[0].terms.values())))
    lo = min(m.number for m in family.members)
    hi = max(m.number + m.extent for m in family.members)
    return Hull(family, terms, family.first.rest, lo, hi)


def _distinct(ranges: list[Range]) -> list[Range]:
    seen: dict[tuple[Expr | None, Expr | None], Range] = {}
    for found in ranges:
        key = (found.lo, found.hi)
        known = seen.get(key)
        seen[key] = found if known is None else known.relying_on(found.provisos)
    return list(seen.values())
