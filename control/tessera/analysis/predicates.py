# SPDX-License-Identifier: Apache-2.0
"""Predicates: what a comparison says about polynomials.

A leaf holds exactly when its relation does, provided that its obligations hold. Facts are
what a predicate, known to be true or false, teaches: polynomials that are at most 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tessera.analysis.polynomial import Poly, without_extrema

Obligations = frozenset[tuple[Poly, int, int]]
_NONE: Obligations = frozenset()


class Pred(NamedTuple):
    """kind: "true", "false", "opaque", "le" (poly <= 0), "eq", "ne" (against 0), "and", "or"."""

    kind: str
    poly: Poly | None = None
    obligations: Obligations = _NONE
    parts: tuple[Pred, ...] = ()
    serial: int = 0  # tells opaque predicates apart

    def negated(self) -> Pred:
        match self.kind:
            case "true":
                return FALSE
            case "false":
                return TRUE
            case "le":
                assert self.poly is not None
                return Pred("le", (-self.poly).shift(1), self.obligations)
            case "eq" | "ne":
                return Pred("ne" if self.kind == "eq" else "eq", self.poly, self.obligations)
            case "and" | "or":
                kind = "or" if self.kind == "and" else "and"
                return Pred(kind, parts=tuple(p.negated() for p in self.parts))
        return Pred("opaque", serial=-self.serial)

    def polys(self) -> Iterator[Poly]:
        if self.poly is not None:
            yield self.poly
        for part in self.parts:
            yield from part.polys()


TRUE, FALSE = Pred("true"), Pred("false")


def conjunction(a: Pred, b: Pred) -> Pred:
    if a.kind == "false" or b.kind == "false":
        return FALSE
    if a.kind == "true":
        return b
    return a if b.kind == "true" or a == b else Pred("and", parts=(a, b))


def disjunction(a: Pred, b: Pred) -> Pred:
    return conjunction(a.negated(), b.negated()).negated()


def fold(pred: Pred) -> tuple[bool | None, Obligations]:
    """The truth of a predicate where static bounds decide it, and what that relies on."""
    if pred.kind in ("true", "false"):
        return pred.kind == "true", _NONE
    if pred.kind in ("and", "or"):
        return _fold_parts(pred)
    if pred.poly is None:
        return None, _NONE
    lo, hi = pred.poly.bound()
    if pred.kind == "le":
        if hi is not None and hi <= 0:
            return True, pred.obligations
        if lo is not None and lo > 0:
            return False, pred.obligations
        return None, _NONE
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return pred.kind == "ne", pred.obligations
    if lo == hi == 0:
        return pred.kind == "eq", pred.obligations
    return None, _NONE


def _fold_parts(pred: Pred) -> tuple[bool | None, Obligations]:
    deciding = pred.kind == "or"  # one true part decides an "or", one false part an "and"
    reliance = _NONE
    undecided = False
    for part in pred.parts:
        truth, obligations = fold(part)
        if truth is deciding:
            return deciding, obligations
        undecided = undecided or truth is None
        reliance |= obligations
    return (None, _NONE) if undecided else (not deciding, reliance)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is learnt: leaves of kind "le", "eq" and "ne". `complete`: they say all that the
    predicate says."""

    leaves: tuple[Pred, ...]
    complete: bool


def facts(pred: Pred) -> Facts:
    """What a predicate that is true teaches."""
    if pred.kind == "true":
        return Facts((), True)
    if pred.kind == "le":
        assert pred.poly is not None
        parts = without_extrema(pred.poly)
        return Facts(tuple(Pred("le", part, pred.obligations) for part in parts), True)
    if pred.kind in ("eq", "ne"):
        return Facts((pred,), True)
    if pred.kind == "and":
        found = [facts(part) for part in pred.parts]
        return Facts(
            tuple(leaf for part in found for leaf in part.leaves), all(p.complete for p in found)
        )
    return Facts((), False)
