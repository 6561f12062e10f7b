# SPDX-License-Identifier: Apache-2.0
"""Induction variables: a loop's phi that gains the same invariant step on every way round.

It becomes `first + step * k`, where k, the loop's own atom, counts iterations from 0. All
variables of a loop share k, which keeps a counter and the pointers beside it together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.analysis.flow import Edge, Loop
from tessera.analysis.polynomial import ZERO, Atom, of_atom
from tessera.analysis.reaching import Definition
from tessera.analysis.values import NONE, Value
from tessera.native.ptx import NO_REGISTER, Instruction, Operand, OperandKind

if TYPE_CHECKING:
    from tessera.analysis.registers import Registers

MAX_INVARIANT_DEPTH = 6
_PURE = frozenset("mov add sub mul mad shl shr and or cvt ld".split())


def counter(r: Registers, header: int) -> Atom:
    """The atom that counts the iterations of a loop."""
    atom = r.domain.leaf("k", (header,), (0, None), uniform=False)
    atom.homes = frozenset((header,))
    return atom


def find_induction(
    r: Registers, phi: Definition, inputs: list[tuple[Edge, Definition]]
) -> Value | None:
    """The value of a loop header's phi; None when it is no induction variable."""
    loop = r.flow.loops[phi.at]
    back = [d for edge, d in inputs if edge.source in loop.body]
    entries = [(edge, d) for edge, d in inputs if edge.source not in loop.body]
    if not entries:
        return None
    walker = _Walker(r, loop, phi)
    steps = [walker.step(d) for d in back]
    first = steps[0]
    if first is None or any(step is None or step.poly != first.poly for step in steps):
        return None
    start = _start(r, phi, entries)
    obligations = start.obligations.union(*(s.obligations for s in steps if s is not None))
    product = first.poly.times(of_atom(counter(r, phi.at)))
    return None if product is None else Value(start.poly + product, obligations)


def _start(r: Registers, phi: Definition, entries: list[tuple[Edge, Definition]]) -> Value:
    values = [r.value(d) for _, d in entries]
    if all(value == values[0] for value in values):
        return values[0]
    return r.merge(phi, entries, values)


class _Walker:
    """Follows one variable round one loop."""

    def __init__(self, r: Registers, loop: Loop, phi: Definition) -> None:
        self._r = r
        self._loop = loop
        self._phi = phi
        self._known: dict[Definition, Value | None] = {phi: Value(ZERO)}

    def step(self, definition: Definition) -> Value | None:
        """What `definition` has gained over the phi; None when that is not known."""
        if definition not in self._known:
            self._known[definition] = None  # met again on the way: no induction
            self._known[definition] = self._compute(definition)
        return self._known[definition]

    def _compute(self, definition: Definition) -> Value | None:
        if definition.kind == "phi":
            return self._join(definition)
        if definition.kind != "code":
            return None
        index = definition.at
        instruction = self._r.program.code[index]
        if instruction.guard != NO_REGISTER or not self._inside(index):
            return None
        if instruction.opcode == "mov" and len(instruction.operands) == 2:
            return self._through(index, instruction.operands[1])
        if instruction.modifiers[-1:] == ("cc",) or "sat" in instruction.modifiers:
            return None
        if instruction.opcode in ("add", "sub"):
            return self._sum(index, instruction)
        if instruction.opcode == "mad" and "hi" not in instruction.modifiers:
            return self._mad(index, instruction)
        return None

    def _inside(self, index: int) -> bool:
        return self._r.reaching.node_of[index] in self._loop.body

    def _through(self, index: int, operand: Operand) -> Value | None:
        if operand.kind is not OperandKind.REGISTER or operand.negated:
            return None
        base = self._r.program.frames[index].register_base
        return self.step(self._r.reaching.before(base + operand.register, index))

    def _sum(self, index: int, instruction: Instruction) -> Value | None:
        sign = 1 if instruction.opcode == "add" else -1
        a, b = instruction.operands[1], instruction.operands[2]
        for chain, step, factor in ((a, b, sign), (b, a, 1)):
            if factor == 1 and sign == -1:
                continue  # c - x is no step
            if not self.is_invariant(index, step, 0):
                continue
            gained = self._through(index, chain)
            if gained is not None:
                more = self._r.operand(index, step)
                return Value(
                    gained.poly + more.poly.scale(factor), gained.obligations | more.obligations
                )
        return None

    def _mad(self, index: int, instruction: Instruction) -> Value | None:
        a, b, chain = instruction.operands[1:4]
        if not (self.is_invariant(index, a, 0) and self.is_invariant(index, b, 0)):
            return None
        gained = self._through(index, chain)
        product = self._r.product(index, instruction)
        if gained is None or product is None:
            return None
        return Value(gained.poly + product.poly, gained.obligations | product.obligations)

    def _join(self, definition: Definition) -> Value | None:
        node = definition.at
        if node not in self._loop.body or node in self._r.flow.tangled:
            return None
        if node == self._loop.header:
            return None  # another variable of this loop: what it holds is not a step
        inputs = self._r.reaching.inputs(definition)
        inner = self._r.flow.loops.get(node)
        if inner is not None:
            walker = _Walker(self._r, inner, definition)
            for edge, source in inputs:
                if edge.source in inner.body:
                    gained = walker.step(source)
                    if gained is None or gained.poly.terms:
                        return None
            inputs = [(e, d) for e, d in inputs if e.source not in inner.body]
        gains = [self.step(d) for _, d in inputs]
        first = gains[0]
        if first is None or any(g is None or g.poly != first.poly for g in gains):
            return None
        return Value(first.poly, NONE.union(*(g.obligations for g in gains if g is not None)))

    def is_invariant(self, index: int, operand: Operand, depth: int) -> bool:
        """Whether an operand has one value in all iterations, seen without evaluating it."""
        if operand.kind in (OperandKind.INTEGER, OperandKind.SYMBOL):
            return True
        if operand.kind is OperandKind.SPECIAL:
            return operand.text in ("%tid", "%ntid", "%ctaid", "%nctaid")
        if operand.kind is OperandKind.ADDRESS:
            return all(self.is_invariant(index, e, depth) for e in operand.elements)
        if operand.kind is not OperandKind.REGISTER or depth > MAX_INVARIANT_DEPTH:
            return False
        base = self._r.program.frames[index].register_base
        definition = self._r.reaching.before(base + operand.register, index)
        if definition.kind == "none":
            return False
        if definition.kind == "phi":
            return definition.at not in self._loop.body
        if not self._inside(definition.at):
            return True
        source = self._r.program.code[definition.at]
        if source.opcode not in _PURE or source.guard != NO_REGISTER:
            return False
        if source.opcode == "ld" and "param" not in source.modifiers:
            return False
        return all(self.is_invariant(definition.at, o, depth + 1) for o in source.operands[1:])
