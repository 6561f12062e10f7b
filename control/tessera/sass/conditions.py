# SPDX-License-Identifier: Apache-2.0
"""Predicates that are the same for every thread of a launch: comparisons of a parameter with a
number. Where code is reached only under such conditions, the launch can tell whether it is.

A condition is a comparison of one field of the parameter block, true or not; it holds for the
whole launch, so it may be carried along any way through the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.sass.opcodes import OPCODES
from tessera.sass.program import Program, constant_of
from tessera.sass.syntax import Instruction, Operand
from tessera.sass.writes import Node, Writes

MAX_STEPS = 24  # moves followed from a comparison back to the parameter
_MASK = (1 << 32) - 1
_SIZES = {"U8": (1, False), "S8": (1, True), "U16": (2, False), "S16": (2, True)}


@dataclass(frozen=True, order=True, slots=True)
class Condition:
    """A field of the parameter block, equal to a number or (`less`) below it."""

    offset: int
    size: int
    is_signed: bool
    less: bool
    number: int

    def holds(self, value: int) -> bool:
        return value < self.number if self.less else value == self.number


Known = tuple[Condition, bool]
Context = frozenset[Known]
NOWHERE: Context = frozenset()
_Value = tuple[int, int, bool] | int  # a field (offset, size, signed), or a number


def is_possible(context: Context) -> bool:
    """False only where the conditions contradict each other."""
    if any((condition, not value) in context for condition, value in context):
        return False
    for condition, value in context:
        if not value or condition.less:
            continue
        for other, wanted in context:
            same = (other.offset, other.size) == (condition.offset, condition.size)
            if same and other.holds(_read_as(condition, other.is_signed)) != wanted:
                return False
    return True


def _read_as(equal: Condition, is_signed: bool) -> int:
    """The number that a field is equal to, where the field is read with or without sign."""
    bits = 8 * equal.size
    return equal.number - (1 << bits) if is_signed and equal.number >> (bits - 1) else equal.number


class Conditions:
    """The conditions that predicates stand for, and those under which blocks are reached."""

    def __init__(self, program: Program, writes: Writes, base: int, size: int) -> None:
        """`base`, `size`: of the parameter block in constant bank 0, in bytes."""
        self._program = program
        self._writes = writes
        self._base, self._size = base, size
        self._known: dict[Node, tuple[Node | Condition, bool]] = {}
        self._exits_of: dict[int, list[tuple[int, Context]]] = {}
        self._edges: dict[tuple[int, int], Context] = {}
        self._at_start: dict[int, Context] | None = None

    def of(self, node: Node) -> tuple[Node | Condition, bool]:
        """What a predicate stands for, and whether the predicate is its opposite: a condition,
        or the predicate that it is a copy of."""
        found = self._known.get(node)
        if found is None:
            found = self._find(node)
            self._known[node] = found
        return found

    def guard(self, index: int, operand: Operand | None, value: bool = True) -> Context:
        """What is known of the launch where a predicate operand has a value."""
        if operand is None or operand.variable is None:
            return NOWHERE  # always so
        what, opposite = self.of(self._writes.before(index, operand.variable))
        if not isinstance(what, Condition):
            return NOWHERE
        return frozenset(((what, (value != operand.negative) != opposite),))

    def at(self, index: int) -> Context | None:
        """What is known of the launch where an instruction is reached; None: it never is."""
        block = self._program.block_of[index]
        known = self._starts().get(block)
        if known is None:
            return None
        for place, passed in self._exits(block):
            if place < index:
                known |= passed
        return known

    def on_way(self, source: int, goal: int) -> Context | None:
        """What is known of the launch where one block is reached from another; None: it never
        is."""
        known = self._starts().get(source)
        if known is None:
            return None
        known |= self._edge(source, goal)
        return known if is_possible(known) else None

    def _edge(self, source: int, goal: int) -> Context:
        """What the way from the start of one block to another adds to what is known."""
        found = self._edges.get((source, goal))
        if found is None:
            block = self._program.blocks[source]
            found = NOWHERE.union(*(passed for _, passed in self._exits(source)))
            if len(block.successors) == 2 and block.successors.count(goal) == 1:
                found |= self._taken(block.end - 1, block.successors[1] == goal)
            self._edges[source, goal] = found
        return found

    def _exits(self, block: int) -> list[tuple[int, Context]]:
        """The conditional exits of a block, and what is known past each."""
        found = self._exits_of.get(block)
        if found is None:
            found = []
            for index in range(self._program.blocks[block].begin, self._program.blocks[block].end):
                ins = self._program.code[index]
                if ins.guard is not None and OPCODES[ins.base].flow == "end" and not ins.operands:
                    found.append((index, self.guard(index, ins.guard, False)))
            self._exits_of[block] = found
        return found

    def _taken(self, index: int, taken: bool) -> Context:
        """What is known past a conditional jump: the way on comes first among its ways."""
        ins = self._program.code[index]
        predicates = [o for o in ins.operands if o.kind == "predicate" and o.variable is not None]
        if ins.base == "CALL" and not predicates:
            return self.guard(index, ins.guard, taken)
        if ins.base != "BRA" or ins.modifiers not in ((), ("U",)):
            return NOWHERE
        if len(ins.operands) != 1 + len(predicates) or len(predicates) > 1:
            return NOWHERE
        if predicates and ins.guard is not None:
            return NOWHERE
        return self.guard(index, predicates[0] if predicates else ins.guard, taken)

    def _starts(self) -> dict[int, Context]:
        """By block, what is known on every way that leads to it; blocks that are never reached
        are missing."""
        if self._at_start is not None:
            return self._at_start
        starts: dict[int, Context] = {0: NOWHERE}
        changed = True
        while changed:
            changed = False
            for block in self._program.order:
                if block not in starts:
                    continue
                for goal in self._program.blocks[block].successors:
                    known = starts[block] | self._edge(block, goal)
                    if not is_possible(known):
                        continue
                    old = starts.get(goal)
                    new = known if old is None else old & known
                    if new != old:
                        starts[goal] = new
                        changed = True
        self._at_start = starts
        return starts

    def _find(self, node: Node) -> tuple[Node | Condition, bool]:
        if node[0] != "d":
            return node, False
        _, index, variable = node
        ins = self._program.code[index]
        if ins.guard is not None or self._writes.may_stay(index, variable):
            return node, False
        if ins.base in ("ISETP", "UISETP"):
            found = self._comparison(index, ins, variable)
            return found if found is not None else (node, False)
        if ins.base in ("PLOP3", "UPLOP3"):
            copied = _copied(ins, variable)
            if copied is not None and copied.variable is not None:
                return self.of(self._writes.before(index, copied.variable))
        return node, False

    def _comparison(
        self, index: int, ins: Instruction, variable: int
    ) -> tuple[Condition, bool] | None:
        """ISETP.NE.AND P0,PT,R0,0x3,PT and its kin."""
        if not ins.modifiers or len(ins.operands) not in (5, 6):
            return None
        kind, rest = ins.modifiers[0], ins.modifiers[1:]
        first, second, a, b, also = ins.operands[:5]
        if first.variable != variable or second.variable is not None or a.negative or b.negative:
            return None
        if also.kind != "predicate" or also.variable is not None or also.negative:
            return None
        if rest == ("AND", "EX") and len(ins.operands) == 6:
            return self._wide(index, kind, (a, b), ins.operands[5])
        if rest not in (("AND",), ("U32", "AND")) or len(ins.operands) != 5:
            return None
        return _compare(kind, "U32" in rest, self._value(index, a), self._value(index, b))

    def _wide(
        self, index: int, kind: str, high: tuple[Operand, Operand], low: Operand
    ) -> tuple[Condition, bool] | None:
        """The second half of a comparison of 64 bits, for being equal."""
        if kind not in ("EQ", "NE") or low.variable is None or low.negative:
            return None
        field, number = self._value(index, high[0]), self._value(index, high[1])
        if isinstance(field, int):
            field, number = number, field
        what, opposite = self.of(self._writes.before(index, low.variable))
        if not isinstance(what, Condition) or what.less or what.size != 4 or what.is_signed:
            return None
        if isinstance(field, int) or not isinstance(number, int) or opposite != (kind == "NE"):
            return None
        if field != (what.offset + 4, 4, False) or number >> 31:
            return None
        return Condition(what.offset, 8, False, False, what.number | number << 32), opposite

    def _value(self, index: int, operand: Operand) -> _Value | None:
        """The field or the number that an operand holds."""
        for _ in range(MAX_STEPS):
            if operand.kind == "number":
                return operand.value & _MASK
            if operand.kind == "constant":
                return self._field(operand, 0, (4, False))
            if operand.kind != "register" or operand.negative:
                return None
            if operand.variable is None:
                return 0
            node = self._writes.before(index, operand.variable)
            if node[0] != "d":
                return None
            _, index, variable = node
            ins = self._program.code[index]
            if ins.guard is not None or self._writes.may_stay(index, variable):
                return None
            word = self._writes.word_of(index, variable)
            if word == 0 and (number := constant_of(ins)) is not None:
                return number & _MASK
            if OPCODES[ins.base].value == "bank":
                return self._loaded(ins, word)
            moved = _moved(ins) if word == 0 else None
            if moved is None:
                return None
            operand = moved
        return None

    def _loaded(self, ins: Instruction, word: int) -> _Value | None:
        if len(ins.operands) != 2 or ins.operands[1].kind != "constant":
            return None
        if len(ins.modifiers) > 1:
            return None
        shape = _SIZES.get(ins.modifiers[0]) if ins.modifiers else (4, False)
        if shape is None:
            shape = (4, False) if ins.modifiers[0] in ("64", "128") else None
        return None if shape is None else self._field(ins.operands[1], word, shape)

    def _field(self, operand: Operand, word: int, shape: tuple[int, bool]) -> _Value | None:
        offset = operand.value + 4 * word - self._base
        if operand.bank != 0 or operand.base or operand.negative:
            return None
        if offset < 0 or offset + shape[0] > self._size:
            return None
        return offset, *shape


def _copied(ins: Instruction, variable: int) -> Operand | None:
    """The predicate that PLOP3.LUT P0,PT,PT,PT,UP1,0x80,0x0 copies: all three together."""
    if len(ins.operands) != 7 or ins.operands[0].variable != variable:
        return None
    numbers = ins.operands[5:]
    if [o.kind for o in numbers] != ["number", "number"] or numbers[0].value != 0x80:
        return None
    sources = ins.operands[2:5]
    if ins.operands[1].variable is not None or any(o.kind != "predicate" for o in sources):
        return None
    if any(o.negative for o in sources):
        return None
    used = [o for o in sources if o.variable is not None]
    return used[0] if len(used) == 1 else None


def _moved(ins: Instruction) -> Operand | None:
    """The operand that an instruction copies."""
    if ins.base in ("MOV", "UMOV", "R2UR") and len(ins.operands) == 2:
        return ins.operands[1]
    if ins.base == "IMAD" and ins.modifiers in (("MOV", "U32"), ("U32",)):
        zeros = [o.kind == "register" and o.variable is None for o in ins.operands[1:3]]
        if len(ins.operands) == 4 and all(zeros):
            return ins.operands[3]
    return None


def _compare(
    kind: str, unsigned: bool, a: _Value | None, b: _Value | None
) -> tuple[Condition, bool] | None:
    """A comparison of a field and a number, in either order, as "equal" or "less"."""
    if a is None or b is None or isinstance(a, int) == isinstance(b, int):
        return None
    if isinstance(a, int):
        a, b = b, a
        kind = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(kind, kind)
    assert not isinstance(a, int) and isinstance(b, int)
    offset, size, signed = a
    if kind in ("EQ", "NE"):
        if signed or b >> (8 * size):
            return None
        return Condition(offset, size, False, False, b), kind == "NE"
    # A whole word is what the comparison takes it for; a shorter one was extended.
    if size < 4 and signed and unsigned:
        return None
    is_signed = signed if size < 4 else not unsigned
    number = b - (1 << 32) if b >> 31 and not unsigned else b
    if kind in ("LE", "GT"):
        number += 1
    if kind in ("LT", "GE", "LE", "GT"):
        return Condition(offset, size, is_signed, True, number), kind in ("GE", "GT")
    return None


def fewest(contexts: Iterable[Context], most: int) -> set[Context]:
    """At most so many contexts, one of which holds wherever one of those given does."""
    found = set(contexts)
    found = {one for one in found if not any(other < one for other in found)}
    return found if len(found) <= most else {frozenset.intersection(*found)}
