# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic of registers, on polynomials.

A register of `w` bits is known as a polynomial that is congruent to it modulo 2**w. Sums,
differences, products and left shifts keep that without any condition. Where an instruction
looks at the number itself (a widening, a comparison, a division), the register is
*interpreted*: the polynomial is then the number provided that it lies within the type, and
that proviso, an obligation, goes with the value until it is shown, at the latest at launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

from tessera.analysis.launch import INT64_MAX, Bound, type_bound
from tessera.analysis.polynomial import ZERO, Atom, Poly, constant, of_atom
from tessera.analysis.predicates import Pred, fold
from tessera.analysis.values import Obligation, Value, bound_of, common_part, hull_of, polys_of
from tessera.native.ptx import Space

SMALL = -256  # a number that may be as negative as this is well known as a large unsigned one
MAYBE_POINTER = frozenset(("param", "symbol", "window", "phi", "loopphi", "sel"))


def _maybe_pointer(poly: Poly) -> bool:
    """Whether a polynomial may be an address: it has a term that may be a pointer."""
    return any(
        len(m) == 1 and c == 1 and m[0].kind in MAYBE_POINTER and (m[0].hi is None or m[0].hi >> 32)
        for m, c in poly.terms.items()
    )


class Domain:
    """Makes the atoms of one kernel and computes with them."""

    def __init__(self) -> None:
        self._interned: dict[tuple[Any, ...], Atom] = {}
        self._count = 0
        self._positive: dict[Poly, frozenset[Obligation]] = {}  # divisors, by their primitive part

    # Atoms

    def leaf(self, kind: str, args: tuple[Any, ...], bound: Bound, *, uniform: bool) -> Atom:
        key = (kind, args)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = Atom(kind, args, self._next(), bound)
            found.uniform = uniform
        return found

    def fresh(
        self,
        kind: str,
        args: tuple[Any, ...],
        bound: Bound,
        homes: Iterable[int],
        *,
        loaded: bool = False,
    ) -> Atom:
        """A varying atom that equals no other."""
        atom = Atom(kind, args, self._next(), bound)
        atom.homes = frozenset(homes)
        atom.loaded = loaded
        return atom

    def derived(self, kind: str, args: tuple[Any, ...], bound: Bound) -> Atom:
        """An atom that is a function of polynomials: equal arguments give the same atom. The
        bound is part of what makes it, since it may rest on obligations of one use."""
        key = (kind, args, bound)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = Atom(kind, args, self._next(), bound)
            inputs = list(polys_of(args))
            found.uniform = kind != "sel" and all(p.uniform for p in inputs)
            found.loaded = any(p.loaded for p in inputs)
            found.homes = frozenset().union(*(p.homes() for p in inputs))
        return found

    def _next(self) -> int:
        self._count += 1
        return self._count

    # Interpretation

    def interpret(self, value: Value, bits: int, signed: bool) -> Value:
        """The number that a register of `bits` bits stands for in a type."""
        lo, hi = type_bound(bits, signed)
        poly = value.poly
        if (number := poly.constant) is not None:
            number &= (1 << bits) - 1
            if signed and number >> (bits - 1):
                number -= 1 << bits
            return Value(constant(number), value.obligations)
        known_lo, known_hi = bound_of(value)
        if known_lo is not None and known_hi is not None and known_lo >= lo and known_hi <= hi:
            return value
        if any(a.kind == "symbol" and a.args[0].space in _WINDOWED for a in poly.atoms):
            return value  # addresses of shared and local memory fit either width
        if not signed and known_lo is not None and SMALL <= known_lo < 0 and _fits(known_hi, bits):
            if poly.uniform:  # the sign of a size that is divided, say: negative ones are rare
                return Value(poly, value.obligations | {(poly, 0, hi)}, (value, bits))
            return Value(self.remainder(poly, 1 << bits), value.obligations)
        if bits < 64 and _will_wrap(poly, bits):
            wrapped = self.derived("wrap", (poly, bits, signed), (lo, hi))
            return Value(of_atom(wrapped), value.obligations)
        return Value(poly, value.obligations | {(poly, lo, hi)}, (value, bits))

    # Division by a positive number, rounding down

    def quotient(self, value: Value, divisor: int, bound: Bound | None = None) -> Value:
        """`bound`: what is known of the value beyond its own static bounds."""
        if divisor == 1:
            return value
        poly = value.poly
        whole, part = _split_multiples(poly, divisor)
        known = part.bound() if whole.terms else bound or bound_of(value)
        quotient = whole.divide_exactly(divisor) + self._quotient(part, divisor, known)
        return Value(quotient, value.obligations)

    def whole_quotient(self, poly: Poly, divisor: int | Poly) -> Poly:
        """Of uniform polynomials that are at least 0 and 1."""
        if isinstance(divisor, int):
            return self.quotient(Value(poly), divisor).poly
        exact = poly.ratio(divisor)
        if exact is not None:
            return exact
        return of_atom(self.derived("quot", (poly, divisor), (0, poly.bound()[1])))

    def _quotient(self, part: Poly, divisor: int, bound: Bound) -> Poly:
        lo, hi = bound
        if lo is not None and hi is not None and lo // divisor == hi // divisor:
            return constant(lo // divisor)
        factor, offset = _content_apart(part)
        common = gcd(factor, divisor)
        if common > 1:
            shifted = Poly({m: c // common for m, c in part.terms.items() if m}).shift(
                offset // common
            )
            return self.quotient(Value(shifted), divisor // common).poly
        if (
            (inner := part.single) is not None
            and inner.kind == "quot"
            and isinstance(inner.args[1], int)
        ):
            width = inner.args[1]
            within = (
                None if inner.lo is None else inner.lo * width,
                None if inner.hi is None else inner.hi * width + width - 1,
            )
            return self.quotient(Value(inner.args[0]), divisor * width, within).poly
        if (known := self._magic_division(part, divisor, bound)) is not None:
            return known
        quotient_bound = (
            None if lo is None else lo // divisor,
            None if hi is None else hi // divisor,
        )
        return of_atom(self.derived("quot", (part, divisor), quotient_bound))

    def _magic_division(self, part: Poly, divisor: int, bound: Bound) -> Poly | None:
        """`x * m / 2**p` where compilers mean `x / d` by it."""
        multiplier = part.content()
        if (
            multiplier < 3
            or divisor & (divisor - 1)
            or bound[0] is None
            or bound[1] is None
            or bound[0] < 0
        ):
            return None
        real = -(-divisor // multiplier)  # d in m = ceil(2**p / d), the usual choice
        error = multiplier * real - divisor
        largest = bound[1] // multiplier
        if real < 2 or error < 0 or error * largest >= divisor:
            return None
        inner = (bound[0] // multiplier, bound[1] // multiplier)
        return self.quotient(Value(part.divide_exactly(multiplier)), real, inner).poly

    def remainder(self, poly: Poly, divisor: int) -> Poly:
        """`poly` modulo `divisor`, in [0, divisor)."""
        _, part = _split_multiples(poly, divisor)
        lo, hi = part.bound()
        if lo is not None and hi is not None and lo >= 0 and hi < divisor:
            return part
        factor, offset = _content_apart(part)
        common = gcd(factor, divisor)
        if common > 1:
            shifted = Poly({m: c // common for m, c in part.terms.items() if m}).shift(
                offset // common
            )
            inner = self.remainder(shifted, divisor // common)
            return inner.scale(common).shift(offset % common)
        inner_atom = part.single
        if (
            inner_atom is not None
            and inner_atom.kind == "rem"
            and isinstance(inner_atom.args[1], int)
            and inner_atom.args[1] % divisor == 0
        ):
            return self.remainder(inner_atom.args[0], divisor)
        return of_atom(self.derived("rem", (part, divisor), (0, divisor - 1)))

    def divide(self, a: Value, b: Value) -> tuple[Value, Value] | None:
        """Quotient and remainder of interpreted values where both are shown or obliged to be
        non-negative; None where their signs are not known."""
        a_bound, b_bound = bound_of(a), bound_of(b)
        obligations = a.obligations | b.obligations
        if (divisor := b.poly.constant) is not None and divisor > 0:
            if a_bound[0] is None or a_bound[0] < 0:
                obligations |= {(a.poly, 0, INT64_MAX)}
            quotient = self.quotient(Value(a.poly, obligations), divisor)
            return quotient, Value(self.remainder(a.poly, divisor), quotient.obligations)
        if b.poly.constant is not None:
            return None
        if b_bound[0] is None or b_bound[0] < 1:
            obligations |= {(b.poly, 1, INT64_MAX)}
            self._note_positive(b.poly)
        if a_bound[0] is None or a_bound[0] < 0:
            obligations |= {(a.poly, 0, INT64_MAX)}
        quotient_atom = self.derived("quot", (a.poly, b.poly), (0, a_bound[1]))
        most = None if b_bound[1] is None else b_bound[1] - 1
        remainder_atom = self.derived("rem", (a.poly, b.poly), (0, most))
        return Value(of_atom(quotient_atom), obligations), Value(
            of_atom(remainder_atom), obligations
        )

    def without_remainders(self, poly: Poly) -> Poly:
        """`x - x mod d` as `d * floor(x / d)`, wherever it stands."""
        for monomial, coefficient in poly.terms.items():
            if len(monomial) != 1 or monomial[0].kind != "rem":
                continue
            numerator, divisor = monomial[0].args
            if not isinstance(divisor, int) or _maybe_pointer(numerator):
                continue
            whole = numerator.scale(-coefficient)
            if all(poly.terms.get(m) == c for m, c in whole.terms.items()):
                rest = poly - whole - Poly({monomial: coefficient})
                quotient = self.quotient(Value(numerator), divisor).poly
                return self.without_remainders(rest + quotient.scale(-coefficient * divisor))
        return poly

    def _note_positive(self, poly: Poly) -> None:
        if poly.uniform:
            key = poly.divide_exactly(poly.content())
            self._positive.setdefault(key, frozenset({(poly, 1, INT64_MAX)}))

    def positive_part(self, factor: Poly) -> tuple[int, frozenset[Obligation]] | None:
        """The sign of a uniform factor that is a multiple of some divisor, which was obliged to be
        positive; and that obligation."""
        if not factor.terms:
            return None
        primitive = factor.divide_exactly(factor.content())
        for sign, key in ((1, primitive), (-1, -primitive)):
            if key in self._positive:
                return sign, self._positive[key]
        return None

    def with_remainders(self, poly: Poly) -> Poly:
        """`x - d * floor(x / d)` as `x mod d`, wherever it stands."""
        for monomial, coefficient in poly.terms.items():
            for atom in monomial:
                if atom.kind != "quot":
                    continue
                numerator, divisor = atom.args
                times = constant(divisor) if isinstance(divisor, int) else divisor
                product = times.times(of_atom(atom))
                share = product.terms.get(monomial) if product is not None else None
                if product is None or not share or coefficient % share:
                    continue
                number = -(coefficient // share)
                whole = (numerator - product).scale(number)
                if all(poly.terms.get(m) == c for m, c in whole.terms.items()):
                    rest = self.with_remainders(poly - whole)
                    return rest + self.remainder_of(numerator, divisor).scale(number)
        return poly

    def remainder_of(self, numerator: Poly, divisor: int | Poly) -> Poly:
        """`numerator` modulo a divisor that is positive."""
        if isinstance(divisor, int):
            return self.remainder(numerator, divisor)
        hi = divisor.bound()[1]
        bound = (0, None if hi is None else hi - 1)
        return of_atom(self.derived("rem", (numerator, divisor), bound))

    # Bits

    def mask(self, poly: Poly, mask: int, bits: int) -> Poly | None:
        """`poly & mask` modulo 2**bits; None when the mask has too many runs of ones."""
        out = ZERO
        for first, end in _runs(mask & ((1 << bits) - 1)):
            if end == bits:  # high bits: what the low ones leave
                out = out + self._clear_low(poly, first)
            else:
                low = self.remainder(poly, 1 << end)
                out = out + self.quotient(Value(low), 1 << first).poly.scale(1 << first)
        return out if len(out.terms) <= 8 else None

    def _clear_low(self, poly: Poly, count: int) -> Poly:
        if count == 0:
            return poly
        if any(
            len(m) == 1 and c == 1 and m[0].kind in MAYBE_POINTER for m, c in poly.terms.items()
        ):
            return poly - self.remainder(poly, 1 << count)  # maybe a pointer: keep it in sight
        return self.quotient(Value(poly), 1 << count).poly.scale(1 << count)

    def join(self, op: str, a: Value, b: Value, bits: int) -> Value:
        """OR or XOR."""
        obligations = a.obligations | b.obligations
        if (number := a.poly.constant) is not None:
            a, b = b, a
        if (number := b.poly.constant) is not None:
            number &= (1 << bits) - 1
            if number == 0:
                return Value(a.poly, obligations)
            if op == "xor" and number == (1 << bits) - 1:
                return Value((-a.poly).shift(-1), obligations)
        ones_a, ones_b = ones(a.poly, bits), ones(b.poly, bits)
        if ones_a & ones_b == 0:
            return Value(a.poly + b.poly, obligations)
        if op == "or" and number is not None:  # x | c  ==  (x & ~c) + c
            rest = self.mask(a.poly, ~number, bits)
            if rest is not None:
                return Value(rest.shift(b.poly.constant or 0), obligations)
        most = (1 << max(ones_a.bit_length(), ones_b.bit_length())) - 1
        x, y = self.interpret(a, bits, False), self.interpret(b, bits, False)
        atom = self.derived(op, (x.poly, y.poly), (0, most))
        return Value(of_atom(atom), x.obligations | y.obligations)

    # Choices

    def extremum(self, op: str, a: Value, b: Value) -> Value:
        """`min` or `max` of interpreted values."""
        obligations = a.obligations | b.obligations
        (a_lo, a_hi), (b_lo, b_hi) = bound_of(a), bound_of(b)
        difference = (a.poly - b.poly).bound()
        a_first = (a_hi is not None and b_lo is not None and a_hi <= b_lo) or (
            difference[1] is not None and difference[1] <= 0
        )
        b_first = (b_hi is not None and a_lo is not None and b_hi <= a_lo) or (
            difference[0] is not None and difference[0] >= 0
        )
        if a_first or b_first:
            smaller, larger = (a, b) if a_first else (b, a)
            return Value((smaller if op == "min" else larger).poly, obligations)
        if op == "min":
            bound = (_both(min, a_lo, b_lo), _either(min, a_hi, b_hi))
        else:
            bound = (_either(max, a_lo, b_lo), _both(max, a_hi, b_hi))
        return Value(of_atom(self.derived(op, (a.poly, b.poly), bound)), obligations)

    def select(self, pred: Pred, a: Value, b: Value) -> Value:
        """`pred ? a : b`. What both have in common stays in the open."""
        truth, proviso = fold(pred)
        if truth is not None:
            return (a if truth else b).with_obligations(proviso)
        if a == b:
            return a
        common = common_part(a.poly, b.poly)
        sides = Value(a.poly - common, a.obligations), Value(b.poly - common, b.obligations)
        atom = self.derived("sel", (pred, *sides), hull_of(list(sides)))
        return Value(common + of_atom(atom))

    def power_of_two(self, exponent: Value, bits: int) -> Value:
        """`1 << exponent`; the exponent is interpreted and obliged to be below `bits`."""
        obligations = exponent.obligations
        lo, hi = bound_of(exponent)
        if lo is None or lo < 0 or hi is None or hi >= bits:
            obligations |= {(exponent.poly, 0, bits - 1)}
        most = bits - 1 if hi is None else min(hi, bits - 1)
        atom = self.derived("pow2", (exponent.poly,), (1, 1 << max(most, 0)))
        return Value(of_atom(atom), obligations)

    def magnitude(self, value: Value) -> Value:
        lo, _ = bound_of(value)
        if lo is not None and lo >= 0:
            return value
        return self.extremum("max", value, Value(-value.poly, value.obligations))


def ones(poly: Poly, bits: int) -> int:
    """A mask of the bits that may be set in a register that `poly` stands for."""
    mask, clear = 0, True
    low = bits
    for monomial, coefficient in poly.terms.items():
        low = min(low, (coefficient & -coefficient).bit_length() - 1)
        lo, hi = Poly({monomial: coefficient}).bound()
        if lo is None or hi is None or lo < 0:
            clear = False
            continue
        term = _span((coefficient & -coefficient).bit_length() - 1, hi.bit_length())
        if monomial == ():
            term = coefficient
        clear = clear and not mask & term
        mask |= term
    if clear:
        return mask & ((1 << bits) - 1)
    lo, hi = poly.bound()
    fits = lo is not None and hi is not None and lo >= 0 and hi < 1 << bits
    return _span(low, hi.bit_length() if fits and hi is not None else bits)


def _span(first: int, end: int) -> int:
    return ((1 << end) - 1) & ~((1 << first) - 1) if end > first else 0


def _runs(mask: int) -> list[tuple[int, int]]:
    """[first, end) of each run of ones."""
    out, bit = [], 0
    while mask >> bit:
        if mask >> bit & 1:
            first = bit
            while mask >> bit & 1:
                bit += 1
            out.append((first, bit))
        else:
            bit += 1
    return out


def _split_multiples(poly: Poly, divisor: int) -> tuple[Poly, Poly]:
    """`poly` as multiples of `divisor` plus a rest whose constant lies in [0, divisor)."""
    whole = {m: c for m, c in poly.terms.items() if m and c % divisor == 0}
    part = {m: c for m, c in poly.terms.items() if m and c % divisor}
    number = poly.terms.get((), 0)
    return Poly(whole).shift(number - number % divisor), Poly(part).shift(number % divisor)


def _content_apart(poly: Poly) -> tuple[int, int]:
    """The common divisor of all but the constant term, and the constant term."""
    return gcd(*(c for m, c in poly.terms.items() if m)), poly.terms.get((), 0)


def _fits(hi: int | None, bits: int) -> bool:
    return hi is not None and hi < 1 << bits


_WINDOWED = (Space.SHARED, Space.LOCAL, Space.PARAM)


def _will_wrap(poly: Poly, bits: int) -> bool:
    """Whether a polynomial is so large that it is better known by its remainder."""
    if any(abs(c) >= 1 << (bits - 8) for m, c in poly.terms.items() if m):
        return True
    single = poly.single
    return single is not None and single.kind in ("load", "opaque")


def _both(pick: Any, a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else pick(a, b)


def _either(pick: Any, a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else pick(a, b)
