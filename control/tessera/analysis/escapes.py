# SPDX-License-Identifier: Apache-2.0
"""Pass 6: addresses of variables and functions that leave the kernel.

A module variable has another address on each device. A kernel that only accesses it may run
anywhere its content is right; one that stores the address, or compares it with what it was
given, leaves results behind that hold for one device alone. A local variable whose address
gets about may be written by any store that it reaches. What an address flows into is followed
through registers, and through local and shared memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.analysis.opcodes import results, space_of
from tessera.analysis.program import Program, Symbol
from tessera.analysis.reaching import Reaching
from tessera.native.ptx import Instruction, Operand, OperandKind, Space

Carried = frozenset[Symbol | str]  # variables, or names of functions
NOTHING: Carried = frozenset()


@dataclass(frozen=True, slots=True)
class Escape:
    """The instruction at `index` lets the addresses of `carried` out."""

    index: int
    carried: Carried


class Escapes:
    """Follows the addresses of one program's variables in `spaces`, and those of functions where
    `functions` says so."""

    def __init__(
        self,
        program: Program,
        reaching: Reaching,
        spaces: tuple[Space, ...] = (Space.GLOBAL, Space.CONST),
        *,
        functions: bool = True,
    ) -> None:
        self._program = program
        self._spaces = spaces
        self._functions = functions
        self._code = [
            (index, instruction)
            for index, instruction in enumerate(program.code)
            if reaching.node_of[index] >= 0
        ]
        self._registers: dict[int, Carried] = {}
        # By .param variable; under None all local and shared memory, and what is not named.
        self._memory: dict[Symbol | None, Carried] = {}

    def run(self) -> list[Escape]:
        """Where addresses get out of the kernel."""
        named = any(
            self._named(index, operand)
            for index, ins in self._code
            for operand in ins.operands
            if operand.kind is OperandKind.SYMBOL
        )
        if not named:
            return []
        while self._step():
            pass
        return [
            Escape(index, carried)
            for index, instruction in self._code
            if (carried := self._let_out(index, instruction))
        ]

    def through(self, index: int, address: Operand) -> Carried:
        """The variables in which an access of the instruction at `index` may lie, after `run`."""
        return NOTHING.union(*(self._of(index, element) for element in address.elements))

    def _step(self) -> bool:
        """One round over all instructions; whether it found anything new."""
        changed = False
        for index, instruction in self._code:
            carried = self._carried_on(index, instruction)
            if not carried:
                continue
            if instruction.opcode == "st" and not _is_global(instruction):
                place = self._place(index, instruction.operands[0])
                changed |= not carried <= self._memory.get(place, NOTHING)
                self._memory[place] = self._memory.get(place, NOTHING) | carried
            base = self._program.frames[index].register_base
            for _, register in results(instruction):
                before = self._registers.get(base + register, NOTHING)
                if not carried <= before:
                    self._registers[base + register] = before | carried
                    changed = True
        return changed

    def _carried_on(self, index: int, instruction: Instruction) -> Carried:
        """The addresses that the results of an instruction may hold."""
        if instruction.opcode == "call":
            return NOTHING
        if instruction.opcode in ("ld", "ldu"):
            if _is_global(instruction):
                return NOTHING
            return self._memory.get(self._place(index, instruction.operands[1]), NOTHING)
        if instruction.opcode in ("atom", "tex", "setp"):
            return NOTHING
        inputs = instruction.operands[1:]
        return NOTHING.union(*(self._of(index, operand) for operand in inputs))

    def _let_out(self, index: int, instruction: Instruction) -> Carried:
        operands = instruction.operands
        if instruction.opcode == "st" and (_is_global(instruction) or not space_of(instruction)):
            return self._of(index, operands[1])
        if instruction.opcode in ("atom", "red"):
            at = 0 if instruction.opcode == "red" else 1
            return NOTHING.union(*(self._of(index, o) for o in operands[at + 1 :]))
        if instruction.opcode in ("setp", "set"):
            return self._compared(index, operands)
        return NOTHING

    def _compared(self, index: int, operands: tuple[Operand, ...]) -> Carried:
        """Two addresses of one variable compare alike everywhere, and none is null."""
        left, right = (self._of(index, operand) for operand in operands[1:3])
        others = [o for o, c in zip(operands[1:3], (left, right), strict=True) if not c]
        if len(others) != 1 or (others[0].kind is OperandKind.INTEGER and others[0].bits == 0):
            return NOTHING if left == right or others else left | right
        return left | right

    def _place(self, index: int, address: Operand) -> Symbol | None:
        base = address.elements[0] if address.elements else address
        if base.kind is not OperandKind.SYMBOL:
            return None
        symbol = self._program.frames[index].symbol(base.text)
        return symbol if symbol is not None and symbol.space is Space.PARAM else None

    def _of(self, index: int, operand: Operand) -> Carried:
        if operand.kind is OperandKind.ADDRESS:
            return NOTHING  # an access, not a value
        if operand.elements:
            return NOTHING.union(*(self._of(index, element) for element in operand.elements))
        found = self._named(index, operand)
        if operand.register >= 0:
            base = self._program.frames[index].register_base
            found |= self._registers.get(base + operand.register, NOTHING)
        return found

    def _named(self, index: int, operand: Operand) -> Carried:
        if operand.kind is not OperandKind.SYMBOL:
            return NOTHING
        if self._program.code[index].opcode in ("call", "bra", "brx"):
            return NOTHING
        symbol = self._program.frames[index].symbol(operand.text)
        if symbol is None:
            return frozenset((operand.text,)) if self._functions else NOTHING
        kept = symbol.kind == "variable" and symbol.space in self._spaces
        return frozenset((symbol,)) if kept else NOTHING


def _is_global(instruction: Instruction) -> bool:
    return space_of(instruction) in ("global", "const")


def variables(escapes: list[Escape]) -> Iterator[Symbol]:
    """The module variables among what gets out: anybody may write them from then on."""
    for escape in escapes:
        yield from (s for s in escape.carried if isinstance(s, Symbol))
