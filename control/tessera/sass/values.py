# SPDX-License-Identifier: Apache-2.0
"""Where the words in registers come from.

A value is a set of terms: the words that are added up in it, with numbers left out. A term is
(atom, sign): "+", "-", or "s" for what was multiplied or shifted. Atoms:

  ("p", offset)        word of the parameter block        ("P", i, k)  word k of one that is
  ("l", i, k)          word k loaded by instruction i                  indexed at run time
  ("g", name)          address of a module variable       ("w",)       shared or local window
  ("d", offset)        word that the driver put before the parameters
  ("k",)               constant that an address may be made of
  ("b",)               address of constant bank 0         ("u", reason)  anything
  ("e",)               never written
  ("f", block, v)      what v holds where ways meet       ("c", ...)   one of several

The last two are choices: `sides` gives what they may be, in an order that all choices with
the same key share, so that both halves of an address can be followed on the same way.
"""

from __future__ import annotations

from typing import Any

from tessera.sass.conditions import Condition, Conditions
from tessera.sass.elf import Cubin, KernelInfo
from tessera.sass.opcodes import (
    OPCODES,
    SYNC_SHARED,
    WINDOW_WORDS,
    WINDOWS,
    before_parameters,
    words_of,
)
from tessera.sass.program import Program, constant_of
from tessera.sass.stack import Stack
from tessera.sass.syntax import STACK, STACK_POINTER, UNIFORM, Instruction, Operand
from tessera.sass.writes import Node, Writes

Atom = tuple[Any, ...]
Terms = frozenset[tuple[Atom, str]]
NUMBER: Terms = frozenset()
_CONSTANT: Terms = frozenset(((("k",), "+"),))
_IDENTIFIERS = frozenset("S2R S2UR CS2R CS2UR".split())
_FLIP = {"+": "-", "-": "+", "s": "s"}


def one(*atom: Any) -> Terms:
    return frozenset(((tuple(atom), "+"),))


def negated(terms: Terms) -> Terms:
    return frozenset((atom, _FLIP[sign]) for atom, sign in terms)


def scaled(terms: Terms) -> Terms:
    return frozenset((atom, "s") for atom, _ in terms)


def signed(terms: Terms, sign: str) -> Terms:
    return terms if sign == "+" else negated(terms) if sign == "-" else scaled(terms)


class Values:
    """Follows the registers of one program backwards, as far as asked for."""

    def __init__(self, program: Program, kernel: KernelInfo, cubin: Cubin) -> None:
        self.program = program
        self.kernel = kernel
        self.cubin = cubin
        self.stack = Stack(program)
        self._windows = WINDOW_WORDS["new" if kernel.parameter_base >= 0x300 else "old"]
        self._writes = Writes(program, self.stack)
        self.conditions = Conditions(
            program, self._writes, kernel.parameter_base, kernel.parameter_size
        )
        self._terms: dict[Node, Terms] = {}
        self._foreign: dict[str, bool] | None = None
        self.sides_of: dict[Atom, list[Terms]] = {}

    # Which write a read sees.

    def before(self, index: int, variable: int) -> Node:
        """What a variable holds before an instruction."""
        return self._writes.before(index, variable)

    def arguments(self, meeting: Node) -> list[Node]:
        """What a variable holds on each way to where ways meet."""
        return self._writes.arguments(meeting)

    def may_stay(self, index: int, variable: int) -> bool:
        """Whether a write may leave what the variable held."""
        return self._writes.may_stay(index, variable)

    def word_of(self, index: int, variable: int) -> int:
        """Which word of its result an instruction writes into a variable."""
        return self._writes.word_of(index, variable)

    def terms(self, node: Node) -> Terms:
        found = self._terms.get(node)
        if found is None:
            found = self._find(node)
            self._terms[node] = found
        return found

    def _find(self, node: Node) -> Terms:
        if node[0] == "e":
            return one("e")
        if node[0] == "f":
            return one(*node)
        _, index, variable = node
        ins = self.program.code[index]
        word = self.word_of(index, variable)
        new = self._written(index, ins, variable, word)
        if self._writes.may_stay(index, variable):
            old = self.terms(self.before(index, variable))
            return self.choice(("c", index, ("may", index), variable), [new, old])
        if ins.guard is None or ins.guard.variable is None:
            return new
        old = self.terms(self.before(index, variable))
        if old == new:
            return new
        return self._by(index, ins.guard, variable, [new, old])

    def _by(self, index: int, predicate: Operand, tag: Any, sides: list[Terms]) -> Terms:
        """A choice by a predicate: what it is where the predicate holds, and where not."""
        (_, what), way = self.decision(index, predicate)
        return self.choice(("c", index, what, tag), sides[::-1] if way else sides)

    def decision(self, index: int, predicate: Operand) -> tuple[Any, int]:
        """The key of the choices that a predicate makes, and the way they go where it holds.
        The key is what the predicate stands for, so that copies of it choose together."""
        assert predicate.variable is not None
        what, opposite = self.conditions.of(self.before(index, predicate.variable))
        tagged = ("when", what) if isinstance(what, Condition) else what
        return ("c", tagged), int(predicate.negative != opposite)

    def choice(self, atom: Atom, sides: list[Terms]) -> Terms:
        if all(side == sides[0] for side in sides):
            return sides[0]
        self.sides_of[atom] = sides
        return one(*atom)

    def sides(self, atom: Atom) -> list[Terms]:
        """What a choice may be, one for each way."""
        found = self.sides_of.get(atom)
        if found is None:
            found = [self.terms(node) for node in self.arguments(atom)]
            self.sides_of[atom] = found
        return found

    def key(self, atom: Atom) -> Any:
        """Choices with the same key are made together."""
        return ("f", atom[1]) if atom[0] == "f" else ("c", atom[2])

    def position(self, atom: Atom) -> tuple[int, int]:
        """Where a choice is made, in the order of the flow."""
        if atom[0] == "f":
            return self.program.blocks[atom[1]].rank, -1
        return self.program.blocks[self.program.block_of[atom[1]]].rank, atom[1]

    # What one instruction gives.

    def _written(self, index: int, ins: Instruction, variable: int, word: int) -> Terms:
        if word < 0:
            return NUMBER
        if variable >= STACK:
            return self._word(index, ins.operands[-1], word)
        if (relocated := self._relocated(index)) is not None:
            return one("g", relocated)
        kind = OPCODES[ins.base].value
        return _TRANSFER[kind](self, index, ins, word)

    def _relocated(self, index: int) -> str | None:
        section = f".text.{self.program.sections[index]}"
        table = self.cubin.relocations.get(section)
        if not table:
            return None
        address = self.program.code[index].address
        return next((table[a] for a in range(address, address + 16) if a in table), None)

    def sources(self, ins: Instruction) -> list[Operand]:
        """The operands that are no result: after the first register and its predicates."""
        rest: list[Operand] = []
        seen = False
        for operand in ins.operands:
            if not seen:
                seen = operand.kind == "register"
            elif not (operand.kind == "predicate" and not rest):
                rest.append(operand)
        return rest

    def _word(self, index: int, operand: Operand, word: int = 0) -> Terms:
        """Word `word` of an operand: of a pair of registers or of 64 bits of a constant bank."""
        if operand.kind == "register":
            if operand.variable is None:
                return NUMBER
            found = self.terms(self.before(index, operand.variable + word))
        elif operand.kind == "constant":
            found = self._bank(index, operand, word)
        elif operand.kind == "number" and not -256 <= operand.value < 256:
            is_extension = word == 1 and abs(operand.value) < 1 << 32
            return NUMBER if is_extension else _CONSTANT
        else:
            return NUMBER
        return negated(found) if operand.negative else found

    def _bank(self, index: int, operand: Operand, word: int) -> Terms:
        base, size = self.kernel.parameter_base, self.kernel.parameter_size
        if operand.bank == 0 and operand.base:
            return one("P", index, word)
        offset = operand.value + 4 * word
        if operand.bank == 0:
            if base <= offset < base + size:
                return one("p", offset - base)
            return self._driver_word(offset)
        if operand.bank == 4 and not operand.base:
            table = self.cubin.relocations.get(".nv.constant4", {})
            name = table.get(offset & ~7)
            return one("g", name) if name else one("u", "a word of bank 4")
        if operand.bank == 4:
            return self._indexed_symbol(index, operand)
        if operand.bank == 2:
            return NUMBER  # tables of the compiler
        return one("l", index, word)

    def _indexed_symbol(self, index: int, operand: Operand) -> Terms:
        """c[0x4][R0]: R0 is mostly a number that stands a few instructions before."""
        register = operand.base[0].variable
        node = self.before(index, register) if register is not None else None
        if node and node[0] == "d":
            number = constant_of(self.program.code[node[1]])
            if number is not None:
                table = self.cubin.relocations.get(".nv.constant4", {})
                if name := table.get((number + operand.value) & ~7):
                    return one("g", name)
        return one("u", "a word of bank 4 that is not known")

    def _driver_word(self, offset: int) -> Terms:
        if offset in self._windows:
            return one("w")
        if before_parameters(offset & ~7, self.kernel.parameter_base) is not None:
            return one("b")
        return one("d", offset)

    def _number(self, index: int, ins: Instruction, word: int) -> Terms:
        if any(o.kind == "other" and WINDOWS.search(o.text) for o in ins.operands):
            return one("w")
        if ins.base in _IDENTIFIERS:
            return NUMBER
        if ins.base.endswith("HFMA2") and ins.operands[-1].kind != "register":
            return _CONSTANT
        return scaled(_CONSTANT)

    def _move(self, index: int, ins: Instruction, word: int) -> Terms:
        sources = self.sources(ins)
        return self._word(index, sources[0], word) if sources else NUMBER

    def _sum(self, index: int, ins: Instruction, word: int) -> Terms:
        out: set[tuple[Atom, str]] = set()
        for operand in self.sources(ins):
            out |= self._word(index, operand, word if ins.has("64") else 0)
        return frozenset(out)

    def _bits(self, index: int, ins: Instruction, word: int) -> Terms:
        """Masks leave an address what it is; what mixes an address with loaded bits may be
        either."""
        parts = [self._word(index, o) for o in self.sources(ins) if o.kind != "number"]
        parts = [p for p in parts if p]
        whole = frozenset().union(*parts)
        if len(parts) > 1 and any(_is_loose(p) for p in parts):
            return self.choice(("c", index, ("bits", index), 0), [*parts, whole])
        return whole

    def _product(self, index: int, ins: Instruction, word: int) -> Terms:
        sources = [o for o in self.sources(ins) if o.kind != "predicate"]
        if len(sources) < 2:
            return NUMBER
        a, b = sources[0], sources[1]
        wide = ins.has("WIDE")
        out = set(self._word(index, sources[2], word if wide else 0)) if len(sources) > 2 else set()
        for x, y in ((a, b), (b, a)):
            if x.kind == "register" and x.variable is None:
                return frozenset(out)
            if x.kind == "number" and x.value in (1, -1, 0xFFFFFFFF) and not ins.has("HI"):
                terms = self._word(index, y)
                plain = scaled(terms) if word else terms
                return frozenset(out) | (plain if x.value == 1 else negated(plain))
        out |= scaled(self._word(index, a) | self._word(index, b))
        return frozenset(out)

    def _lea(self, index: int, ins: Instruction, word: int) -> Terms:
        sources = [o for o in self.sources(ins) if o.kind != "predicate"]
        shift = next((o.value for o in reversed(sources) if o.kind == "number"), 0)
        if len(sources) < 2:
            return one("u", ins.text)
        out = set(self._word(index, sources[1]))
        parts = [self._word(index, sources[0])]
        if len(sources) > 3:
            parts.append(self._word(index, sources[2]))
        for part in parts:
            out |= part if shift == 0 else scaled(part)
        return frozenset(out)

    def _shift(self, index: int, ins: Instruction, word: int) -> Terms:
        out: set[tuple[Atom, str]] = set()
        for operand in self.sources(ins):
            out |= scaled(self._word(index, operand))
        return frozenset(out)

    def _select(self, index: int, ins: Instruction, word: int) -> Terms:
        sources = self.sources(ins)
        if len(sources) < 3:
            return one("u", ins.text)
        half = word if ins.has("64") else 0
        a, b = self._word(index, sources[0], half), self._word(index, sources[1], half)
        predicate = sources[-1]
        if predicate.kind != "predicate":
            return self.choice(("c", index, ("select", index), word), [a, b])
        if predicate.variable is None:
            return b if predicate.negative else a
        return self._by(index, predicate, ("select", word), [a, b])

    def _extreme(self, index: int, ins: Instruction, word: int) -> Terms:
        half = word if ins.has("S64", "U64") else 0
        sources = [o for o in self.sources(ins) if o.kind != "predicate"]
        parts = [self._word(index, o, half) for o in sources]
        if ins.base.endswith("ADDMNMX") and len(parts) == 3:
            parts = [parts[0] | parts[1], parts[2]]
        return self.choice(("c", index, ("extreme", index), word), parts) if parts else NUMBER

    def _load(self, index: int, ins: Instruction, word: int) -> Terms:
        space = OPCODES[ins.base].memory[-1]
        if space == "l":
            return self._from_stack(index, word)
        if space == "s" and ins.base == "LDS":
            return self._from_stores(index, word, "s")
        return one("l", index, word)

    def _bank_load(self, index: int, ins: Instruction, word: int) -> Terms:
        sources = self.sources(ins)
        if len(sources) != 1 or sources[0].kind != "constant":
            return one("u", ins.text)
        found = self._bank(index, sources[0], word)
        if ins.has("U8", "S8", "U16", "S16"):
            return scaled(found)
        return found

    def _from_stack(self, index: int, word: int) -> Terms:
        slot = self.stack.slot_read(index, word)
        if slot is None:
            return self._from_stores(index, word, "l")
        return self.terms(self.before(index, STACK + slot))

    def _from_stores(self, index: int, word: int, space: str) -> Terms:
        """What any store of the kernel may have put there."""
        pair, half = divmod(word, 2)
        sides: list[Terms] = []
        for store in self._writes.stores[space]:
            ins = self.program.code[store]
            value = ins.operands[-1]
            count = words_of(ins)[0]
            if ins.base in ("STSM", "ATOMS") or value.kind != "register":
                continue
            for first in range(0, count, 2):
                if count == 1 or ins.has("U8", "U16", "S8", "S16"):
                    terms = self._stored(store, ins, value, 0)
                    half_of_it = one("u", f"half of an address: {ins.text}")
                    sides.append(terms if _is_tame(terms) else half_of_it)
                else:
                    sides.append(self._stored(store, ins, value, first + half))
        if self._may_hold_loaded(space):
            sides.append(one("l", index, word))
        return self.choice(("c", index, ("memory", index, pair), word), sides) if sides else NUMBER

    def _stored(self, index: int, ins: Instruction, value: Operand, word: int) -> Terms:
        """A word that a store writes, where its predicate lets it."""
        terms = self._word(index, value, word)
        if ins.guard is None or ins.guard.variable is None:
            return terms
        return self.decide(terms, *self.decision(index, ins.guard))

    def decide(self, terms: Terms, key: Any, way: int) -> Terms:
        """Terms where the choices of one key went one way. What a way by a predicate gives may
        depend on the same predicate; where ways meet, the next round is another choice."""
        for _ in range(64):
            same = [(a, s) for a, s in terms if a[0] in "fc" and self.key(a) == key]
            if not same:
                break
            new = set(terms) - set(same)
            for atom, sign in same:
                new |= signed(self.sides(atom)[way], sign)
            terms = frozenset(new)
            if key[0] == "f":
                break
        return terms

    def _may_hold_loaded(self, space: str) -> bool:
        """Whether anything but the stores looked at can have written there."""
        if self._foreign is None:
            bases = {ins.base for ins in self.program.code}
            self._foreign = {
                "s": not bases.isdisjoint(SYNC_SHARED | {"ST"}), "l": "ST" in bases
            }  # fmt: skip
        return self._foreign[space]


def _is_loose(terms: Terms) -> bool:
    """Whether there is anything but parameters in it."""
    return any(atom[0] in "luPgdfc" and sign != "s" for atom, sign in terms) and any(
        sign != "s" for _, sign in terms
    )


def _is_tame(terms: Terms) -> bool:
    return all(atom[0] in "lk" or sign == "s" for atom, sign in terms)


_TRANSFER = {
    "number": Values._number, "move": Values._move, "sum": Values._sum, "bits": Values._bits,
    "product": Values._product, "lea": Values._lea, "shift": Values._shift,
    "select": Values._select, "extreme": Values._extreme, "load": Values._load,
    "bank": Values._bank_load,
}  # fmt: skip
assert UNIFORM > STACK_POINTER
