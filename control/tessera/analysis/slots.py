# SPDX-License-Identifier: Apache-2.0
"""Loads: kernel parameters, memory slots of known address, and everything else.

A slot is a piece of a local variable, or of a `.param` variable of a call, that is stored and
loaded with the same exact address and width: it is followed like a register. A local variable
that is also stored to at an address that is not exact has no slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tessera.analysis.escapes import Carried, Escapes
from tessera.analysis.launch import type_bound
from tessera.analysis.opcodes import INTEGER_BITS, SIGNED, STORAGE_BITS, space_of
from tessera.analysis.polynomial import Poly, of_atom
from tessera.analysis.program import Symbol
from tessera.analysis.values import Value
from tessera.native.ptx import Instruction, Operand, OperandKind, Space

if TYPE_CHECKING:
    from tessera.analysis.registers import Registers

MAX_WORDS = 16
WORD = 8  # bytes of a pointer
MAX_PARAMETER_WORDS = 128
MAX_OFFSET = 1 << 40  # bytes: no local variable is as large


def place_of(poly: Poly) -> tuple[Symbol | None, Poly]:
    """The variable that an address lies in, and the offset in it."""
    symbol: Symbol | None = None
    rest = {}
    for monomial, coefficient in poly.terms.items():
        if len(monomial) == 1 and coefficient == 1 and monomial[0].kind == "symbol":
            if symbol is not None:
                return None, poly
            symbol = monomial[0].args[0]
        elif not (len(monomial) == 1 and monomial[0].kind == "window"):
            rest[monomial] = coefficient
    return symbol, Poly(rest)


def elements(operand: Operand) -> tuple[Operand, ...]:
    """The values that a load or store moves, one by one."""
    return operand.elements if operand.kind is OperandKind.VECTOR else (operand,)


class Kind(NamedTuple):
    """What a load reads a word as."""

    size: int  # bytes
    signed: bool


class Word(NamedTuple):
    """A word that the instruction at `store` stores as its `slot`-th value (loads, if it is a
    parameter), and where in the variable, if that is known. Its value is looked at when somebody
    asks: it may depend on the load that meets it."""

    store: int
    slot: int
    at: int | None
    parameter: Poly | None = None

    def value(self, r: Registers, kind: Kind) -> Value:
        """The word as a load of some kind reads it."""
        if self.parameter is not None:
            return Value(self.parameter)
        found = stored(r, self.store, r.program.code[self.store], self.slot)
        assert found is not None  # no array of words has any that are not known
        if kind.size == WORD:
            return found
        return r.domain.interpret(found, 8 * kind.size, kind.signed)


class Slots:
    """The slots of one program."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self._stage = "new"
        self._sizes: dict[Symbol, dict[int, int]] = {}  # offset -> size of what is stored there
        self._spoilt: set[Symbol] = set()
        self._open: set[Symbol] = set()
        # What is stored, by its size: (index, slot, offset; None: not known)
        self._words: dict[Symbol, dict[int, list[tuple[int, int, int | None]]]] = {}
        self._local_addresses = Escapes(
            registers.program, registers.reaching, (Space.LOCAL,), functions=False
        )

    def read(self, index: int, symbol: Symbol, offset: int, size: int) -> Value | None:
        """What a load of a slot gives; None when it is no slot."""
        self._prepare()
        if self._stage != "ready" and symbol.kind != "slot":
            return None  # asked for while the addresses of stores are still being found
        if symbol in self._spoilt or self._sizes.get(symbol, {}).get(offset) != size:
            return None
        definition = self._registers.reaching.before((symbol, offset, size), index)
        return self._registers.value(definition)

    def words(self, symbol: Symbol, lo: int, hi: int, size: int) -> list[Word] | None:
        """All words of a size that are ever stored in a local variable where a load at an offset
        from `lo` to `hi` meets them; None when they are too many, or not all known."""
        self._prepare()
        if self._stage != "ready" or symbol in self._open:
            return None
        found: list[Word] = []
        for width, stores in self._words.get(symbol, {}).items():
            for index, slot, offset in stores:
                if offset is not None and not (lo - width < offset < hi + size):
                    continue
                instruction = self._registers.program.code[index]
                if width != size or not is_followed(instruction, slot):
                    return None  # a word could be put together from pieces
                found.append(Word(index, slot, offset))
        return found if 0 < len(found) <= MAX_WORDS else None

    def _prepare(self) -> None:
        if self._stage != "new":
            return
        program = self._registers.program
        self._stage = "calls"
        stores = [(i, ins) for i, ins in enumerate(program.code) if ins.opcode == "st"]
        stores = [(i, ins) for i, ins in stores if self._registers.reaching.node_of[i] >= 0]
        for index, ins in stores:
            if space_of(ins) == "param":
                self._note(index, ins)
        self._stage = "locals"
        for escape in self._local_addresses.run():
            self._spoil(escape.carried)
        for index, ins in stores:
            if space_of(ins) in ("local", ""):
                self._note(index, ins)
        self._stage = "ready"

    def _spoil(self, carried: Carried) -> None:
        """Anything may be stored in these variables at any time."""
        variables = {s for s in carried if isinstance(s, Symbol)}
        self._spoilt |= variables
        self._open |= variables

    def _note(self, index: int, ins: Instruction) -> None:
        symbol, rest = place_of(self._registers.address(index, ins.operands[0]).poly)
        if symbol is None:
            self._spoil(self._local_addresses.through(index, ins.operands[0]))
            return
        if symbol.space not in (Space.LOCAL, Space.PARAM):
            return
        offset = rest.constant
        size = STORAGE_BITS.get(ins.type, 0) // 8
        count = len(elements(ins.operands[1]))
        if size == 0:
            self._open.add(symbol)
        else:
            self._words.setdefault(symbol, {}).setdefault(size, []).extend(
                (index, i, None if offset is None else offset + size * i) for i in range(count)
            )
        if offset is None or size == 0:
            self._spoilt.add(symbol)
            return
        for slot in range(count):
            self._note_one(symbol, offset + slot * size, size, index, slot)

    def _note_one(self, symbol: Symbol, offset: int, size: int, index: int, slot: int) -> None:
        known = self._sizes.setdefault(symbol, {})
        overlaps = any(o < offset + size and offset < o + s for o, s in known.items())
        if overlaps and known.get(offset) != size:
            self._spoilt.add(symbol)
        known[offset] = size
        self._registers.reaching.add_site((symbol, offset, size), index, slot)


def stored(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    """The value that a store leaves in a slot."""
    return r.operand(index, elements(ins.operands[1])[slot]) if is_followed(ins, slot) else None


def is_followed(ins: Instruction, slot: int) -> bool:
    """Whether what a store stores is a value that is followed."""
    return elements(ins.operands[1])[slot].kind is not OperandKind.FLOAT


def load(r: Registers, index: int, ins: Instruction, slot: int) -> Value | None:
    size = STORAGE_BITS.get(ins.type, 0) // 8
    address = r.address(index, ins.operands[1])
    symbol, rest = place_of(address.poly)
    offset = rest.constant
    if symbol is not None and offset is not None and size in (1, 2, 4, 8):
        offset += slot * size
        found = None
        if symbol.kind == "parameter":
            found = _parameter(r, index, ins, symbol, offset, size)
        elif symbol.kind == "slot" or symbol.space is Space.LOCAL:
            found = _slot(r, index, ins, symbol, offset, size)
        if found is not None:
            return found.with_obligations(address.obligations)
    if symbol is not None and size in (1, 2, 4, 8):
        place = rest.shift(slot * size)
        words = _words(r, index, symbol, place, size)
        if words is not None:
            kind = Kind(size, ins.type in SIGNED or not _widens(r, index, ins, size))
            return _one_of(r, index, words, Value(place, address.obligations), kind)
    return _from_memory(r, index, ins, slot)


def _words(r: Registers, index: int, symbol: Symbol, offset: Poly, size: int) -> list[Word] | None:
    """What a load of a word at an offset that varies may meet; None when that is not known."""
    lo, hi = offset.bound()
    if symbol.space is Space.LOCAL:
        lo, hi = -MAX_OFFSET if lo is None else lo, MAX_OFFSET if hi is None else hi
        return r.slots.words(symbol, lo, hi, size)
    if symbol.kind != "parameter" or size != WORD:
        return None
    first = offset.terms.get((), 0)
    if lo is None or hi is None or offset.content() % 8 or first % 8:
        return None
    offsets = range(max(lo, first % 8), min(hi, symbol.size - 8) + 1, 8)
    if lo < 0 or len(offsets) > MAX_PARAMETER_WORDS:
        return None
    return [Word(index, 0, o, r.parameter(symbol.offset + o, 8, True)) for o in offsets]


def _one_of(r: Registers, index: int, words: list[Word], offset: Value, kind: Kind) -> Value:
    """A word loaded from an array of words that are all known, at an offset that varies: it is one
    of them, whatever it is used for."""
    node = r.reaching.node_of[index]
    args = (tuple(words), index, offset, kind)
    bound = type_bound(8 * kind.size, kind.signed or kind.size == WORD)
    atom = r.domain.fresh("stored", args, bound, (node,), loaded=True)
    return Value(of_atom(atom), offset.obligations)


def _parameter(
    r: Registers, index: int, ins: Instruction, symbol: Symbol, offset: int, size: int
) -> Value | None:
    if offset < 0 or offset + size > symbol.size:
        return None
    # A register no wider than the parameter is only congruent to it: the signed number will do.
    signed = ins.type in SIGNED or (size >= 4 and not _widens(r, index, ins, size))
    return Value(r.parameter(symbol.offset + offset, size, signed))


def _slot(
    r: Registers, index: int, ins: Instruction, symbol: Symbol, offset: int, size: int
) -> Value | None:
    value = r.slots.read(index, symbol, offset, size)
    if value is None or ins.type not in INTEGER_BITS:
        return value
    if not _widens(r, index, ins, size):
        return value
    return r.domain.interpret(value, 8 * size, ins.type in SIGNED)


def _widens(r: Registers, index: int, ins: Instruction, size: int) -> bool:
    """Whether a load fills a register that is wider than what it loads."""
    target = next((e for e in elements(ins.operands[0]) if e.register >= 0), None)
    if target is None:
        return False
    register = r.program.frames[index].register_base + target.register
    return STORAGE_BITS.get(r.program.register_types[register], 64) > 8 * size


def _from_memory(r: Registers, index: int, ins: Instruction, slot: int) -> Value:
    bits = STORAGE_BITS.get(ins.type, 64)
    signed = ins.type in SIGNED or not _widens(r, index, ins, bits // 8)
    bound = type_bound(min(bits, 64), signed)
    node = r.reaching.node_of[index]
    atom = r.domain.fresh("load", (index, slot), bound, (node,), loaded=True)
    return Value(of_atom(atom))
