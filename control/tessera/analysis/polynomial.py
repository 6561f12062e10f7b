# SPDX-License-Identifier: Apache-2.0
"""Integer polynomials over atoms: the form in which the analysis knows a register.

An atom is a quantity that is not taken apart further: a scalar parameter, a thread or
block index, the iteration counter of a loop, the quotient of a division, a loaded word.
A uniform atom is the same for all threads of a launch; a varying one is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

from tessera.analysis.launch import INFINITE, Bound, product_bound, scaled_bound

MAX_TERMS = 40
MAX_DEGREE = 5


class Atom:
    """A quantity with static bounds. Atoms are made by `Domain`, which interns them."""

    __slots__ = ("args", "hi", "homes", "kind", "lo", "loaded", "required", "serial", "uniform")

    def __init__(self, kind: str, args: tuple[Any, ...], serial: int, bound: Bound) -> None:
        self.kind = kind
        self.args = args
        self.serial = serial
        self.lo, self.hi = bound
        self.uniform = False
        self.required = False  # thread index: the kernel fixes how many there are
        self.loaded = False  # depends on the content of memory
        self.homes: frozenset[int] = frozenset()  # blocks whose execution gives it a new value

    def __repr__(self) -> str:
        return f"{self.kind}{self.serial}"

    def __lt__(self, other: Atom) -> bool:
        return self.serial < other.serial


Monomial = tuple[Atom, ...]  # sorted; () is the constant term
Split = tuple[dict[Monomial, "Poly"], "Poly"]


class Poly:
    """An immutable polynomial. The zero polynomial has no terms."""

    __slots__ = ("_bound", "_hash", "_part", "_split", "_varying", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._bound: Bound | None = None
        self._split: Split | None = None
        self._part: Poly | None = None
        self._varying: frozenset[Atom] | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Poly) and self.terms == other.terms)

    def __repr__(self) -> str:
        parts = [f"{c}{''.join('*' + repr(a) for a in m)}" for m, c in self.terms.items()]
        return " + ".join(parts) or "0"

    def order(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """A key to sort by that is the same in every run."""
        return tuple(sorted((tuple(a.serial for a in m), c) for m, c in self.terms.items()))

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial; None for any other."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def atoms(self) -> set[Atom]:
        return {atom for monomial in self.terms for atom in monomial}

    @property
    def varying_atoms(self) -> frozenset[Atom]:
        if self._varying is None:
            self._varying = frozenset([a for m in self.terms for a in m if not a.uniform])
        return self._varying

    @property
    def uniform(self) -> bool:
        return all(atom.uniform for monomial in self.terms for atom in monomial)

    @property
    def loaded(self) -> bool:
        return any(atom.loaded for monomial in self.terms for atom in monomial)

    @property
    def single(self) -> Atom | None:
        """The atom that this polynomial is; None when it is anything else."""
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if coefficient == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    def homes(self) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for monomial in self.terms:
            for atom in monomial:
                found |= atom.homes
        return found

    def bound(self) -> Bound:
        """Static bounds, term by term."""
        if self._bound is None:
            self._bound = self._compute_bound()
        return self._bound

    def _compute_bound(self) -> Bound:
        lo: int | None = 0
        hi: int | None = 0
        for monomial, coefficient in self.terms.items():
            if len(monomial) == 1:
                bound = scaled_bound((monomial[0].lo, monomial[0].hi), coefficient)
            else:
                bound = (coefficient, coefficient)
                for atom in monomial:
                    bound = product_bound(bound, (atom.lo, atom.hi))
            lo = None if lo is None or bound[0] is None else lo + bound[0]
            hi = None if hi is None or bound[1] is None else hi + bound[1]
            if lo is None and hi is None:
                return INFINITE
        return lo, hi

    def content(self) -> int:
        """The greatest common divisor of all coefficients; 0 for the zero polynomial."""
        return gcd(*self.terms.values()) if self.terms else 0

    def split(self) -> Split:
        """Varying monomials with their uniform coefficients, and the uniform rest."""
        if self._split is None:
            grouped: dict[Monomial, dict[Monomial, int]] = {}
            for monomial, coefficient in self.terms.items():
                varying = tuple(a for a in monomial if not a.uniform)
                uniform = tuple(a for a in monomial if a.uniform)
                grouped.setdefault(varying, {})[uniform] = coefficient
            rest = Poly(grouped.pop((), {}))
            self._split = {m: Poly(c) for m, c in grouped.items()}, rest
        return self._split

    def varying_part(self) -> Poly:
        """What is left without the uniform rest."""
        if self._part is None:
            uniform = self.split()[1].terms
            rest = {m: c for m, c in self.terms.items() if m not in uniform}
            self._part = Poly(rest) if uniform else self
        return self._part

    def __add__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        if not self.terms:
            return other
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + coefficient
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Poly(terms)

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def shift(self, constant: int) -> Poly:
        return self + Poly({(): constant}) if constant else self

    def scale(self, factor: int) -> Poly:
        if factor == 1:
            return self
        return Poly({m: c * factor for m, c in self.terms.items()}) if factor else ZERO

    def times(self, other: Poly) -> Poly | None:
        """The product; None when it is too large to be of use."""
        if (constant := other.constant) is not None:
            return self.scale(constant)
        if (constant := self.constant) is not None:
            return other.scale(constant)
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            return None
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                monomial = tuple(sorted(m1 + m2))
                if len(monomial) > MAX_DEGREE:
                    return None
                terms[monomial] = terms.get(monomial, 0) + c1 * c2
        return Poly({m: c for m, c in terms.items() if c})

    def divide_exactly(self, divisor: int) -> Poly:
        """Precondition: `divisor` divides `content()`."""
        return Poly({m: c // divisor for m, c in self.terms.items()})

    def ratio(self, other: Poly) -> Poly | None:
        """`q` with `self == q * other`, where it is found: for one term, or a proportion."""
        if len(other.terms) == 1:
            ((divisor, factor),) = other.terms.items()
            return self._divide_by_term(divisor, factor)
        if not self.terms:
            return ZERO
        lead = max(other.terms)
        if not any(_contains(m, lead) for m in self.terms):
            return None
        target = max(m for m in self.terms if _contains(m, lead))
        quotient = Poly({target: self.terms[target]})._divide_by_term(lead, other.terms[lead])
        if quotient is None:
            return None
        product = quotient.times(other)
        if product is None:
            return None
        rest = self - product
        if not rest.terms:
            return quotient
        if len(rest.terms) >= len(self.terms):
            return None
        more = rest.ratio(other)
        return None if more is None else quotient + more

    def _divide_by_term(self, divisor: Monomial, factor: int) -> Poly | None:
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            if coefficient % factor or not _contains(monomial, divisor):
                return None
            terms[_without(monomial, divisor)] = coefficient // factor
        return Poly(terms)

    def substitute(self, atom: Atom, value: Poly) -> Poly | None:
        """`atom` replaced by `value`, where it stands openly in this polynomial."""
        out = Poly({m: c for m, c in self.terms.items() if atom not in m})
        for monomial, coefficient in self.terms.items():
            if atom not in monomial:
                continue
            rest = list(monomial)
            rest.remove(atom)
            if atom in rest:
                return None
            product = Poly({tuple(rest): coefficient}).times(value)
            if product is None:
                return None
            out = out + product
        return out


ZERO = Poly({})
ONE = Poly({(): 1})


def constant(value: int) -> Poly:
    return Poly({(): value}) if value else ZERO


def of_atom(atom: Atom) -> Poly:
    return Poly({(atom,): 1})


def without_extrema(poly: Poly) -> list[Poly]:
    """Polynomials that are all at most 0 exactly when `poly` is: x <= min(a, b) says x <= a and
    x <= b; a maximum on the smaller side likewise."""
    for monomial, coefficient in poly.terms.items():
        if len(monomial) == 1 and monomial[0].kind == ("min" if coefficient < 0 else "max"):
            rest = poly - Poly({monomial: coefficient})
            sides = (rest + side.scale(coefficient) for side in monomial[0].args)
            return [part for side in sides for part in without_extrema(side)]
    return [poly]


def total(parts: Iterable[Poly]) -> Poly:
    out = ZERO
    for part in parts:
        out = out + part
    return out


def _contains(monomial: Monomial, divisor: Monomial) -> bool:
    if len(divisor) == 1:
        return divisor[0] in monomial
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return False
        rest.remove(atom)
    return True


def _without(monomial: Monomial, divisor: Monomial) -> Monomial:
    rest = list(monomial)
    for atom in divisor:
        rest.remove(atom)
    return tuple(rest)
