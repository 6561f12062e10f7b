# SPDX-License-Identifier: Apache-2.0
"""Predicates from comparisons of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.analysis.opcodes import INTEGER_BITS, SIGNED
from tessera.analysis.polynomial import Poly
from tessera.analysis.predicates import FALSE, TRUE, Pred, conjunction, disjunction
from tessera.analysis.values import NONE, Obligation, Value
from tessera.native.ptx import Instruction

if TYPE_CHECKING:
    from tessera.analysis.registers import Registers

_SWAPPED = {"gt": "lt", "ge": "le", "hi": "lo", "hs": "ls"}
_UNSIGNED = {"lo": "lt", "ls": "le"}


def predicate_of(r: Registers, index: int, slot: int) -> Pred:
    """The predicate that an instruction writes as its `slot`-th result."""
    ins = r.program.code[index]
    pred: Pred | None = None
    if ins.opcode == "setp":
        pred = _setp(r, index, ins, slot)
    elif ins.opcode == "mov":
        pred = r.predicate(index, ins.operands[1])
    elif ins.opcode == "not":
        pred = r.predicate(index, ins.operands[1]).negated()
    elif ins.opcode in ("and", "or", "xor"):
        a, b = r.predicate(index, ins.operands[1]), r.predicate(index, ins.operands[2])
        pred = _combine(ins.opcode, a, b)
    return r.opaque_predicate() if pred is None else pred


def _combine(operation: str, a: Pred, b: Pred) -> Pred | None:
    if operation == "and":
        return conjunction(a, b)
    if operation == "or":
        return disjunction(a, b)
    for x, y in ((a, b), (b, a)):
        if x.kind in ("true", "false"):
            return y.negated() if x.kind == "true" else y
    return None


def _setp(r: Registers, index: int, ins: Instruction, slot: int) -> Pred | None:
    pred = _relation(r, index, ins)
    if pred is None:
        return None
    if slot == 1:
        pred = pred.negated()
    operation = next((m for m in ins.modifiers[1:] if m in ("and", "or", "xor")), None)
    if operation is None:
        return pred
    return _combine(operation, pred, r.predicate(index, ins.operands[3]))


def _relation(r: Registers, index: int, ins: Instruction) -> Pred | None:
    bits = INTEGER_BITS.get(ins.type)
    if bits is None or not ins.modifiers:
        return None
    relation = ins.modifiers[0]
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    if relation in ("eq", "ne"):
        equal = _equal(a, b, bits)
        return equal if relation == "eq" else equal.negated()
    if relation in _SWAPPED:
        a, b, relation = b, a, _SWAPPED[relation]
    signed = ins.type in SIGNED and relation not in _UNSIGNED
    strict = int(_UNSIGNED.get(relation, relation) == "lt")
    if relation not in ("lt", "le", "lo", "ls"):
        return None
    if signed:
        x, y = r.domain.interpret(a, bits, True), r.domain.interpret(b, bits, True)
        return _at_most(x.poly - y.poly, strict, x.obligations | y.obligations)
    return _unsigned(r, a, b, bits, strict)


def _at_most(difference: Poly, strict: int, obligations: frozenset[Obligation]) -> Pred:
    return Pred("le", difference.shift(strict), obligations)


def _unsigned(r: Registers, a: Value, b: Value, bits: int, strict: int) -> Pred:
    """`a < b` (or `a <= b`) of unsigned numbers."""
    if _may_be_negative(a):
        return _in_disguise(a, b, bits, strict)
    if _may_be_negative(b):  # a < b is not b <= a
        return _in_disguise(b, a, bits, 1 - strict).negated()
    x, y = r.domain.interpret(a, bits, False), r.domain.interpret(b, bits, False)
    return _at_most(x.poly - y.poly, strict, x.obligations | y.obligations)


def _may_be_negative(value: Value) -> bool:
    """Whether a varying number may be negative, and so look large."""
    lo, _ = value.poly.bound()
    return not value.poly.uniform and (lo is None or lo < 0)


def _in_disguise(a: Value, b: Value, bits: int, strict: int) -> Pred:
    """Where `a` may be a negative number in disguise, `a < b` says two things: it is not, and
    it is below `b`."""
    half = 1 << (bits - 1)
    obligations = a.obligations | b.obligations
    lo, hi = a.poly.bound()
    least, most = -half, (2 * half if bits < 64 else half) - 1
    if lo is None or hi is None or lo < least or hi > most:
        obligations |= {(a.poly, least, most)}
    lo, hi = b.poly.bound()
    most = half if bits < 64 else half - 1
    if lo is None or hi is None or lo < 0 or hi > most:
        obligations |= {(b.poly, 0, most)}
    not_negative = Pred("le", -a.poly, obligations)
    return conjunction(not_negative, _at_most(a.poly - b.poly, strict, obligations))


def _equal(a: Value, b: Value, bits: int) -> Pred:
    difference = a.poly - b.poly
    obligations = a.obligations | b.obligations
    if (number := difference.constant) is not None:
        return FALSE if number % (1 << bits) else TRUE
    if (choice := _equal_to_choice(difference)) is not None:
        return choice
    either = difference.single
    if either is not None and either.kind == "or":  # x | y == 0
        x, y = (Pred("eq", part, obligations) for part in either.args)
        return conjunction(x, y)
    lo, hi = difference.bound()
    limit = (1 << min(bits, 63)) - 1
    if lo is None or hi is None or lo < -limit or hi > limit:
        obligations |= {(difference, -limit, limit)}
    return Pred("eq", difference, obligations)


def _equal_to_choice(difference: Poly) -> Pred | None:
    """`(p ? 1 : 0) == 1` is p, and so on."""
    varying = Poly({m: c for m, c in difference.terms.items() if m})
    atom = varying.single
    if atom is None or atom.kind != "sel":
        return None
    pred, a, b = atom.args
    x, y = a.poly.constant, b.poly.constant
    wanted = -difference.terms.get((), 0)
    if x is None or y is None or a.obligations != NONE or b.obligations != NONE:
        return None
    if x == wanted:
        return TRUE if y == wanted else pred
    return pred.negated() if y == wanted else FALSE
