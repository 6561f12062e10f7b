# SPDX-License-Identifier: Apache-2.0
"""Register arithmetic on polynomials, against arithmetic on the registers themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tessera.analysis.domain import Domain
from tessera.analysis.polynomial import Atom, Poly, constant, of_atom
from tessera.analysis.predicates import Pred
from tessera.analysis.values import Value, bound_of

BITS = 32
FULL = 1 << BITS


def worth(poly: Poly, values: dict[Atom, int]) -> int:
    """The number that a polynomial is, given those of its leaves."""
    total = 0
    for monomial, coefficient in poly.terms.items():
        product = coefficient
        for atom in monomial:
            product *= atom_worth(atom, values)
        total += product
    return total


def atom_worth(atom: Atom, values: dict[Atom, int]) -> int:
    if atom in values:
        return values[atom]
    args: list[Any] = [worth(a, values) if isinstance(a, Poly) else a for a in atom.args]
    match atom.kind:
        case "quot":
            return int(args[0] // args[1])
        case "rem":
            return int(args[0] % args[1])
        case "min":
            return int(min(args))
        case "max":
            return int(max(args))
        case "and":
            return int(args[0] & args[1])
        case "or":
            return int(args[0] | args[1])
        case "xor":
            return int(args[0] ^ args[1])
        case "pow2":
            return int(1 << args[0])
        case "wrap":
            return number(args[0], args[1], args[2])
        case "sel":
            pred, a, b = atom.args
            return worth((a if holds(pred, values) else b).poly, values)
    raise AssertionError(atom.kind)


def holds(pred: Pred, values: dict[Atom, int]) -> bool:
    assert pred.kind == "le" and pred.poly is not None
    return worth(pred.poly, values) <= 0


def number(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def fulfilled(value: Value, values: dict[Atom, int]) -> bool:
    return all(lo <= worth(p, values) <= hi for p, lo, hi in value.obligations)


class Machine:
    """A domain with some leaves, and their values."""

    def __init__(self, numbers: list[int]) -> None:
        self.domain = Domain()
        kinds = [
            ("tid", 0, (0, 1023)),
            ("ctaid", 0, (0, 5000)),
            ("param", 8, (-(1 << 31), (1 << 31) - 1)),
        ]
        self.values: dict[Atom, int] = {}
        self.leaves: list[Value] = []
        for (kind, arg, bound), chosen in zip(kinds, numbers, strict=True):
            atom = self.domain.leaf(kind, (arg, 4, True), bound, uniform=kind == "param")
            self.values[atom] = min(max(chosen, bound[0]), bound[1])
            self.leaves.append(Value(of_atom(atom)))


OPERATIONS = ("add", "sub", "mul", "mask", "or", "xor", "shl", "shr", "sar", "div", "rem", "min",
              "max", "select", "abs", "narrow")  # fmt: skip
STEP = st.tuples(
    st.sampled_from(OPERATIONS), st.integers(0, 20), st.integers(0, 20), st.integers(0, 2**32 - 1)
)


def step(m: Machine, op: str, a: Value, b: Value, c: int) -> tuple[Value, int] | None:
    """One instruction: the value that the domain gives, and what the register holds."""
    d, values = m.domain, m.values
    x, y = worth(a.poly, values) % FULL, worth(b.poly, values) % FULL
    both = a.obligations | b.obligations
    match op:
        case "add":
            return Value(d.with_remainders(d.without_remainders(a.poly + b.poly)), both), x + y
        case "sub":
            return Value(d.with_remainders(d.without_remainders(a.poly - b.poly)), both), x - y
        case "mul":
            product = a.poly.times(constant(c % 37 - 18))
            assert product is not None
            return Value(product, a.obligations), x * (c % 37 - 18)
        case "mask":
            masked = d.mask(a.poly, c, BITS)
            return None if masked is None else (Value(masked, a.obligations), x & c)
        case "or" | "xor":
            return d.join(op, a, b, BITS), (x | y if op == "or" else x ^ y)
        case "shl":
            return Value(a.poly.scale(1 << c % 8), a.obligations), x << c % 8
        case "shr" | "sar":
            signed = op == "sar"
            value = d.quotient(d.interpret(a, BITS, signed), 1 << c % 12)
            return value, number(x, BITS, signed) >> c % 12
        case "div" | "rem":
            u, v = d.interpret(a, BITS, False), Value(constant(c % 1000 + 1))
            found = d.divide(u, v)
            assert found is not None
            return (
                (found[0], x // (c % 1000 + 1)) if op == "div" else (found[1], x % (c % 1000 + 1))
            )
        case "min" | "max":
            u, v = d.interpret(a, BITS, True), d.interpret(b, BITS, True)
            pick = min if op == "min" else max
            return d.extremum(op, u, v), pick(number(x, BITS, True), number(y, BITS, True))
        case "select":
            if a.obligations or b.obligations:
                return None
            pred = Pred("le", a.poly - b.poly)
            return d.select(pred, a, b), (x if holds(pred, values) else y)
        case "abs":
            return d.magnitude(d.interpret(a, BITS, True)), abs(number(x, BITS, True))
        case "narrow":
            return Value(d.remainder(a.poly, 256), a.obligations), x & 255
    raise AssertionError(op)


@settings(max_examples=1500, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.tuples(*[st.integers(-(1 << 31), 1 << 31)] * 3))
def test_congruence(steps: list[tuple[str, int, int, int]], numbers: tuple[int, int, int]) -> None:
    """As long as all obligations hold, the polynomial is the register modulo 2**32, and lies
    within what is said of it."""
    m = Machine(list(numbers))
    known = list(m.leaves)
    for op, i, j, c in steps:
        a, b = known[i % len(known)], known[j % len(known)]
        result = step(m, op, a, b, c)
        if result is None:
            continue
        value, expected = result
        if not fulfilled(value, m.values):
            continue  # the summary would be unbounded
        assert (worth(value.poly, m.values) - expected) % FULL == 0, (op, value)
        lo, hi = bound_of(value)
        exact = worth(value.poly, m.values)
        assert lo is None or lo <= exact
        assert hi is None or exact <= hi
        known.append(value)


@settings(max_examples=400, deadline=None)
@given(st.integers(2, 4000), st.integers(0, (1 << 31) - 1))
def test_division_by_multiplication(divisor: int, x: int) -> None:
    """The multiply-high form that compilers make of a division is the division."""
    d = Domain()
    atom = d.leaf("param", (0, 4, True), (0, (1 << 31) - 1), uniform=True)
    shift = 32 + (divisor - 1).bit_length()
    multiplier = -(-(1 << shift) // divisor)
    value = d.quotient(Value(of_atom(atom).scale(multiplier)), 1 << shift)
    assert worth(value.poly, {atom: x}) == x // divisor
    if divisor & (divisor - 1):
        assert value.poly.single is not None
        assert value.poly.single.args[1] == divisor
