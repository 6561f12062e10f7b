# SPDX-License-Identifier: Apache-2.0
"""Which instruction's result a register holds: the writes that reach a read.

A node is one write, ("d", instruction, variable); the variable's state at the start, ("e",
variable); or a place where ways meet with several writes, ("f", block, variable).
"""

from __future__ import annotations

import bisect
from typing import Any

from tessera.sass.opcodes import OPCODES, words_of
from tessera.sass.program import Program, TooHardError
from tessera.sass.stack import Stack
from tessera.sass.syntax import PREDICATE, STACK, Instruction, Operand

Node = tuple[Any, ...]
MAX_MEETINGS = 5000  # blocks looked at for one


class Writes:
    """Every write of a program's registers, predicates and stack slots."""

    def __init__(self, program: Program, stack: Stack) -> None:
        """Raises TooHardError for an instruction whose results are not known."""
        self._program = program
        self._stack = stack
        self._writes: list[dict[int, list[int]]] = [{} for _ in program.blocks]
        self._result: dict[tuple[int, int], int] = {}  # (instruction, variable) -> word
        self._may: set[tuple[int, int]] = set()
        self._at_end: dict[tuple[int, int], Node] = {}
        self._meetings: dict[Node, Node] = {}
        self.stores: dict[str, list[int]] = {"s": [], "l": []}  # to shared and local memory
        for index in range(len(program.code)):
            self._note(index)

    def may_stay(self, index: int, variable: int) -> bool:
        """Whether a write may leave what the variable held."""
        return (index, variable) in self._may

    def _note(self, index: int) -> None:
        ins = self._program.code[index]
        row = OPCODES[ins.base]
        if ins.is_never_done:
            return
        if ins.has("256"):
            raise TooHardError(f"{ins.text} has two results")
        if row.memory in ("ws", "rs") and ins.base in ("STS", "STSM", "ATOMS"):
            self.stores["s"].append(index)
        if row.memory == "wl":
            self.stores["l"].append(index)
        results, predicates = _results(ins)
        for operand in predicates:
            self._write(index, operand.variable, -1)
        if results is not None and results.variable is not None:
            surely, most = words_of(ins)
            for word in range(most):
                self._write(index, results.variable + word, word)
                if word >= surely:
                    self._may.add((index, results.variable + word))
        if ins.base in ("R2P", "UR2UP") or (ins.base == "BAR" and ins.has("RED")):
            for number in range(7):
                self._write(index, PREDICATE + number, -1)
        for slot, word in self._stack.slots_written(index):
            self._write(index, STACK + slot, word)
            if self._stack.is_partial(index):
                self._may.add((index, STACK + slot))

    def _write(self, index: int, variable: int | None, word: int) -> None:
        if variable is None:
            return
        places = self._writes[self._program.block_of[index]].setdefault(variable, [])
        if not places or places[-1] != index:
            places.append(index)
        self._result[index, variable] = word

    def before(self, index: int, variable: int) -> Node:
        """What a variable holds before an instruction."""
        block = self._program.block_of[index]
        places = self._writes[block].get(variable, ())
        at = bisect.bisect_left(places, index)
        if at:
            return ("d", places[at - 1], variable)
        return self._at_start(block, variable)

    def _at_start(self, block: int, variable: int) -> Node:
        visited = []
        while True:
            known = self._at_end.get((block, variable))
            if known is not None:
                break
            visited.append(block)
            predecessors = self._program.blocks[block].predecessors
            if block == 0 and not predecessors:
                known = ("e", variable)
                break
            if len(predecessors) != 1 or block == 0:
                known = self._one_write(("f", block, variable))
                break
            block = predecessors[0]
            places = self._writes[block].get(variable)
            if places:
                known = ("d", places[-1], variable)
                break
        for passed in visited:
            self._at_end[passed, variable] = known
        return known

    def _one_write(self, meeting: Node) -> Node:
        """The one write that reaches a place where ways meet, or the meeting of several."""
        known = self._meetings.get(meeting)
        if known is not None:
            return known
        self._meetings[meeting] = meeting  # as long as it is being looked at
        variable = meeting[2]
        seen, work = {meeting[1]}, [meeting[1]]
        leaf: Node | None = None
        while work and len(seen) < MAX_MEETINGS:
            block = work.pop()
            ways = self._program.blocks[block].predecessors
            ends: list[Node] = [("e", variable)] if block == 0 else []
            for way in ways:
                places = self._writes[way].get(variable)
                if places:
                    ends.append(("d", places[-1], variable))
                elif way not in seen:
                    seen.add(way)
                    work.append(way)
            for end in ends:
                if leaf is not None and leaf != end:
                    return meeting
                leaf = end
        if leaf is not None and not work:
            self._meetings[meeting] = leaf
        return self._meetings[meeting]

    def _at_end_of(self, block: int, variable: int) -> Node:
        """What a variable holds at the end of a block."""
        places = self._writes[block].get(variable)
        return ("d", places[-1], variable) if places else self._at_start(block, variable)

    def arguments(self, meeting: Node) -> list[Node]:
        """What a variable holds on each way to where ways meet."""
        _, block, variable = meeting
        ways = self._program.blocks[block].predecessors
        entry: list[Node] = [("e", variable)] if block == 0 else []
        return [self._at_end_of(way, variable) for way in ways] + entry

    def word_of(self, index: int, variable: int) -> int:
        """Which word of its result an instruction writes into a variable."""
        return self._result[index, variable]


def _results(ins: Instruction) -> tuple[Operand | None, list[Operand]]:
    """The register that an instruction writes, and its predicates: at most two on either side.
    A source that is taken for a result costs precision, not soundness."""
    predicates: list[Operand] = []
    count = 0
    register = None
    for operand in ins.operands:
        if operand.kind == "predicate" and count < 2:
            predicates.append(operand)
            count += 1
        elif operand.kind == "register" and register is None and OPCODES[ins.base].value != "none":
            register, count = operand, 0
        else:
            break
    if OPCODES[ins.base].value != "none" and register is None and not predicates:
        raise TooHardError(f"what {ins.text} writes was not found")
    return register, predicates
