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

import bisect
from typing import Any

from tessera.sass.elf import Cubin, KernelInfo
from tessera.sass.opcodes import (
    OPCODES,
    PARAMETER_BLOCK_ADDRESS,
    SYNC_SHARED,
    WINDOW_WORDS,
    WINDOWS,
    words_of,
)
from tessera.sass.program import Program, TooHardError, constant_of
from tessera.sass.stack import Stack
from tessera.sass.syntax import PREDICATE, STACK, STACK_POINTER, UNIFORM, Instruction, Operand

Atom = tuple[Any, ...]
Terms = frozenset[tuple[Atom, str]]
Node = tuple[Any, ...]
NUMBER: Terms = frozenset()
_CONSTANT: Terms = frozenset(((("k",), "+"),))
_IDENTIFIERS = frozenset("S2R S2UR CS2R CS2UR".split())
MAX_MEETINGS = 5000  # blocks looked at for one
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
        self._writes: list[dict[int, list[int]]] = [{} for _ in program.blocks]
        self._result: dict[tuple[int, int], int] = {}  # (instruction, variable) -> word
        self._may: set[tuple[int, int]] = set()
        self._terms: dict[Node, Terms] = {}
        self._at_end: dict[tuple[int, int], Node] = {}
        self.memory: dict[str, list[int]] = {"s": [], "l": [], "sync": []}
        self._meetings: dict[Node, Node] = {}
        self._foreign: dict[str, bool] | None = None
        self.sides_of: dict[Atom, list[Terms]] = {}
        for index in range(len(program.code)):
            self._note(index)

    # What each instruction writes.

    def _note(self, index: int) -> None:
        ins = self.program.code[index]
        row = OPCODES[ins.base]
        if ins.is_never_done:
            return
        if ins.has("256"):
            raise TooHardError(f"{ins.text} has two results")
        if row.memory in ("ws", "rs") and ins.base in ("STS", "STSM", "ATOMS"):
            self.memory["s"].append(index)
        if row.memory == "wl":
            self.memory["l"].append(index)
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
        for slot, word in self.stack.slots_written(index):
            self._write(index, STACK + slot, word)
            if self.stack.is_partial(index):
                self._may.add((index, STACK + slot))

    def _write(self, index: int, variable: int | None, word: int) -> None:
        if variable is None:
            return
        places = self._writes[self.program.block_of[index]].setdefault(variable, [])
        if not places or places[-1] != index:
            places.append(index)
        self._result[index, variable] = word

    # Which write a read sees.

    def before(self, index: int, variable: int) -> Node:
        """What a variable holds before an instruction."""
        block = self.program.block_of[index]
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
            predecessors = self.program.blocks[block].predecessors
            if block == 0 and not predecessors:
                known = ("e", variable)
                break
            if len(predecessors) != 1 or block == 0:
                known = self._only(("f", block, variable))
                break
            block = predecessors[0]
            places = self._writes[block].get(variable)
            if places:
                known = ("d", places[-1], variable)
                break
        for passed in visited:
            self._at_end[passed, variable] = known
        return known

    def _only(self, meeting: Node) -> Node:
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
            ways = self.program.blocks[block].predecessors
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

    def _from(self, block: int, variable: int) -> Node:
        """What a variable holds at the end of a block."""
        places = self._writes[block].get(variable)
        return ("d", places[-1], variable) if places else self._at_start(block, variable)

    def arguments(self, meeting: Node) -> list[Node]:
        """What a variable holds on each way to where ways meet."""
        _, block, variable = meeting
        ways = self.program.blocks[block].predecessors
        entry: list[Node] = [("e", variable)] if block == 0 else []
        return [self._from(way, variable) for way in ways] + entry

    def word_of(self, index: int, variable: int) -> int:
        """Which word of its result an instruction writes into a variable."""
        return self._result[index, variable]

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
        word = self._result[index, variable]
        new = self._written(index, ins, variable, word)
        if (index, variable) in self._may:
            old = self.terms(self.before(index, variable))
            return self.choice(("c", index, ("may", index), variable), [new, old])
        if ins.guard is None or ins.guard.variable is None:
            return new
        old = self.terms(self.before(index, variable))
        if old == new:
            return new
        sides = [old, new] if ins.guard.negative else [new, old]
        return self.choice(self._by(index, ins.guard.variable, variable), sides)

    def _by(self, index: int, predicate: int, tag: Any) -> Atom:
        """A choice by a predicate: its key is the predicate's own value."""
        return ("c", index, self.before(index, predicate), tag)

    def choice(self, atom: Atom, sides: list[Terms]) -> Terms:
        if all(side == sides[0] for side in sides):
            return sides[0]
        self.sides_of[atom] = sides
        return one(*atom)

    def sides(self, atom: Atom) -> list[Terms]:
        """What a choice may be, one for each way."""
        found = self.sides_of.get(atom)
        if found is None:
            _, block, variable = atom
            ways = self.program.blocks[block].predecessors
            found = [self.terms(self._from(way, variable)) for way in ways]
            if block == 0:
                found.append(one("e"))
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
            return _CONSTANT
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
        if offset in PARAMETER_BLOCK_ADDRESS:
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
        sides = [b, a] if predicate.negative else [a, b]
        return self.choice(self._by(index, predicate.variable, ("select", word)), sides)

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
        for store in self.memory[space]:
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
        key = ("c", self.before(index, ins.guard.variable))
        return self.decide(terms, key, int(ins.guard.negative))

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
    return register, predicates


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
