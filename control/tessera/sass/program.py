# SPDX-License-Identifier: Apache-2.0
"""One kernel as basic blocks, each call inlined at its place."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tessera.analysis.calls import external_call
from tessera.sass.elf import Cubin, Symbol
from tessera.sass.opcodes import OPCODES
from tessera.sass.syntax import Instruction, Operand

MAX_INSTRUCTIONS = 150_000
MAX_DEPTH = 12
LINK_DISTANCE = 100  # instructions between a call and what says where it returns to

Place = tuple[str, int, tuple[tuple[str, int], ...]]  # section, index, return places


class TooHardError(Exception):
    """The kernel cannot be analysed as a whole; the message says why."""


@dataclass(slots=True)
class Block:
    begin: int
    end: int = 0
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    rank: int = 0  # in reverse postorder


@dataclass(slots=True)
class Program:
    name: str
    code: list[Instruction] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)  # of each instruction
    blocks: list[Block] = field(default_factory=list)
    block_of: list[int] = field(default_factory=list)  # of each instruction
    external_calls: list[tuple[int, str]] = field(default_factory=list)
    returns: list[tuple[int, int]] = field(default_factory=list)  # (instruction, address after)
    order: list[int] = field(default_factory=list)  # blocks in reverse postorder
    is_reducible: bool = True


def build(name: str, code: dict[str, list[Instruction]], cubin: Cubin) -> Program:
    """Raises TooHardError for what has no known flow."""
    return _Builder(name, code, cubin).run()


class _Builder:
    def __init__(self, name: str, code: dict[str, list[Instruction]], cubin: Cubin) -> None:
        self._code = code
        self._cubin = cubin
        self._program = Program(name)
        self._symbols: dict[str, list[Symbol]] = {}
        for symbol in cubin.symbols:
            if symbol.is_function and symbol.section:
                self._symbols.setdefault(symbol.name, []).append(symbol)
        self._barriers: dict[tuple[str, str], set[int]] = {}
        self._external: dict[Place, str] = {}
        self._returns: dict[Place, int] = {}

    def run(self) -> Program:
        start: Place = (self._program.name, 0, ())
        successors = self._explore(start)
        self._lay_out(start, successors)
        _order(self._program)
        return self._program

    def _explore(self, start: Place) -> dict[Place, list[Place]]:
        found: dict[Place, list[Place]] = {}
        work = [start]
        while work:
            place = work.pop()
            if place in found:
                continue
            found[place] = self._next(place)
            work += reversed(found[place])
            if len(found) > MAX_INSTRUCTIONS:
                raise TooHardError("the kernel is too large with its functions inlined")
        return found

    def _at(self, section: str, index: int) -> Instruction:
        code = self._code.get(section, [])
        if not 0 <= index < len(code):
            raise TooHardError(f"the flow leaves {section}")
        return code[index]

    def _next(self, place: Place) -> list[Place]:
        section, index, stack = place
        ins = self._at(section, index)
        row = OPCODES.get(ins.base)
        if row is None:
            raise TooHardError(f"{ins.text} is not known")
        after: Place = (section, index + 1, stack)
        if ins.is_never_done:
            return [after]
        passes = [after] if ins.guard is not None else []
        if row.flow == "branch":
            return self._branch(ins, place, passes)
        if row.flow == "call":
            return passes + self._call(ins, place)
        if row.flow == "return":
            goal = self._far_jump(section, index)
            if goal is not None:
                return [*passes, (section, goal // 16, stack)]
            if not stack:
                raise TooHardError("a return from the kernel itself")
            (back, at), rest = stack[-1], stack[:-1]
            self._returns[place] = 16 * at
            return [*passes, (back, at, rest)]
        if row.flow == "end":
            return passes
        if row.flow == "trap":
            return [after] if index + 1 < len(self._code[section]) else []
        if row.flow == "barrier":
            return self._barrier(ins, place)
        if ins.base == "WARPSYNC" and ins.has("COLLECTIVE"):
            return [after, (section, _target(ins) // 16, stack)]
        return [after]

    def _branch(self, ins: Instruction, place: Place, passes: list[Place]) -> list[Place]:
        section, index, stack = place
        conditional = len(ins.operands) > 1 or ins.has("DIV", "CONV", "ANY", "U", "ALL")
        if conditional and not passes:
            passes = [(section, index + 1, stack)]
        goal: Place = (section, _target(ins) // 16, stack)
        return [*(p for p in passes if p != goal), goal]

    def _barrier(self, ins: Instruction, place: Place) -> list[Place]:
        section, index, stack = place
        name = next((o.text for o in ins.operands), "")
        if (section, name) not in self._barriers:
            self._barriers[section, name] = {
                _target(i) // 16
                for i in self._code[section]
                if i.base == "BSSY" and i.operands and i.operands[0].text == name
            }
        goals = self._barriers[section, name]
        if not goals or index + 1 in goals:
            return [(section, index + 1, stack)]
        return [(section, goal, stack) for goal in sorted(goals | {index + 1})]

    def _call(self, ins: Instruction, place: Place) -> list[Place]:
        section, index, stack = place
        after = (section, index + 1)
        first = ins.operands[0] if ins.operands else Operand("other")
        if first.kind == "register":
            name = self._callee(section, index, first.variable)
            if name is None:
                raise TooHardError(f"{ins.text} calls through a pointer")
            if name not in self._symbols:
                return self._call_outside(name, place)
        else:
            name = first.text.strip("`()")
        goal = self._function(name, section)
        if goal is None and first.kind == "number":
            return [(section, first.value // 16, stack)]  # a far jump: nothing returns from it
        if goal is None:
            return self._call_outside(name, place)
        text = self._cubin.section_names[goal.section]
        target = (text.removeprefix(".text."), goal.value // 16)
        if not self._is_linked(section, index):
            raise TooHardError(f"where {ins.text} returns to is not known")
        if after in stack:
            raise TooHardError(f"{name or 'a function'} calls itself")
        if len(stack) >= MAX_DEPTH:
            raise TooHardError("calls nest too deeply")
        return [(*target, (*stack, after))]

    def _function(self, name: str, section: str) -> Symbol | None:
        """What a name stands for; a local one that several sections have, in this section."""
        found = self._symbols.get(name, [])
        if len(found) > 1:
            names = self._cubin.section_names
            found = [s for s in found if names[s.section] == f".text.{section}"]
            if len(found) != 1:
                raise TooHardError(f"which of several functions {name} is is not known")
        return found[0] if found else None

    def _far_jump(self, section: str, index: int) -> int | None:
        """Where a return leads whose register was set to a number just before."""
        register = self._code[section][index].operands[0].variable
        for at in range(index - 1, max(-1, index - 16), -1):
            ins = self._code[section][at]
            if OPCODES[ins.base].flow if ins.base in OPCODES else True:
                return None
            if ins.operands and ins.operands[0].variable == register:
                return constant_of(ins)
        return None

    def _is_linked(self, section: str, index: int) -> bool:
        """Whether the address after a call was put into a register shortly before."""
        wanted = 16 * (index + 1)
        code = self._code[section][max(0, index - LINK_DISTANCE) : index]
        return any(constant_of(ins) == wanted for ins in code)

    def _call_outside(self, name: str, place: Place) -> list[Place]:
        if external_call(name) is None:
            raise TooHardError(f"{name} is not defined in this module")
        self._external[place] = name
        section, index, stack = place
        return [] if name.startswith("__assert") else [(section, index + 1, stack)]

    def _callee(self, section: str, index: int, register: int | None) -> str | None:
        """The function whose address a register holds: loaded from bank 4, just before."""
        offset_register: int | None = None
        for at in range(index - 1, max(-1, index - 200), -1):
            ins = self._code[section][at]
            first = ins.operands[0] if ins.operands else None
            if first is None or first.kind != "register" or first.variable is None:
                continue
            wanted = register if offset_register is None else offset_register
            if first.variable != wanted:
                continue
            if offset_register is not None:
                value = _immediate(ins)
                return None if value is None else self._bank4(value)
            source = ins.operands[-1]
            if ins.guard is not None or source.kind != "constant" or source.bank != 4:
                return None
            if not source.base:
                return self._bank4(source.value)
            offset_register = source.base[0].variable
            if source.value or offset_register is None:
                return None
        return None

    def _bank4(self, offset: int) -> str | None:
        return self._cubin.relocations.get(".nv.constant4", {}).get(offset)

    def _lay_out(self, start: Place, successors: dict[Place, list[Place]]) -> None:
        """Instructions in runs: a run ends where the flow divides or meets."""
        program = self._program
        entries: dict[Place, int] = dict.fromkeys(successors, 0)
        for goals in successors.values():
            for goal in goals:
                entries[goal] += 1
        leaders = {start} | {p for p, n in entries.items() if n != 1}
        for goals in successors.values():
            if len(goals) != 1:
                leaders.update(goals)
        index_of: dict[Place, int] = {}
        ends: list[Place] = []
        for leader in successors:
            if leader not in leaders:
                continue
            index_of[leader] = len(program.blocks)
            block = Block(len(program.code))
            place = leader
            while True:
                self._append(place, len(program.blocks))
                goals = successors[place]
                if len(goals) != 1 or goals[0] in leaders:
                    break
                place = goals[0]
            block.end = len(program.code)
            program.blocks.append(block)
            ends.append(place)
        for number, place in enumerate(ends):
            for goal in successors[place]:
                program.blocks[number].successors.append(index_of[goal])
                program.blocks[index_of[goal]].predecessors.append(number)

    def _append(self, place: Place, block: int) -> None:
        program = self._program
        if place in self._external:
            program.external_calls.append((len(program.code), self._external[place]))
        if place in self._returns:
            program.returns.append((len(program.code), self._returns[place]))
        program.code.append(self._code[place[0]][place[1]])
        program.sections.append(place[0])
        program.block_of.append(block)


def _target(ins: Instruction) -> int:
    last = ins.operands[-1] if ins.operands else None
    if last is None or last.kind != "number" or last.value < 0:
        raise TooHardError(f"{ins.text} has no target")
    return last.value


def constant_of(ins: Instruction) -> int | None:
    """The number that an instruction puts into a register."""
    last = ins.operands[-1] if ins.operands else None
    if last is None or ins.guard is not None:
        return None
    zeros = all(o.kind == "register" and o.variable is None for o in ins.operands[1:3])
    if ins.base == "HFMA2" and len(ins.operands) == 5:  # two halves as floating point
        if not zeros or ins.modifiers not in ((), ("MMA",)):
            return None
        try:
            halves = [struct.pack("<e", float(o.text)) for o in ins.operands[3:]]
        except (ValueError, OverflowError, struct.error):
            return None
        return int.from_bytes(halves[1] + halves[0], "little")
    if last.kind != "number" or last.negative:
        return None
    if ins.base in ("MOV", "UMOV", "LEPC") and len(ins.operands) == 2:
        return last.value
    product = ins.base == "IMAD" and len(ins.operands) == 4 and not ins.has("WIDE", "HI", "X")
    return last.value if product and zeros else None


def _immediate(ins: Instruction) -> int | None:
    last = ins.operands[-1]
    if ins.guard is not None or last.kind != "number":
        return None
    if ins.base in ("MOV", "UMOV") or (ins.base == "IMAD" and ins.has("MOV")):
        return last.value
    return None


def _order(program: Program) -> None:
    """Ranks in reverse postorder, and whether each cycle has one way in."""
    seen: set[int] = set()
    post: list[int] = []
    work: list[tuple[int, int]] = [(0, 0)]
    seen.add(0)
    while work:
        block, at = work.pop()
        goals = program.blocks[block].successors
        if at < len(goals):
            work.append((block, at + 1))
            if goals[at] not in seen:
                seen.add(goals[at])
                work.append((goals[at], 0))
        else:
            post.append(block)
    program.order = post[::-1]
    for rank, block in enumerate(program.order):
        program.blocks[block].rank = rank
    program.is_reducible = _is_reducible(program)


def _is_reducible(program: Program) -> bool:
    """Every edge that goes back in the order leads to a block that dominates its source."""
    order, blocks = program.order, program.blocks
    idom: dict[int, int] = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            new = -1
            for p in blocks[block].predecessors:
                if p in idom:
                    new = p if new < 0 else _meet(p, new, idom, blocks)
            if new >= 0 and idom.get(block) != new:
                idom[block] = new
                changed = True
    for source in order:
        for goal in blocks[source].successors:
            if blocks[goal].rank > blocks[source].rank:
                continue
            at = source
            while at != goal and idom[at] != at:
                at = idom[at]
            if at != goal:
                return False
    return True


def _meet(a: int, b: int, idom: dict[int, int], blocks: list[Block]) -> int:
    while a != b:
        while blocks[a].rank > blocks[b].rank:
            a = idom[a]
        while blocks[b].rank > blocks[a].rank:
            b = idom[b]
    return a
