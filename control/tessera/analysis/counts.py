# SPDX-License-Identifier: Apache-2.0
"""How many values a digit has, and how many consecutive ones a sum of digits, in any launch."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.analysis.bounds import Bounds
from tessera.analysis.digits import TILE, Digit, digit_of, tile_counts
from tessera.analysis.environment import Proviso
from tessera.analysis.families import is_full
from tessera.analysis.launch import Expr, Launch
from tessera.analysis.polynomial import Atom, Monomial, Poly, constant
from tessera.analysis.registers import Registers
from tessera.analysis.values import Value

ENDLESS = Poly({})  # as many values as a guard lets through
_COUNTS = {"tid": "%ntid", "ctaid": "%nctaid"}


@dataclass(frozen=True, slots=True)
class Cut:
    """`weight * (value of a term) <= limit`: where a guard ends a term's values."""

    weight: int
    limit: Poly
    upper: bool


class Needs:
    """What a promise about one family rests on, as far as it is known."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.condition = launch.one
        self.provisos: set[Proviso] = set()

    def require(self, condition: Expr) -> None:
        self.condition = self._launch.both(self.condition, condition)


class Counts:
    """Counts the values of one family's digits. What a launch must satisfy for a count to be right
    goes to `needs`."""

    def __init__(self, registers: Registers, bounds: Bounds, needs: Needs) -> None:
        self._registers = registers
        self._bounds = bounds
        self._launch = bounds.launch
        self._needs = needs
        self.digits: dict[Atom, Digit] = {}  # of all terms
        self.index_cuts: dict[Poly, Cut] = {}  # where guards end the numbers that they are taken of

    def run(self, part: Poly, shifts: list[int], units: Poly, cuts: list[Cut]) -> Poly | None:
        """The number of consecutive values of `part + shift`, starting with runs of `units`."""
        left = dict(part.split()[0])
        # A guard may end the values anywhere: then each must be there, not one in `units` only.
        have = constant(1) if cuts else units
        while left or len(shifts) > 1:
            if len(shifts) > 1 and (number := have.constant) is not None:
                joined, starts = runs_of(shifts, number)
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
                self._needs.require(self._bounds.at_most(weight - have, None))
                return monomial
        return None

    def _continues(self, weight: Poly, have: Poly) -> bool:
        if weight == have:
            return True
        number, size = weight.constant, have.constant
        return number is not None and size is not None and 0 < number <= size

    def _count(self, atom: Atom) -> Poly | None:
        """How many values a digit has: 0, 1, ..."""
        if is_full(atom):
            return constant((atom.hi or 0) + 1)
        digit = digit_of(atom)
        total = self._index_count(digit.index) if digit is not None else None
        if digit is None or total is None:
            return None
        if atom.kind == TILE:
            return self._tile_count(atom, total)
        if digit.is_whole:
            return total
        return self._part_count(digit, total)

    def _index_count(self, index: Poly) -> Poly | None:
        """How many numbers the index runs through: 0, 1, ..."""
        cut = self.index_cuts.get(index)
        single = index.single
        if single is not None and single.kind in _COUNTS:
            count: Poly | None = self._registers.special(0, _COUNTS[single.kind], single.args[0])
        else:
            cuts = [] if cut is None else [cut]
            count = self.run(index, [0], constant(1), cuts) if single is None else ENDLESS
        if count is None or cut is None:
            return None if count is ENDLESS else count
        end = cut.limit.shift(1)
        if count is not ENDLESS:
            self._needs.require(self._bounds.at_most(end - count, None))
        self._needs.require(self._bounds.at_most(constant(1) - end, None))
        return end

    def _part_count(self, digit: Digit, total: Poly) -> Poly | None:
        """The values of a digit of a number below `total`. With other digits of the number in
        use, all their combinations must occur."""
        domain = self._registers.domain
        lonely = sum(d.index == digit.index for d in self.digits.values()) == 1
        if lonely and digit.high is None:
            last = domain.whole_quotient(total.shift(-1), digit.low)
            return last.shift(1)
        if lonely and digit.low == 1 and digit.high is not None:
            most = Value(_as_poly(digit.high))
            return domain.extremum("min", Value(total), most).poly
        edge = digit.high if digit.high is not None else digit.low
        rest = self._launch.floor_mod(self._bounds.lower(total), self._bounds.lower(_as_poly(edge)))
        self._needs.require(self._launch.equal(rest, self._launch.zero))
        if digit.high is None:
            return domain.whole_quotient(total, digit.low)
        if isinstance(digit.high, int) and isinstance(digit.low, int):
            return constant(digit.high // digit.low)
        return _as_poly(digit.high) if digit.low == 1 else None

    def _tile_count(self, atom: Atom, total: Poly) -> Poly | None:
        """Program ids reach all tiles if there are as many of them."""
        rows, columns = tile_counts(atom)
        product = rows.times(columns)
        if product is None:
            return None
        lower = self._bounds.lower
        self._needs.require(self._launch.equal(lower(total), lower(product)))
        self._needs.require(self._bounds.at_most(constant(1) - rows, None))
        return rows if atom.args[1] == -1 else columns


def _as_poly(number: int | Poly) -> Poly:
    return constant(number) if isinstance(number, int) else number


def runs_of(starts: list[int], length: int) -> tuple[int, list[int]]:
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


def coalesce(starts: list[int], length: int) -> int | None:
    """The bytes from the first to the last copy; None where there is a gap."""
    joined, runs = runs_of(starts, length)
    return joined if len(runs) == 1 else None
