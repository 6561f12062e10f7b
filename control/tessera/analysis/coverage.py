# SPDX-License-Identifier: Apache-2.0
"""Whether a family of touches covers every byte between its ends.

An offset is read as a number in a mixed radix: bytes of an element, copies by unrolling, thread
index, block index, iteration. Where each digit runs over all its values and its weight is the
size of all lower digits together, every byte is touched. A guard may cut the numbers short;
it must cut all copies at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tessera.analysis.bounds import Bounds
from tessera.analysis.counts import ENDLESS, Counts, Cut, Needs, coalesce
from tessera.analysis.digits import Grouping, digit_of, groupings, overlap
from tessera.analysis.environment import Environments, Fact, Proviso
from tessera.analysis.families import MAX_STEP, Family, Member
from tessera.analysis.flow import Flow
from tessera.analysis.intervals import Term
from tessera.analysis.launch import Bound, Expr
from tessera.analysis.paths import Path, Paths
from tessera.analysis.polynomial import Atom, Poly, constant
from tessera.analysis.reasons import Reasons
from tessera.analysis.registers import Registers

GRAINS = (2, 4, 8, 16, 32, 64)
NOT_TOLD = "whether it is done depends on more than indices and the launch"
IRREGULAR = "its index is not made of counters that are independent of one another"
OTHER_GUARD = "a guard is about something else than its index"
GAPS = "it may leave gaps"


@dataclass(frozen=True, slots=True)
class Whole:
    """Every byte is touched, if the launch meets `condition` and the provisos hold."""

    condition: Expr
    provisos: frozenset[Proviso]
    limits: dict[Poly, Poly] = field(default_factory=dict)
    """By the factor of a term: its largest value, where that is less than its range says."""


class Coverage:
    """Judges the families of one program."""

    def __init__(
        self, registers: Registers, flow: Flow, environments: Environments, bounds: Bounds
    ) -> None:
        self._registers = registers
        self._bounds = bounds
        self._launch = bounds.launch
        self._paths = Paths(flow, environments)
        self._leads: dict[tuple[Poly, Poly], Bound] = {}  # by how much facts exceed one another
        self.why = ""  # why the last family is not surely touched as a whole

    def of(self, family: Family) -> Whole | None:
        """Whether the interval between the family's ends is touched as a whole."""
        judge = self._judge(family)
        found = None if judge is None else judge.interval()
        self.why = self.why if judge is None else judge.why
        return found

    def of_rows(self, family: Family, levels: set[Poly]) -> Whole | None:
        """Whether every row is touched as a whole, and every copy of it, where the terms with
        the factors in `levels` make the copies."""
        judge = self._judge(family)
        found = None if judge is None else judge.rows(levels)
        self.why = self.why if judge is None else judge.why
        return found

    def _doubt(self, member: Member) -> str:
        """Where it is decided whether a touch is made that has no path."""
        node = self._paths.doubt(member.env)
        end = self._registers.program.nodes[node].end if node is not None else 0
        where = Reasons(self._registers).instruction(end - 1 if end else member.touch.index)
        return f"{NOT_TOLD}: {where}"

    def _judge(self, family: Family) -> _Judge | None:
        paths = [self._paths.to(member.env) for member in family.members]
        known = [path for path in paths if path is not None]
        if len(known) < len(paths):
            self.why = self._doubt(family.members[paths.index(None)])
            return None
        return _Judge(self._registers, self._bounds, family, known, self._leads)


class _Judge:
    """One family."""

    def __init__(
        self,
        registers: Registers,
        bounds: Bounds,
        family: Family,
        paths: list[Path],
        leads: dict[tuple[Poly, Poly], Bound],
    ) -> None:
        self._registers = registers
        self._bounds = bounds
        self._launch = bounds.launch
        self._members = family.members
        self._paths = paths
        self._first = family.first
        self._needs = Needs(bounds.launch)
        self._counts = Counts(registers, bounds, self._needs)
        self._limits: dict[Poly, Poly] = {}
        self.why = IRREGULAR
        self._leads = leads
        self._groupings = self._find_groupings()

    def _find_groupings(self) -> list[Grouping]:
        """Write the members' terms in coordinates of tiles where program ids go round by groups."""
        found = list(groupings(t.part for t in self._first.terms))
        if found:
            self._members = [
                replace(m, terms=[t._replace(part=self._in_tiles(t.part, found)) for t in m.terms])
                for m in self._members
            ]
            self._first = self._members[0]
        return found

    def _in_tiles(self, poly: Poly, found: list[Grouping]) -> Poly:
        for grouping in found:
            poly = grouping.rewrite(self._registers.domain, poly)
        return poly

    def interval(self) -> Whole | None:
        terms = self._first.terms
        cuts = self._cuts(terms) if self._is_regular(terms) else None
        if cuts is None or self._limits or not self._tiles(terms, cuts):
            return None
        return Whole(self._needs.condition, frozenset(self._needs.provisos))

    def rows(self, levels: set[Poly]) -> Whole | None:
        """Every term takes all values between its ends, whatever the others are."""
        terms = sorted(self._first.terms, key=lambda t: abs(t.factor.constant or MAX_STEP))
        cuts = self._cuts(terms) if self._is_regular(terms) else None
        if cuts is not None:
            self.why = GAPS
        width = coalesce(sorted({m.number for m in self._members}), self._first.extent)
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
            if self._counts.run(term.part, shifts, constant(units), cuts.get(place, [])) is None:
                return None
            if term.factor not in levels:
                width += step * term.range.least_span()
        if self._needs.condition is self._launch.zero:
            return None
        return Whole(self._needs.condition, frozenset(self._needs.provisos), dict(self._limits))

    def _is_regular(self, terms: list[Term]) -> bool:
        """Whether the members differ by shifts alone, in all combinations."""
        shape = {(t.factor, t.part) for t in terms}
        self.why = IRREGULAR
        for member in self._members:
            if member.extent != self._first.extent or member.rest != self._first.rest:
                return False
            if {(t.factor, t.part) for t in member.terms} != shape:
                return False
        return self._digits_are_independent(terms) and self._is_product(terms)

    def _digits_are_independent(self, terms: list[Term]) -> bool:
        self._counts.digits = {}
        for term in terms:
            for monomial in term.part.terms:
                varying = [a for a in monomial if not a.uniform]
                digit = digit_of(varying[0]) if len(varying) == 1 else None
                if digit is None or any(overlap(digit, d) for d in self._counts.digits.values()):
                    return False
                self._counts.digits[varying[0]] = digit
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
        self.why = OTHER_GUARD
        return self._cuts_of_all(terms)

    def _cuts_of_all(self, terms: list[Term]) -> dict[int, list[Cut]] | None:
        """The cuts of each term, the same for all members; None where facts say anything else."""
        all_cuts: list[dict[int, set[Cut]]] = []
        for member, path in zip(self._members, self._paths, strict=True):
            cuts = self._cuts_of(member, path, terms)
            if cuts is None:
                return None
            all_cuts.append(cuts)
        if any(set(cuts) != set(all_cuts[0]) for cuts in all_cuts):
            return None
        out: dict[int, list[Cut]] = {}
        for place in all_cuts[0]:
            found = self._common([cuts[place] for cuts in all_cuts], terms[place])
            if found is None:
                return None
            out[place] = found
        return out

    def _common(self, sets: list[set[Cut]], term: Term) -> list[Cut] | None:
        """The cuts of all members. Where a size is known to be a multiple of 16, compilers test
        one element for its whole group: then the members' limits differ, but for sizes that
        are such multiples they come to the same."""
        if all(found == sets[0] for found in sets):
            return list(sets[0])
        if any(len(found) != 1 for found in sets):
            return None
        cuts = [next(iter(found)) for found in sets]
        base = cuts[0].limit
        offsets = [(cut.limit - base).constant for cut in cuts]
        if any(cut.weight != 1 or not cut.upper for cut in cuts) or None in offsets:
            return None
        least = min(offset for offset in offsets if offset is not None)
        later = [offset - least for offset in offsets if offset is not None]
        grain = next((g for g in GRAINS if self._stay_within(term, later, g)), None)
        if grain is None or term.factor in self._limits:
            return None
        limit = base.shift(least)
        size = self._bounds.lower(limit.shift(1))
        rest = self._launch.floor_mod(size, self._launch.const(grain))
        self._needs.require(self._launch.equal(rest, self._launch.zero))
        self._limits[term.factor] = limit
        return [Cut(1, limit, True)]

    def _stay_within(self, term: Term, later: list[int], grain: int) -> bool:
        """Whether each member's value lies in the same group of `grain` as the value, so many
        less, that was tested in its place."""
        for member, offset in zip(self._members, later, strict=True):
            most = (_like(member, term).shift - offset) % grain
            for monomial, weight in term.part.split()[0].items():
                lo, hi = Poly({monomial: 1}).bound()
                number = weight.constant
                if number is None or number < 0 or lo != 0:
                    return False
                if number % grain:
                    if hi is None:
                        return False
                    most += number * hi
            if most + offset >= grain:
                return False
        return True

    def _cuts_of(self, member: Member, path: Path, terms: list[Term]) -> dict[int, set[Cut]] | None:
        digits = {a for term in terms for a in term.part.atoms}
        digits |= {
            a for digit in self._counts.digits.values() for a in digit.atoms if a.kind == "k"
        }
        facts = self._restricting(path, digits)
        if facts is None:
            return None
        out: dict[int, set[Cut]] = {}
        cut_indices: dict[Poly, Cut] = {}
        for fact in facts:
            self._needs.provisos.add(fact.proviso)
            if not fact.poly.split()[0]:
                continue  # about the launch: the guard says it
            found = self._cut(fact, member, terms)
            if found is not None:
                out.setdefault(found[0], set()).add(found[1])
            elif not self._cuts_index(fact, cut_indices):
                return None
        if member is self._first:
            self._counts.index_cuts = cut_indices
        return out if cut_indices == self._counts.index_cuts else None

    def _cuts_index(self, fact: Fact, known: dict[Poly, Cut]) -> bool:
        """Whether a fact ends the numbers that some digits are taken from; notes where."""
        _, rest = fact.poly.split()
        for index in {d.index for d in self._counts.digits.values()}:
            times = (fact.poly - rest).ratio(index)
            number = times.constant if times is not None else None
            if number is None or number <= 0:
                continue
            limit = -rest if number == 1 else None
            if limit is None:
                return False
            cut = Cut(1, limit, True)
            return known.setdefault(index, cut) == cut
        return False

    def _restricting(self, path: Path, digits: set[Atom]) -> list[Fact] | None:
        """Facts that are neither true of all values nor follow from another one."""
        facts = []
        for given in path.facts:
            fact = Fact(self._in_tiles(given.poly, self._groupings), given.proviso, given.slack)
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
                    self._needs.require(self._bounds.at_most(fact.poly, None))
                    self._needs.provisos.add(fact.proviso)
                    continue
            if (hi := fact.poly.bound()[1]) is not None and hi <= 0:
                self._needs.provisos.add(fact.proviso)
                continue
            if self._chooses_threads(fact, digits):
                continue
            facts.append(fact)
        out: list[Fact] = []
        for place, fact in enumerate(facts):
            stronger = (
                other
                for at, other in enumerate(facts)
                if at != place and self._follows(fact, other, at < place)
            )
            if next(stronger, None) is None:
                out.append(fact)
            else:
                self._needs.provisos.add(fact.proviso)
        return out

    def _follows(self, fact: Fact, other: Fact, earlier: bool) -> bool:
        """Whether `fact` follows from `other`; of two equal ones, the later from the earlier."""
        lead = self._leads.get((fact.poly, other.poly))
        if lead is None:
            lead = self._leads[fact.poly, other.poly] = (other.poly - fact.poly).bound()
        lo, hi = lead
        if lo == hi == 0:
            return earlier
        return lo is not None and lo >= 0

    def _chooses_threads(self, fact: Fact, digits: set[Atom]) -> bool:
        """Whether a fact only says which of several threads with the same address count, and the
        first of them does."""
        varying, rest = fact.poly.split()
        others = {a for m in varying for a in m if not a.uniform}
        if not others or others & digits:
            return False
        known = [digit_of(a) for a in digits]
        for digit in [digit_of(a) for a in others]:
            if digit is None or any(a.kind == "k" for a in digit.atoms):
                return False
            if any(other is None or overlap(digit, other) for other in known):
                return False
        first = self._bounds.at_most(rest, None)
        if first is self._launch.zero:
            return False
        self._needs.require(first)
        self._needs.provisos.add(fact.proviso)
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
        run = coalesce(sorted({m.number for m in self._members}), self._first.extent)
        if run is None:
            return False
        given = self._needs.condition
        found = self._launch.zero
        for condition in self._orders(terms, cuts, list(range(len(terms))), constant(run)):
            found = self._launch.either(found, condition)
        self._needs.condition = self._launch.both(given, found)
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
            self._needs.condition = self._launch.one
            size = self._filled(terms[place], cover, cuts.get(place, []), len(left) == 1)
            mine = self._needs.condition
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
        count = self._counts.run(term.part, shifts, units, cuts)
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
        self._needs.require(same)
        return constant(1)

    def _cut_short(self, term: Term, count: Poly, cuts: list[Cut]) -> Poly | None:
        """A guard ends a term that is not the last: its end must be the one that the next
        stride counts on, and the launch must reach it."""
        if len(cuts) != 1 or not cuts[0].upper or cuts[0].weight != 1:
            return None
        end = cuts[0].limit.shift(1)
        if count is not ENDLESS:
            self._needs.require(self._bounds.at_most(end - count, None))
        return term.factor.times(end)


def _like(member: Member, term: Term) -> Term:
    return next(t for t in member.terms if t.factor == term.factor and t.part == term.part)
