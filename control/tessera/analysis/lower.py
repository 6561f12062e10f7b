# SPDX-License-Identifier: Apache-2.0
"""Uniform polynomials as launch expressions."""

from __future__ import annotations

from collections import Counter

from tessera.analysis.launch import Expr, Launch, Op
from tessera.analysis.polynomial import Atom, Monomial, Poly

_LEAVES = {
    "grid": Op.GRID,
    "block": Op.BLOCK,
    "cluster": Op.CLUSTER,
    "dynamic_shared": Op.DYNAMIC_SHARED,
}
_BITS = {"and": Op.AND, "or": Op.OR, "xor": Op.XOR}


class Lowering:
    """Turns polynomials whose atoms are all uniform into expressions of one launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._polys: dict[Poly, Expr] = {}
        self._atoms: dict[Atom, Expr] = {}

    def poly(self, poly: Poly) -> Expr:
        found = self._polys.get(poly)
        if found is None:
            found = self._polys[poly] = self._factored(poly)
        return found

    def at_most(self, poly: Poly, slack: Expr | None) -> Expr:
        """`poly <= slack` (0 where there is none), without negative terms."""
        positive = Poly({m: c for m, c in poly.terms.items() if c > 0})
        negative = Poly({m: -c for m, c in poly.terms.items() if c < 0})
        right = self.poly(negative)
        if slack is not None:
            right = self.launch.add(right, slack)
        return self.launch.less_equal(self.poly(positive), right)

    def _factored(self, poly: Poly) -> Expr:
        """Common factors outside, as in 4*n*(m - 1): fewer nodes, and readable."""
        launch = self.launch
        if (number := poly.constant) is not None:
            return launch.const(number)
        content = poly.content()
        counts = Counter(atom for monomial in poly.terms for atom in set(monomial))
        if all(c < 0 for m, c in poly.terms.items() if m) and len(poly.terms) == 1:
            content = -content
        atom, count = max(counts.items(), key=lambda item: (item[1], -item[0].serial))
        if content not in (0, 1):
            return launch.mul(self.poly(poly.divide_exactly(content)), launch.const(content))
        if len(poly.terms) == 1:
            ((monomial, _),) = poly.terms.items()
            return self._product(monomial)
        if count == 1:
            return self._sum(poly)
        inside = {_drop(m, atom): c for m, c in poly.terms.items() if atom in m}
        outside = {m: c for m, c in poly.terms.items() if atom not in m}
        product = launch.mul(self.atom(atom), self.poly(Poly(inside)))
        return launch.add(product, self.poly(Poly(outside))) if outside else product

    def _product(self, monomial: Monomial) -> Expr:
        out = self.launch.one
        for atom in monomial:
            out = self.launch.mul(out, self.atom(atom))
        return out

    def _sum(self, poly: Poly) -> Expr:
        """Positive terms first, so that no negation is needed; the constant last."""
        launch = self.launch
        number = poly.terms.get((), 0)
        terms = [(m, c) for m, c in poly.terms.items() if m]
        terms.sort(key=lambda term: term[1] < 0)
        out: Expr | None = None
        for monomial, coefficient in terms:
            size = launch.mul(self._product(monomial), launch.const(abs(coefficient)))
            if out is None:
                out = size if coefficient > 0 else launch.sub(launch.zero, size)
            else:
                out = launch.add(out, size) if coefficient > 0 else launch.sub(out, size)
        assert out is not None
        return launch.add(out, launch.const(number))

    def atom(self, atom: Atom) -> Expr:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._make(atom)
        return found

    def _make(self, atom: Atom) -> Expr:
        launch, args = self.launch, atom.args
        kind = atom.kind
        if kind in _LEAVES:
            return launch.leaf(_LEAVES[kind], (args[0], 0, 0), (atom.lo, atom.hi))
        if kind == "param":
            offset, width, signed = args
            return launch.leaf(Op.PARAMETER, (offset, width, int(signed)), (atom.lo, atom.hi))
        if kind == "wrap":
            return launch.wrap(self.poly(args[0]), args[1], args[2])
        if kind == "pow2":
            return launch.shl(launch.one, self.poly(args[0]))
        a = self.poly(args[0])
        b = launch.const(args[1]) if isinstance(args[1], int) else self.poly(args[1])
        if kind in _BITS:
            return launch.bits(_BITS[kind], a, b)
        build = {
            "quot": launch.floor_div,
            "rem": launch.floor_mod,
            "min": launch.min,
            "max": launch.max,
        }[kind]
        return build(a, b)


def _drop(monomial: Monomial, atom: Atom) -> Monomial:
    rest = list(monomial)
    rest.remove(atom)
    return tuple(rest)
