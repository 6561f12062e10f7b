# SPDX-License-Identifier: Apache-2.0
"""What single instructions compute, on polynomials. A handler gives None for a result that is
not followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera.analysis.launch import product_bound
from tessera.analysis.opcodes import INTEGER_BITS, SIGNED, STORAGE_BITS
from tessera.analysis.polynomial import ZERO, Poly, constant, of_atom
from tessera.analysis.slots import load, stored
from tessera.analysis.values import NONE, Value, bound_of
from tessera.native.ptx import Instruction, OperandKind

if TYPE_CHECKING:
    from tessera.analysis.registers import Registers

Handler = Callable[["Registers", int, Instruction, int], "Value | None"]


def _integer(instruction: Instruction) -> int | None:
    """Bits of an ordinary integer operation; None for floats, vectors and saturation."""
    if "sat" in instruction.modifiers or "relu" in instruction.modifiers:
        return None
    return INTEGER_BITS.get(instruction.type)


def _reduce(poly: Poly, bits: int) -> Poly:
    """The same modulo 2**bits, with coefficients that fit."""
    half = 1 << (bits - 1)
    if all(-half <= c < half for c in poly.terms.values()):
        return poly
    full = 1 << bits
    terms = {m: (c + half) % full - half for m, c in poly.terms.items()}
    return Poly({m: c for m, c in terms.items() if c})


def _mov(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    target, source = ins.operands[0], ins.operands[1]
    if target.kind is OperandKind.VECTOR:
        return _unpack(r, r.operand(index, source), len(target.elements), slot, ins)
    if source.kind is OperandKind.VECTOR:
        return _pack(r, index, ins)
    if source.kind is OperandKind.FLOAT:
        return Value(constant(source.bits))
    return r.operand(index, source)


def _unpack(r: Registers, whole: Value, count: int, slot: int, ins: Instruction) -> Value | None:
    bits = STORAGE_BITS.get(ins.type, 0) // count
    if bits < 8:
        return None
    lo, hi = bound_of(whole)
    if slot == 0:
        if lo is not None and hi is not None and lo >= 0 and hi < 1 << bits:
            return whole
        return Value(r.domain.remainder(whole.poly, 1 << bits), whole.obligations)
    return r.domain.quotient(Value(whole.poly, whole.obligations), 1 << (bits * slot))


def _pack(r: Registers, index: int, ins: Instruction) -> Value | None:
    parts = ins.operands[1].elements
    bits = STORAGE_BITS.get(ins.type, 0) // len(parts)
    if bits < 8 or any(p.kind is OperandKind.SINK for p in parts):
        return None
    poly, obligations = ZERO, NONE
    for place, part in enumerate(parts):
        value = r.operand(index, part)
        if place < len(parts) - 1:
            value = r.domain.interpret(value, bits, False)
        poly = poly + value.poly.scale(1 << (bits * place))
        obligations |= value.obligations
    return Value(rejoin(poly), obligations)


def rejoin(poly: Poly) -> Poly:
    """`d * floor(x / d) + x mod d` as `x`, wherever both stand with fitting coefficients."""
    quotients = [a for monomial in poly.terms for a in monomial if a.kind == "quot"]
    if not quotients:
        return poly
    for monomial, coefficient in poly.terms.items():
        for place, atom in enumerate(monomial):
            if atom.kind != "rem":
                continue
            other = next((a for a in quotients if a.args == atom.args), None)
            if other is None:
                continue
            numerator, divisor = atom.args
            rest = Poly({monomial[:place] + monomial[place + 1 :]: coefficient})
            factor = constant(divisor) if isinstance(divisor, int) else divisor
            high = rest.times(factor)
            high = high.times(of_atom(other)) if high is not None else None
            whole = rest.times(numerator)
            if high is None or whole is None:
                continue
            if all(poly.terms.get(m) == c for m, c in high.terms.items()):
                return rejoin(poly - high - Poly({monomial: coefficient}) + whole)
    return poly


def _add(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    poly = a.poly + b.poly if ins.opcode == "add" else a.poly - b.poly
    poly = r.domain.with_remainders(r.domain.without_remainders(_reduce(poly, bits)))
    return Value(poly, a.obligations | b.obligations)


def _mul(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    product = product_of(r, index, ins)
    if product is None or ins.opcode == "mul":
        return product
    c = r.operand(index, ins.operands[3])
    bits = (_integer(ins) or 0) * (2 if "wide" in ins.modifiers else 1)
    poly = r.domain.with_remainders(_reduce(product.poly + c.poly, bits))
    return Value(poly, product.obligations | c.obligations)


def product_of(r: Registers, index: int, ins: Instruction) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    signed = ins.type in SIGNED
    if "hi" in ins.modifiers and not signed:
        a, b = _as_unsigned(r, a, bits), _as_unsigned(r, b, bits)
    if "lo" not in ins.modifiers:
        a, b = r.domain.interpret(a, bits, signed), r.domain.interpret(b, bits, signed)
    poly = a.poly.times(b.poly)
    if poly is None:
        return None
    obligations = a.obligations | b.obligations
    if "hi" in ins.modifiers:
        bound = product_bound(bound_of(a), bound_of(b))
        return r.domain.quotient(Value(poly, obligations), 1 << bits, bound)
    return Value(_reduce(poly, bits if "lo" in ins.modifiers else 2 * bits), obligations)


def _as_unsigned(r: Registers, value: Value, bits: int) -> Value:
    """A parameter as the unsigned number that it is here: multipliers that stand for a division
    use all of their bits."""
    atom = value.poly.single
    if atom is None or atom.kind != "param" or not 8 * atom.args[1] == bits == 32:
        return value
    offset, width, _ = atom.args
    return Value(r.parameter(offset, width, False), value.obligations)


def _mul24(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    if "lo" not in ins.modifiers:
        return None
    values = [r.operand(index, o) for o in ins.operands[1:]]
    for value in values[:2]:
        lo, hi = value.poly.bound()
        if lo is None or hi is None or lo < 0 or hi >= 1 << 23:
            return None
    poly = values[0].poly.times(values[1].poly)
    if poly is None:
        return None
    poly = poly + values[2].poly if len(values) > 2 else poly
    return Value(_reduce(poly, 32), frozenset().union(*(v.obligations for v in values)))


def _shl(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    a = r.operand(index, ins.operands[1])
    count = r.domain.interpret(r.operand(index, ins.operands[2]), 32, False)
    if (number := count.poly.constant) is not None:
        return Value(
            _reduce(a.poly.scale(1 << number), bits) if number < bits else ZERO, a.obligations
        )
    power = r.domain.power_of_two(count, bits)
    poly = a.poly.times(power.poly)
    return None if poly is None else Value(poly, a.obligations | power.obligations)


def _shr(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    signed = ins.type in SIGNED
    a = r.domain.interpret(r.operand(index, ins.operands[1]), bits, signed)
    count = r.domain.interpret(r.operand(index, ins.operands[2]), 32, False)
    if (number := count.poly.constant) is not None:
        if number >= bits and not signed:
            return Value(ZERO, a.obligations)
        return r.domain.quotient(a, 1 << min(number, bits - 1))
    divided = r.domain.divide(a, r.domain.power_of_two(count, bits))
    return divided[0] if divided else None


def _and(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    if a.poly.constant is not None:
        a, b = b, a
    if (mask := b.poly.constant) is not None:
        a = a.low_bits((mask & ((1 << bits) - 1)).bit_length())
    obligations = a.obligations | b.obligations
    if mask is not None:
        masked = r.domain.mask(a.poly, mask, bits)
        return None if masked is None else Value(masked, obligations)
    x, y = r.domain.interpret(a, bits, False), r.domain.interpret(b, bits, False)
    (_, x_hi), (_, y_hi) = bound_of(x), bound_of(y)
    full = (1 << bits) - 1
    most = min(full if x_hi is None else x_hi, full if y_hi is None else y_hi)
    atom = r.domain.derived("and", (x.poly, y.poly), (0, most))
    return Value(of_atom(atom), x.obligations | y.obligations)


def _or(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    return r.domain.join(ins.opcode, a, b, bits)


def _not(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    if _integer(ins) is None:
        return None
    a = r.operand(index, ins.operands[1])
    return Value((-a.poly).shift(-1 if ins.opcode == "not" else 0), a.obligations)


def _abs(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    return r.domain.magnitude(r.domain.interpret(r.operand(index, ins.operands[1]), bits, True))


def _min(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    signed = ins.type in SIGNED
    a, b = (r.domain.interpret(r.operand(index, o), bits, signed) for o in ins.operands[1:3])
    return r.domain.extremum(ins.opcode, a, b)


def _div(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    if bits is None:
        return None
    signed = ins.type in SIGNED
    a, b = (r.domain.interpret(r.operand(index, o), bits, signed) for o in ins.operands[1:3])
    divided = r.domain.divide(a, b)
    if divided is None:
        return None
    return divided[0] if ins.opcode == "div" else divided[1]


def _cvt(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    target, source = INTEGER_BITS.get(ins.type), INTEGER_BITS.get(ins.type2)
    if target is None or source is None or "sat" in ins.modifiers:
        return None
    value = r.operand(index, ins.operands[1])
    if target > source:
        return r.domain.interpret(value, source, ins.type2 in SIGNED)
    value = value.low_bits(target)
    register = r.program.frames[index].register_base + ins.operands[0].register
    if STORAGE_BITS.get(r.program.register_types[register], 64) <= target:
        return value  # congruent, and no bits above
    if ins.type in SIGNED:
        return r.domain.interpret(value, target, True)
    return Value(r.domain.remainder(value.poly, 1 << target), value.obligations)


def _cvta(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    value = r.operand(index, ins.operands[1])
    space = next((m for m in ins.modifiers if m in ("shared", "local", "param")), None)
    if space is None or any(a.kind == "symbol" for a in value.poly.atoms):
        return value  # a generic address of global memory is the same number
    window = of_atom(r.domain.leaf("window", (space,), (None, None), uniform=False))
    poly = value.poly - window if "to" in ins.modifiers else value.poly + window
    return Value(poly, value.obligations)


def _selp(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    if ins.type not in INTEGER_BITS:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    return r.domain.select(r.predicate(index, ins.operands[3]), a, b)


def _bfe(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    bits = _integer(ins)
    start, count = (r.operand(index, o).poly.constant for o in ins.operands[2:4])
    if bits is None or ins.type in SIGNED or start is None or count is None:
        return None
    if start < 0 or count < 0 or start + count > bits:
        return None
    a = r.operand(index, ins.operands[1]).low_bits(start + count)
    low = r.domain.remainder(a.poly, 1 << (start + count))
    return Value(r.domain.quotient(Value(low), 1 << start).poly, a.obligations)


def _bfi(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    """Bits [start, start + count) of the second operand replaced by the first's lowest."""
    bits = _integer(ins)
    start, count = (r.operand(index, o).poly.constant for o in ins.operands[3:5])
    if bits is None or start is None or count is None or start < 0 or count <= 0:
        return None
    if start + count > bits:
        return None
    a, b = r.operand(index, ins.operands[1]), r.operand(index, ins.operands[2])
    field = ((1 << count) - 1) << start
    kept = r.domain.mask(b.poly, ~field, bits)
    if kept is None:
        return None
    inserted = a.poly if start + count == bits else r.domain.remainder(a.poly, 1 << count)
    poly = rejoin(kept + inserted.scale(1 << start))
    return Value(_reduce(poly, bits), a.obligations | b.obligations)


def _shfl(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    if slot != 0:
        return None
    value = r.operand(index, ins.operands[1])
    if value.poly.uniform:
        return value
    node = r.reaching.node_of[index]
    atom = r.domain.fresh(
        "other_lane", (value,), value.poly.bound(), (node,), loaded=value.poly.loaded
    )
    return Value(of_atom(atom))


def _count(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    node = r.reaching.node_of[index]
    return Value(of_atom(r.domain.fresh("opaque", (index,), (-1, 64), (node,), loaded=True)))


HANDLERS: dict[str, Handler] = {
    "mov": _mov, "add": _add, "sub": _add, "mul": _mul, "mad": _mul, "mul24": _mul24,
    "mad24": _mul24, "shl": _shl, "shr": _shr, "and": _and, "or": _or, "xor": _or, "not": _not,
    "neg": _not, "abs": _abs, "min": _min, "max": _min, "div": _div, "rem": _div, "cvt": _cvt,
    "cvta": _cvta, "selp": _selp, "bfe": _bfe, "bfi": _bfi, "shfl": _shfl, "popc": _count,
    "clz": _count, "bfind": _count, "ld": load, "ldu": load, "st": stored,
}  # fmt: skip
