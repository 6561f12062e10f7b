# SPDX-License-Identifier: Apache-2.0
"""Algebra of polynomials."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tessera.analysis.domain import Domain
from tessera.analysis.polynomial import ONE, ZERO, Atom, Poly, constant, of_atom

DOMAIN = Domain()
ATOMS = [
    DOMAIN.leaf("param", (0, 4, True), (-10, 10), uniform=True),
    DOMAIN.leaf("block", (0,), (1, 8), uniform=True),
    DOMAIN.leaf("tid", (0,), (0, 7), uniform=False),
    DOMAIN.leaf("ctaid", (0,), (0, 5), uniform=False),
]
POLYS = st.dictionaries(
    st.lists(st.sampled_from(ATOMS), max_size=2).map(lambda atoms: tuple(sorted(atoms))),
    st.integers(-20, 20).filter(bool),
    max_size=4,
).map(Poly)
POINTS = st.tuples(*(st.integers(a.lo or 0, a.hi or 0) for a in ATOMS))


def at(poly: Poly, point: tuple[int, ...]) -> int:
    values = dict(zip(ATOMS, point, strict=True))
    total = 0
    for monomial, coefficient in poly.terms.items():
        product = coefficient
        for atom in monomial:
            product *= values[atom]
        total += product
    return total


@settings(max_examples=300, deadline=None)
@given(POLYS, POLYS, POINTS)
def test_ring(a: Poly, b: Poly, point: tuple[int, ...]) -> None:
    assert at(a + b, point) == at(a, point) + at(b, point)
    assert at(a - b, point) == at(a, point) - at(b, point)
    product = a.times(b)
    assert product is not None
    assert at(product, point) == at(a, point) * at(b, point)
    assert (a - a) == ZERO


@settings(max_examples=300, deadline=None)
@given(POLYS, POINTS)
def test_bounds_hold(a: Poly, point: tuple[int, ...]) -> None:
    lo, hi = a.bound()
    assert lo is not None and hi is not None
    assert lo <= at(a, point) <= hi


@settings(max_examples=300, deadline=None)
@given(POLYS, POLYS)
def test_ratio(a: Poly, b: Poly) -> None:
    """A quotient that is found is right; the quotient of a product by a term is found."""
    if not b.terms:
        return
    quotient = a.ratio(b)
    if quotient is not None:
        assert quotient.times(b) == a
    product = a.times(b)
    if len(b.terms) == 1 and product is not None:
        assert product.ratio(b) == a


@settings(max_examples=300, deadline=None)
@given(POLYS, POLYS, POINTS)
def test_substitution(a: Poly, b: Poly, point: tuple[int, ...]) -> None:
    atom: Atom = ATOMS[2]
    replaced = a.substitute(atom, b)
    if replaced is not None:
        values = list(point)
        values[2] = at(b, point)
        assert at(replaced, point) == at(a, tuple(values))


@settings(max_examples=200, deadline=None)
@given(POLYS, POINTS)
def test_split(a: Poly, point: tuple[int, ...]) -> None:
    varying, rest = a.split()
    total = at(rest, point)
    for monomial, coefficient in varying.items():
        assert coefficient.uniform
        total += at(coefficient, point) * at(Poly({monomial: 1}), point)
    assert total == at(a, point)


def test_parts() -> None:
    tid = of_atom(ATOMS[2])
    assert (tid.scale(4).shift(8)).content() == 4
    assert tid.single is ATOMS[2]
    assert tid.scale(2).single is None
    assert constant(5).constant == 5
    assert ONE.uniform and not tid.uniform
