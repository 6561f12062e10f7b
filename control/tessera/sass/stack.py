# SPDX-License-Identifier: Apache-2.0
"""The words of the stack that are used like registers: where a spilled value is found again."""

from __future__ import annotations

from tessera.sass.opcodes import OPCODES, words_of
from tessera.sass.program import Program
from tessera.sass.syntax import STACK_POINTER, Instruction, Operand


class Stack:
    """Slots are offsets in words from the stack pointer at the kernel's start.

    They are followed only where every access to local memory has an address that is the stack
    pointer plus a number, and the pointer goes nowhere else.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._offsets = self._follow()
        self.is_followed = self._offsets is not None and self._is_private()

    def _local(self, index: int) -> Operand | None:
        ins = self._program.code[index]
        if OPCODES[ins.base].memory[-1:] != "l":
            return None
        return next((o.base[-1] for o in ins.operands if o.kind == "memory" and o.base), None)

    def slots_written(self, index: int) -> list[tuple[int, int]]:
        """(slot, word of the value) of a store."""
        ins = self._program.code[index]
        if ins.base != "STL" or not self.is_followed:
            return []
        first = self._slot(index)
        return [(first + word, word) for word in range(words_of(ins)[0])]

    def is_partial(self, index: int) -> bool:
        return self._program.code[index].has("U8", "S8", "U16", "S16")

    def slot_read(self, index: int, word: int) -> int | None:
        return self._slot(index) + word if self.is_followed else None

    def _slot(self, index: int) -> int:
        place = self._local(index)
        assert place is not None and self._offsets is not None
        return (self._offsets[index] + place.value) // 4 + 65536

    def _follow(self) -> list[int] | None:
        """The stack pointer before each instruction, relative to the start; None: not known."""
        program = self._program
        at_start: dict[int, int] = {0: 0}
        offsets = [0] * len(program.code)
        started = False
        for block in program.order:
            now = at_start.get(block)
            if now is None:
                return None
            for index in range(program.blocks[block].begin, program.blocks[block].end):
                offsets[index] = now
                ins = program.code[index]
                first = ins.operands[0] if ins.operands else None
                if first is None or first.kind != "register" or first.variable != STACK_POINTER:
                    continue
                if OPCODES[ins.base].value == "none":
                    continue
                step = _step(ins)
                if step is None and started:
                    return None
                started, now = True, now + (step or 0)
            for goal in program.blocks[block].successors:
                if at_start.setdefault(goal, now) != now:
                    return None
        return offsets

    def _is_private(self) -> bool:
        """Nothing but local accesses by number and steps of the pointer itself reads it."""
        for index, ins in enumerate(self._program.code):
            place = self._local(index)
            if OPCODES[ins.base].memory[-1:] == "l":
                if place is None or len(place.base) != 1 or place.value % 4:
                    return False
                if place.base[0].variable != STACK_POINTER:
                    return False
            for at, operand in enumerate(ins.operands):
                reads = operand.kind == "register" and operand.variable == STACK_POINTER
                own = ins.operands[0].variable == STACK_POINTER and _step(ins) is not None
                is_result = at == 0 and OPCODES[ins.base].value != "none"
                if reads and not own and not is_result:
                    return False
                if operand.kind == "memory" and place is None:
                    registers = [r.variable for part in operand.base for r in part.base]
                    if STACK_POINTER in registers:
                        return False
        return True


def _step(ins: Instruction) -> int | None:
    """How far an instruction moves the stack pointer; None: it is something else."""
    if ins.base not in ("IADD3", "VIADD", "IADD", "IADD32I", "UIADD3") or ins.guard is not None:
        return None
    sources = [o for o in ins.operands[1:] if o.kind != "predicate"]
    registers = [o for o in sources if o.kind == "register" and o.variable is not None]
    numbers = [o.value for o in sources if o.kind == "number"]
    if len(registers) != 1 or registers[0].variable != STACK_POINTER or registers[0].negative:
        return None
    if len(numbers) != 1 or any(o.kind not in ("register", "number") for o in sources):
        return None
    return numbers[0] - (1 << 32) if numbers[0] >= 1 << 31 else numbers[0]
