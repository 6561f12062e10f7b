# SPDX-License-Identifier: Apache-2.0
"""Digits of numbers that count: a thread index, or two indices and a loop taken together.

`x mod 32` and `x / 32` are two digits of x, and so are `x mod n` and `x / n` for a uniform n.
Digits are independent where they share no part of one number: all their combinations occur
in a launch that runs through all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tessera.analysis.domain import Domain
from tessera.analysis.launch import Bound
from tessera.analysis.polynomial import ONE, ZERO, Atom, Poly, constant, of_atom
from tessera.analysis.values import Value

INDICES = ("tid", "ctaid", "k")
TILE = "tile"


@dataclass(frozen=True, slots=True)
class Digit:
    """`floor(index / low) mod (high / low)`; without `high`, only the quotient. Of a tile, `low`
    says which coordinate it is, -1 or -2."""

    index: Poly
    low: int | Poly
    high: int | Poly | None

    @property
    def atoms(self) -> set[Atom]:
        """The indices that decide about the digit."""
        return {a for a in self.index.atoms if not a.uniform}

    @property
    def is_whole(self) -> bool:
        return self.low == 1 and self.high is None


def digit_of(atom: Atom) -> Digit | None:
    """An atom as a digit; None when it is none."""
    if atom.kind in INDICES:
        return Digit(of_atom(atom), 1, None)
    if atom.kind == TILE:
        return Digit(atom.args[0], atom.args[1], None)
    if atom.kind not in ("rem", "quot"):
        return None
    numerator, divisor = atom.args
    base = _base(numerator)
    if base is None:
        return None
    if isinstance(divisor, Poly):
        if not base.is_whole or not divisor.uniform:
            return None
        return (
            Digit(base.index, 1, divisor)
            if atom.kind == "rem"
            else Digit(base.index, divisor, None)
        )
    if isinstance(base.low, Poly) or isinstance(base.high, Poly) or base.low < 1:
        return None
    cut = base.low * divisor
    if base.high is not None and base.high % cut:
        return None  # the last digit is cut short: it depends on the one above
    if atom.kind == "rem":
        return Digit(base.index, base.low, cut)
    return Digit(base.index, cut, base.high)


def _base(numerator: Poly) -> Digit | None:
    single = numerator.single
    if single is not None:
        return digit_of(single)
    varying, rest = numerator.split()
    joint = all(len(m) == 1 and m[0].kind in INDICES for m in varying)
    return Digit(numerator, 1, None) if joint and varying and not rest.terms else None


def overlap(a: Digit, b: Digit) -> bool:
    """Whether two digits are not independent."""
    if not a.atoms & b.atoms:
        return False
    if a.index != b.index:
        return True
    if _is_tile(a) or _is_tile(b):
        return not (_is_tile(a) and _is_tile(b)) or a.low == b.low
    return not (_lies_below(a, b) or _lies_below(b, a))


def _is_tile(digit: Digit) -> bool:
    return isinstance(digit.low, int) and digit.low < 0


def _lies_below(a: Digit, b: Digit) -> bool:
    if a.high is None:
        return False
    if isinstance(a.high, int) and isinstance(b.low, int):
        return b.low % a.high == 0
    return a.high == b.low


def without_overlaps(domain: Domain, poly: Poly, is_fixed: Callable[[Atom], bool]) -> Poly:
    """A polynomial with digits that share parts of one number taken apart into the parts, each of
    which then counts once: `x mod 8 + 8 * (x / 4 mod 8)` is `x mod 4 + 12 * (x / 4 mod 2) +
    16 * (x / 8 mod 4)`. Digits that are fixed stay as they are."""
    for found in _by_index(poly.varying_atoms).values():
        if len(found) > 1 and not any(map(is_fixed, found)):
            poly = _taken_apart(domain, poly, found)
    return poly


def have_overlaps(atoms: Iterable[Atom]) -> bool:
    """Whether any two digits among some atoms share parts of one number."""
    return any(_share_parts(found) for found in _by_index(atoms).values())


def _by_index(atoms: Iterable[Atom]) -> dict[Poly, dict[Atom, Digit]]:
    """Quotients and remainders that are digits, by the number that they are digits of."""
    groups: dict[Poly, dict[Atom, Digit]] = {}
    for atom in sorted(a for a in atoms if a.kind in ("rem", "quot")):
        if (digit := digit_of(atom)) is not None:
            groups.setdefault(digit.index, {})[atom] = digit
    return groups


def _share_parts(digits: dict[Atom, Digit]) -> bool:
    known = list(digits.values())
    return any(overlap(a, b) for place, a in enumerate(known) for b in known[:place])


def _taken_apart(domain: Domain, poly: Poly, digits: dict[Atom, Digit]) -> Poly:
    if not _share_parts(digits):
        return poly
    ends = {end for digit in digits.values() for end in (digit.low, digit.high) if end is not None}
    cuts = sorted(end for end in ends if isinstance(end, int))
    if len(cuts) < len(ends) or any(b % a for a, b in pairwise(cuts)):
        return poly
    out: Poly | None = poly
    for atom, digit in digits.items():
        if out is not None:
            out = out.substitute(atom, _in_parts(domain, digit, cuts))
    return poly if out is None else out


def _in_parts(domain: Domain, digit: Digit, cuts: list[int]) -> Poly:
    """A digit as the sum of its parts between cuts."""
    out = ZERO
    assert isinstance(digit.low, int)
    assert not isinstance(digit.high, Poly)
    for low, high in pairwise([*cuts, None]):
        assert low is not None
        if low < digit.low or (digit.high is not None and low >= digit.high):
            continue
        number = digit.index
        if high is not None and not (digit.high is None and low == cuts[-1]):
            number = domain.remainder(number, high)
        part = domain.quotient(Value(number), low).poly
        out = out + part.scale(low // digit.low)
    return out


# Tiles: program ids that run through the tiles of a matrix in groups of rows


@dataclass(frozen=True, slots=True)
class Grouping:
    """`pid` is tile (group * q + place, column) of `rows` times `columns` tiles, where q is
    pid / (group * columns), and of r, the remainder, and the size of this group,
    min(rows - group * q, group), place is r mod size and column is r / size."""

    pid: Poly
    group: int
    rows: Poly
    columns: Poly
    group_number: Poly  # q
    place: Atom | None
    column: Atom | None

    def rewrite(self, domain: Domain, poly: Poly) -> Poly:
        """A polynomial in terms of the tile's coordinates, as far as they are its parts."""
        out: Poly | None = poly
        if self.place is not None:
            row = of_atom(_tile(domain, self, -1, self.rows))
            out = poly.substitute(self.place, row - self.group_number.scale(self.group))
        if out is not None and self.column is not None:
            out = out.substitute(self.column, of_atom(_tile(domain, self, -2, self.columns)))
        return poly if out is None else out


def _tile(domain: Domain, found: Grouping, axis: int, count: Poly) -> Atom:
    hi = count.bound()[1]
    bound: Bound = (0, None if hi is None else hi - 1)
    return domain.derived(TILE, (found.pid, axis, found.rows, found.columns), bound)


def tile_counts(atom: Atom) -> tuple[Poly, Poly]:
    """(rows, columns) of the matrix of tiles that a tile's coordinate belongs to."""
    return atom.args[2], atom.args[3]


def groupings(polys: Iterable[Poly]) -> Iterator[Grouping]:
    """The groupings that some polynomials are made with."""
    atoms = dict.fromkeys(a for poly in polys for a in sorted(poly.atoms))
    found: dict[Poly, dict[str, Atom]] = {}
    for atom in atoms:
        divides = atom.kind in ("rem", "quot") and isinstance(atom.args[1], Poly)
        if divides and _grouped(*atom.args) is not None:
            found.setdefault(atom.args[0], {})[atom.kind] = atom
    for parts in found.values():
        some = next(iter(parts.values()))
        pid, group, rows, columns, number = _grouped(*some.args) or (ZERO, 0, ZERO, ZERO, ZERO)
        if pid.terms:
            yield Grouping(pid, group, rows, columns, number, parts.get("rem"), parts.get("quot"))


def _grouped(rest: Poly, size: Poly) -> tuple[Poly, int, Poly, Poly, Poly] | None:
    remainder, least = rest.single, size.single
    if remainder is None or least is None or remainder.kind != "rem" or least.kind != "min":
        return None
    pid, in_group = remainder.args
    for left, most in (least.args, least.args[::-1]):
        group = most.constant
        if group is None or group < 1:
            continue
        for atom in left.atoms:
            if atom.kind != "quot" or atom.args[0] != pid or not _equals(atom.args[1], in_group):
                continue
            rows = left + of_atom(atom).scale(group)
            columns = _share(in_group, group)
            if rows.uniform and columns is not None:
                return pid, group, rows, columns, of_atom(atom)
    return None


def _equals(a: int | Poly, b: int | Poly) -> bool:
    return _poly(a) == _poly(b)


def _poly(a: int | Poly) -> Poly:
    return constant(a) if isinstance(a, int) else a


def _share(in_group: int | Poly, group: int) -> Poly | None:
    whole = _poly(in_group)
    if not whole.uniform or whole.content() % group:
        return None
    return whole.divide_exactly(group) if whole != ONE.scale(group) else ONE
