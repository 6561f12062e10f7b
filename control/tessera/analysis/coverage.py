# SPDX-License-Identifier: Apache-2.0
"""Whether a family of touches covers every byte between its ends.

An offset is read as a number in a mixed radix: bytes of an element, copies by unrolling, thread
index, block index, iteration. Where each digit runs over all its values and its weight is the
size of all lower digits together, every byte is touched. A guard may cut the numbers short;
it must cut all copies at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.analysis.bounds import Bounds, Term
from tessera.analysis.environment import Environments, Fact, Proviso
from tessera.analysis.families import MAX_STEP, Family, Member, is_full
from tessera.analysis.flow import Flow
from tessera.analysis.launch import Expr
from tessera.analysis.paths import Path, Paths
from tessera.analysis.polynomial import Atom, Monomial, Poly, constant
from tessera.analysis.registers import Registers

ENDLESS = Poly({})  # as many values as a guard lets through
_COUNTS = {"tid": "%ntid", "ctaid": "%nctaid"}


@dataclass(frozen=True, slots=True)
class Whole:
    """Every byte is touched, if the launch meets `condition` and the provisos hold."""

    condition: Expr
    provisos: frozenset[Proviso]


@dataclass(frozen=True, slots=True)
class Cut:
    """`weight * (value of a term) <= limit`: where a guard ends a term's values."""

    weight: int
    limit: Poly
    upper: bool


class Coverage:
    """Judges the families of one program."""

    def __init__(
        self, registers: Registers, flow: Flow, environments: Environments, bounds: Bounds
    ) -> None:
        self._registers = registers
        self._bounds = bounds
        self._launch = bounds.launch
        self._paths = Paths(flow, environments)

    def of(self, family: Family) -> Whole | None:
        """Whether the interval between the family's ends is touched as a whole."""
        judge = self._judge(family)
        return None if judge is None else judge.interval()

    def of_rows(self, family: Family, levels: set[Poly]) -> Whole | None:
        """Whether every row is touched as a whole, and every copy of it, where the terms with
        the factors in `levels` make the copies."""
        judge = self._judge(family)
        return None if judge is None else judge.rows(levels)

    def _judge(self, family: Family) -> _Judge | None:
        paths = [self._paths.to(member.env) for member in family.members]
        known = [path for path in paths if path is not None]
        if len(known) < len(paths):
            return None
        return _Judge(self._registers, self._bounds, family, known)


class _Judge:
    """One family."""

    def __init__(
        self, registers: Registers, bounds: Bounds, family: Family, paths: list[Path]
    ) -> None:
        self._registers = registers
        self._bounds = bounds
        self._launch = bounds.launch
        self._members = family.members
        self._paths = paths
        self._first = family.first
        self._condition = self._launch.one
        self._provisos: set[Proviso] = set()

    def interval(self) -> Whole | None:
        terms = self._first.terms
        cuts = self._cuts(terms) if self._is_regular(terms) else None
        if cuts is None or not self._tiles(terms, cuts):
            return None
        return Whole(self._condition, frozenset(self._provisos))

    def rows(self, levels: set[Poly]) -> Whole | None:
        """Every term takes all values between its ends, whatever the others are."""
        terms = sorted(self._first.terms, key=lambda t: abs(t.factor.constant or MAX_STEP))
        cuts = self._cuts(terms) if self._is_regular(terms) else None
        width = _coalesce(sorted({m.number for m in self._members}), self._first.extent)
        if cuts is None or width is None:
            return None
        for place, term in enumerate(terms):
            units = 1
            step = abs(term.factor.constant or 0)
            if term.factor not in levels:
                if not 0 < step <= width:
                    return None
                units = width // step
            shifts = sorted({_like(m, term).shift for m in self._members})
            if self._run(term.part, shifts, constant(units), cuts.get(place, [])) is None:
                return None
            if term.factor not in levels:
                width += step * term.range.least_span()
        if self._condition is self._launch.zero:
            return None
        return Whole(self._condition, frozenset(self._provisos))

    def _is_regular(self, terms: list[Term]) -> bool:
        """Whether the members differ by shifts alone, in all combinations."""
        shape = {(t.factor, t.part) for t in terms}
        for member in self._members:
            if member.extent != self._first.extent or member.rest != self._first.rest:
                return False
            if {(t.factor, t.part) for t in member.terms} != shape:
                return False
        return self._digits_are_independent(terms) and self._is_product(terms)

    def _digits_are_independent(self, terms: list[Term]) -> bool:
        seen: list[tuple[Atom, int, int]] = []
        for term in terms:
            for monomial in term.part.terms:
                if len([a for a in monomial if not a.uniform]) != 1:
                    return False
                digit = _slice(next(a for a in monomial if not a.uniform))
                if digit is None or any(_overlap(digit, other) for other in seen):
                    return False
                seen.append(digit)
        return True

    def _is_product(self, terms: list[Term]) -> bool:
        """Whether the members are all combinations of their shifts."""
        places = {self._place(member, terms) for member in self._members}
        expected = 1
        for axis in zip(*places, strict=True):
            expected *= len(set(axis))
        return len(places) == expected

    def _place(self, member: Member, terms: list[Term]) -> tuple[int, ...]:
        return (member.number, *(_like(member, term).shift for term in terms))

    # Guards

    def _cuts(self, terms: list[Term]) -> dict[int, list[Cut]] | None:
        """The cuts of each term, the same for all members; None where facts say anything else."""
        all_cuts: list[dict[int, set[Cut]]] = []
        for member, path in zip(self._members, self._paths, strict=True):
            cuts = self._cuts_of(member, path, terms)
            if cuts is None:
                return None
            all_cuts.append(cuts)
        if any(cuts != all_cuts[0] for cuts in all_cuts):
            return None
        return {place: list(found) for place, found in all_cuts[0].items()}

    def _cuts_of(self, member: Member, path: Path, terms: list[Term]) -> dict[int, set[Cut]] | None:
        digits = {a for term in terms for a in term.part.atoms}
        facts = self._restricting(path, digits)
        if facts is None:
            return None
        out: dict[int, set[Cut]] = {}
        for fact in facts:
            self._provisos.add(fact.proviso)
            if not fact.poly.split()[0]:
                continue  # about the launch: the guard says it
            found = self._cut(fact, member, terms)
            if found is None:
                return None
            out.setdefault(found[0], set()).add(found[1])
        return out

    def _restricting(self, path: Path, digits: set[Atom]) -> list[Fact] | None:
        """Facts that are neither true of all values nor follow from another one."""
        facts = []
        for given in path.facts:
            fact = given
            if fact.slack is not None:
                return None
            counters = {a for a in fact.poly.atoms if a.kind == "k"} - digits
            if counters:
                # The address does not change with these iterations: the first one counts.
                first = self._in_first_iteration(fact, counters)
                if first is None:
                    return None
                fact = first
                if not fact.poly.split()[0]:
                    self._require(self._bounds.at_most(fact.poly, None))
                    self._provisos.add(fact.proviso)
                    continue
            if (hi := fact.poly.bound()[1]) is not None and hi <= 0:
                self._provisos.add(fact.proviso)
                continue
            if self._chooses_threads(fact, digits):
                continue
            facts.append(fact)
        out: list[Fact] = []
        for place, fact in enumerate(facts):
            stronger = (
                other
                for at, other in enumerate(facts)
                if at != place and _follows(fact, other, at < place)
            )
            if next(stronger, None) is None:
                out.append(fact)
            else:
                self._provisos.add(fact.proviso)
        return out

    def _chooses_threads(self, fact: Fact, digits: set[Atom]) -> bool:
        """Whether a fact only says which of several threads with the same address count, and the
        first of them does."""
        varying, rest = fact.poly.split()
        others = {a for m in varying for a in m if not a.uniform}
        if not others or others & digits:
            return False
        slices = [_slice(a) for a in others]
        known = [_slice(a) for a in digits]
        for digit in slices:
            if digit is None or digit[0].kind == "k":
                return False
            if any(other is None or _overlap(digit, other) for other in known):
                return False
        first = self._bounds.at_most(rest, None)
        if first is self._launch.zero:
            return False
        self._require(first)
        self._provisos.add(fact.proviso)
        return True

    def _in_first_iteration(self, fact: Fact, counters: set[Atom]) -> Fact | None:
        """What a fact says of the first iteration of some loops."""
        poly: Poly | None = fact.poly
        for counter in counters:
            poly = poly.substitute(counter, constant(0)) if poly is not None else None
        if poly is None or any(a.homes for a in poly.atoms):
            return None
        return Fact(poly, fact.proviso)

    def _cut(self, fact: Fact, member: Member, terms: list[Term]) -> tuple[int, Cut] | None:
        _, rest = fact.poly.split()
        part = fact.poly - rest
        content = part.content()
        for sign in (1, -1):
            key = part.scale(sign).divide_exactly(content)
            for place, term in enumerate(terms):
                times = term.part.ratio(key)
                number = times.constant if times is not None else None
                if number is None or number <= 0:
                    continue
                # content * key * sign + rest <= 0, and part = number * key
                shift = _like(member, term).shift
                limit = constant(content * shift * sign) - rest.scale(number)
                return place, Cut(content, limit, sign > 0)
        return None

    # Digits

    def _tiles(self, terms: list[Term], cuts: dict[int, list[Cut]]) -> bool:
        """Whether the terms, from the smallest stride on, fill every byte, in one order or
        another: which one may be for the launch to tell."""
        run = _coalesce(sorted({m.number for m in self._members}), self._first.extent)
        if run is None:
            return False
        given = self._condition
        found = self._launch.zero
        for condition in self._orders(terms, cuts, list(range(len(terms))), constant(run)):
            found = self._launch.either(found, condition)
        self._condition = self._launch.both(given, found)
        return found is not self._launch.zero

    def _orders(
        self, terms: list[Term], cuts: dict[int, list[Cut]], left: list[int], cover: Poly
    ) -> Iterator[Expr]:
        """What a launch must satisfy for each order of the terms in `left` to fill everything,
        on top of `cover` bytes."""
        if not left:
            yield self._launch.one
            return
        for place in left:
            self._condition = self._launch.one
            size = self._filled(terms[place], cover, cuts.get(place, []), len(left) == 1)
            mine = self._condition
            if size is None or mine is self._launch.zero:
                continue
            rest = [p for p in left if p != place]
            for condition in self._orders(terms, cuts, rest, size):
                yield self._launch.both(mine, condition)

    def _filled(self, term: Term, cover: Poly, cuts: list[Cut], is_last: bool) -> Poly | None:
        """Bytes covered with a term added; None when it leaves gaps."""
        units = self._units(cover, term.factor)
        if units is None:
            return None
        shifts = sorted({_like(m, term).shift for m in self._members})
        count = self._run(term.part, shifts, units, cuts)
        if count is None:
            return None
        if is_last or not cuts:
            return cover if count is ENDLESS else term.factor.times(count)
        return self._cut_short(term, count, cuts)

    def _units(self, cover: Poly, factor: Poly) -> Poly | None:
        """How many steps of a term the bytes below it span: at least one."""
        exact = cover.ratio(factor)
        if exact is not None:
            return exact
        have, step = cover.constant, factor.constant
        if have is not None and step is not None:
            return constant(have // step) if have >= step > 0 else None
        same = self._launch.equal(self._bounds.lower(factor), self._bounds.lower(cover))
        self._require(same)
        return constant(1)

    def _run(self, part: Poly, shifts: list[int], units: Poly, cuts: list[Cut]) -> Poly | None:
        """The number of consecutive values of `part + shift`, starting with runs of `units`."""
        left = dict(part.split()[0])
        # A guard may end the values anywhere: then each must be there, not one in `units` only.
        have = constant(1) if cuts else units
        while left or len(shifts) > 1:
            if len(shifts) > 1 and (number := have.constant) is not None:
                joined, starts = _runs_of(shifts, number)
                if joined != number:
                    have, shifts = constant(joined), starts
                    continue
            monomial = self._next(left, have)
            if monomial is None:
                return None
            coefficient = left.pop(monomial)
            count = self._count(monomial[0])
            if count is None:
                endless = monomial[0].kind == "k" and cuts and not left and len(shifts) == 1
                return ENDLESS if endless else None
            product = coefficient.times(count.shift(-1))
            if product is None:
                return None
            have = product + have
        return have

    def _next(self, left: dict[Monomial, Poly], have: Poly) -> Monomial | None:
        """The digit that carries on where a run ends; where only the launch can tell, it must."""
        for monomial, weight in left.items():
            if self._continues(weight, have):
                return monomial
        number = min((c.constant or 0 for c in left.values()), default=0)
        for monomial, weight in left.items():
            if number > 0 and weight.constant == number and have.uniform:
                self._require(self._bounds.at_most(weight - have, None))
                return monomial
        return None

    def _require(self, condition: Expr) -> None:
        self._condition = self._launch.both(self._condition, condition)

    def _continues(self, weight: Poly, have: Poly) -> bool:
        if weight == have:
            return True
        number, size = weight.constant, have.constant
        return number is not None and size is not None and 0 < number <= size

    def _count(self, atom: Atom) -> Poly | None:
        """How many values a digit has: 0, 1, ..."""
        if atom.kind in _COUNTS:
            return self._registers.special(0, _COUNTS[atom.kind], atom.args[0])
        digit = _slice(atom)
        if digit is None or atom.hi is None or atom.kind not in ("rem", "quot"):
            return None
        index, _, high = digit
        if is_full(atom):
            return constant(atom.hi + 1)
        if index.kind not in _COUNTS or not high:
            return None
        # All values occur if the index runs over a multiple of what the bits repeat after.
        threads = self._bounds.lower(self._registers.special(0, _COUNTS[index.kind], index.args[0]))
        rest = self._launch.floor_mod(threads, self._launch.const(high))
        self._require(self._launch.equal(rest, self._launch.zero))
        return constant(atom.hi + 1)

    def _cut_short(self, term: Term, count: Poly, cuts: list[Cut]) -> Poly | None:
        """A guard ends a term that is not the last: its end must be the one that the next
        stride counts on, and the launch must reach it."""
        if len(cuts) != 1 or not cuts[0].upper or cuts[0].weight != 1:
            return None
        end = cuts[0].limit.shift(1)
        if count is not ENDLESS:
            self._require(self._bounds.at_most(end - count, None))
        return term.factor.times(end)


def _like(member: Member, term: Term) -> Term:
    return next(t for t in member.terms if t.factor == term.factor and t.part == term.part)


def _follows(fact: Fact, other: Fact, earlier: bool) -> bool:
    """Whether `fact` follows from `other`; of two equal ones, the later from the earlier."""
    difference = other.poly - fact.poly
    lo, hi = difference.bound()
    if lo == hi == 0:
        return earlier
    return lo is not None and lo >= 0


def _slice(atom: Atom) -> tuple[Atom, int, int] | None:
    """A digit as values of an index: (index, first divisor, last divisor)."""
    if atom.kind in ("tid", "ctaid", "k"):
        return atom, 1, 0
    if atom.kind not in ("rem", "quot") or not isinstance(atom.args[1], int):
        return None
    inner = atom.args[0].single
    base = _slice(inner) if inner is not None else None
    if base is None:
        return None
    index, low, high = base
    if atom.kind == "rem":
        return index, low, low * atom.args[1]
    return index, low * atom.args[1], high


def _overlap(a: tuple[Atom, int, int], b: tuple[Atom, int, int]) -> bool:
    """Whether two digits are not independent: parts of one index that share bits."""
    if a[0] is not b[0]:
        return False
    (_, low, high), (_, other_low, other_high) = a, b
    below = high and other_low % high == 0
    above = other_high and low % other_high == 0
    return not (below or above)


def _runs_of(starts: list[int], length: int) -> tuple[int, list[int]]:
    """Runs that begin at `starts`, each `length` long, joined where they meet: the length of
    the joined runs (`length` where they differ), and their beginnings."""
    runs: list[tuple[int, int]] = []
    for start in starts:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], start + length)
        else:
            runs.append((start, start + length))
    lengths = {end - begin for begin, end in runs}
    if len(lengths) != 1:
        return length, starts
    return lengths.pop(), [begin for begin, _ in runs]


def _coalesce(starts: list[int], length: int) -> int | None:
    """The bytes from the first to the last copy; None where there is a gap."""
    joined, runs = _runs_of(starts, length)
    return joined if len(runs) == 1 else None
