# SPDX-License-Identifier: Apache-2.0
"""What a register holds: a polynomial, and what it takes for that to be right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tessera.analysis.launch import Bound
from tessera.analysis.polynomial import Poly
from tessera.analysis.predicates import Pred

Obligation = tuple[Poly, int, int]  # the polynomial lies within [lo, hi]
NONE: frozenset[Obligation] = frozenset()


class Value(NamedTuple):
    """A register: its polynomial, right if every obligation holds."""

    poly: Poly
    obligations: frozenset[Obligation] = NONE
    narrow: tuple[Value, int] | None = None
    """What it was extended from, and the bits of that: they are the same whatever the rest is."""

    def with_obligations(self, more: frozenset[Obligation]) -> Value:
        return Value(self.poly, self.obligations | more) if more - self.obligations else self

    def low_bits(self, count: int) -> Value:
        """A value with the same `count` lowest bits that relies on as little as possible."""
        value = self
        while value.narrow is not None and count <= value.narrow[1]:
            value = value.narrow[0]
        return value


def bound_of(value: Value) -> Bound:
    """Static bounds of an interpreted value, given its obligations: those on itself, or on what
    it is a multiple of."""
    lo, hi = value.poly.bound()
    for poly, least, most in value.obligations:
        factor = _whole_ratio(value.poly, poly)
        if factor == 0:
            continue
        rest = (value.poly - poly.scale(factor)).constant
        if rest is None:
            continue
        low, high = sorted((least * factor + rest, most * factor + rest))
        lo = low if lo is None else max(lo, low)
        hi = high if hi is None else min(hi, high)
    return lo, hi


def _whole_ratio(poly: Poly, other: Poly) -> int:
    """The whole number that one polynomial may be a multiple by of another; else 0."""
    for monomial, coefficient in other.terms.items():
        if monomial:
            mine = poly.terms.get(monomial, 0)
            return mine // coefficient if mine % coefficient == 0 else 0
    return 0


def hull_of(values: list[Value]) -> Bound:
    """Static bounds of one of several values. Those that rest on obligations do not count: the
    obligations stay inside of the choice."""
    if any(value.obligations for value in values):
        return (None, None)
    lows, highs = zip(*(value.poly.bound() for value in values), strict=True)
    return (
        None if None in lows else min(lows),
        None if None in highs else max(highs),
    )


def polys_of(args: Iterable[Any]) -> Iterable[Poly]:
    """The polynomials that an atom's arguments are made of."""
    for arg in args:
        if isinstance(arg, Poly):
            yield arg
        elif isinstance(arg, Value):
            yield arg.poly
        elif isinstance(arg, Pred):
            yield from arg.polys()


def common_part(a: Poly, b: Poly) -> Poly:
    """Terms of both polynomials, as far as their atoms mean the same wherever they stand."""
    return Poly(
        {
            m: c
            for m, c in a.terms.items()
            if m and b.terms.get(m) == c and not any(atom.homes for atom in m)
        }
    )
