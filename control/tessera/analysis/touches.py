# SPDX-License-Identifier: Apache-2.0
"""Pass 8: the instructions that touch memory, each with its address, extent and direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.analysis.model import Mode, Property
from tessera.analysis.opcodes import (
    FLOAT_BITS,
    KNOWN,
    QUERIES,
    STORAGE_BITS,
    TENSOR_MAPS,
    TEXTURES,
    space_of,
)
from tessera.analysis.polynomial import ZERO, Poly, constant
from tessera.analysis.predicates import TRUE, Pred, conjunction
from tessera.analysis.registers import Registers
from tessera.analysis.slots import elements
from tessera.analysis.values import Obligation, Value
from tessera.native.ptx import Instruction, Operand, OperandKind

READ, WRITE = Mode.READ, Mode.WRITE
UPDATE = READ | WRITE


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes [address, address + extent) of one access, by one thread."""

    index: int
    mode: Mode
    space: str  # "global", "const", or "" for a generic address
    address: Poly
    extent: Poly
    obligations: frozenset[Obligation]
    when: Pred | None = None  # beside the instruction's own predicate


@dataclass(frozen=True, slots=True)
class Mark:
    """A property of the kernel, and the instruction that gives it."""

    index: int
    property: Property
    reason: str = ""


Found = Touch | Mark
_TOLD_BY = ((Property.SYSTEM_SCOPE, "sys"), (Property.CLUSTERS, "shared::cluster"))


class Scan:
    """Goes over the instructions of one program."""

    def __init__(self, registers: Registers) -> None:
        self._r = registers

    def run(self) -> Iterator[Found]:
        for index, instruction in enumerate(self._r.program.code):
            if self._r.reaching.node_of[index] < 0:
                continue  # unreachable
            opcode = instruction.opcode
            handler = _HANDLERS.get(opcode)
            if handler is not None:
                yield from handler(self, index, instruction)
            elif opcode in TEXTURES:
                yield Mark(index, Property.TEXTURES)
                if opcode not in QUERIES:
                    yield Mark(index, Property.UNKNOWN, "a texture may lie over any memory")
            elif opcode in TENSOR_MAPS:
                yield Mark(index, Property.TENSOR_MAPS)
            elif opcode not in KNOWN:
                yield Mark(index, Property.UNKNOWN, f"{instruction.full} is not known")
            for operand in instruction.operands:
                if operand.kind is OperandKind.SPECIAL:
                    yield from _special_register(index, operand.text)
            for told, modifier in _TOLD_BY:
                if modifier in instruction.modifiers:
                    yield Mark(index, told)

    def _touch(
        self,
        index: int,
        mode: Mode,
        operand: Operand,
        extent: Value | int,
        space: str | None = None,
        when: Pred | None = None,
    ) -> Iterator[Found]:
        instruction = self._r.program.code[index]
        where = space_of(instruction) if space is None else space
        if where in ("shared", "local", "param"):
            return
        address = self._r.address(index, operand)
        size = Value(constant(extent)) if isinstance(extent, int) else extent
        yield Touch(
            index,
            mode,
            where,
            address.poly,
            size.poly,
            address.obligations | size.obligations,
            when,
        )

    def _load(self, index: int, ins: Instruction) -> Iterator[Found]:
        size = STORAGE_BITS.get(ins.type, 0) // 8 * len(elements(ins.operands[0]))
        yield from self._plain(index, ins, READ, ins.operands[1], size)

    def _store(self, index: int, ins: Instruction) -> Iterator[Found]:
        if "async" in ins.modifiers:
            yield from self._store_async(index, ins)
            return
        if "bulk" in ins.modifiers:
            return  # st.bulk initialises shared memory
        size = STORAGE_BITS.get(ins.type, 0) // 8 * len(elements(ins.operands[1]))
        yield from self._plain(index, ins, WRITE, ins.operands[0], size)

    def _plain(
        self, index: int, ins: Instruction, mode: Mode, operand: Operand, size: int
    ) -> Iterator[Found]:
        space = space_of(ins)
        if size == 0:
            yield Mark(index, Property.UNKNOWN, f"the width of {ins.full} is not known")
            return
        if "volatile" in ins.modifiers and space in ("global", ""):
            yield Mark(index, Property.SYSTEM_SCOPE)
        yield from self._touch(index, mode, operand, size)

    def _atomic(self, index: int, ins: Instruction) -> Iterator[Found]:
        at = 0 if ins.opcode == "red" else 1
        if "async" in ins.modifiers:
            yield from self._store_async(index, ins)
            return
        space = space_of(ins)
        if ins.operands[at].kind is not OperandKind.ADDRESS:
            yield Mark(index, Property.UNKNOWN, f"the address of {ins.full} was not found")
            return
        value = ins.operands[at + 1] if len(ins.operands) > at + 1 else ins.operands[at]
        size = STORAGE_BITS.get(ins.type, 0) // 8 * len(elements(value))
        if size == 0:
            yield Mark(index, Property.UNKNOWN, f"the width of {ins.full} is not known")
            return
        if space in ("global", "") and _order_matters(ins):
            yield Mark(index, Property.ORDER_DEPENDENT)
        yield from self._touch(index, UPDATE, ins.operands[at], size)

    def _store_async(self, index: int, ins: Instruction) -> Iterator[Found]:
        if any(m.startswith("shared") for m in ins.modifiers):
            yield Mark(index, Property.CLUSTERS)
        else:
            yield Mark(index, Property.UNKNOWN, f"{ins.full} is not understood")

    def _copy(self, index: int, ins: Instruction) -> Iterator[Found]:
        """cp.async, cp.async.bulk and their groups, barriers and tensor forms."""
        words = ins.modifiers
        if "tensor" in words:
            yield Mark(index, Property.TENSOR_MAPS)
            if "prefetch" not in words:
                yield Mark(index, Property.UNKNOWN, "a TMA descriptor may describe any memory")
        elif not any(o.kind is OperandKind.ADDRESS for o in ins.operands):
            return  # commit_group, wait_group
        elif "mbarrier" in words and "bulk" not in words:
            return  # cp.async.mbarrier.arrive
        elif "bulk" in words:
            yield from self._bulk(index, ins)
        else:
            yield from self._copy_async(index, ins)

    def _copy_async(self, index: int, ins: Instruction) -> Iterator[Found]:
        """[shared], [global], size {, bytes really read}: the rest is filled with zeros."""
        size = self._r.operand(index, ins.operands[2])
        sources = [o for o in ins.operands[3:] if self._is_size(index, o)]
        if not sources:
            yield from self._touch(index, READ, ins.operands[1], size, "global")
            return
        read = self._r.domain.interpret(self._r.operand(index, sources[0]), 32, False)
        when = TRUE
        while (chosen := read.poly.single) is not None and chosen.kind == "sel":
            if chosen.args[2] != Value(ZERO):
                break
            when = conjunction(when, chosen.args[0])  # p ? n : 0 reads only under p
            read = chosen.args[1]
        least = self._r.domain.extremum("min", size, read)
        yield from self._touch(
            index, READ, ins.operands[1], least, "global", None if when is TRUE else when
        )

    def _is_size(self, index: int, operand: Operand) -> bool:
        """A 32-bit operand; cache policies have 64 bits, and predicates none."""
        if operand.kind is OperandKind.INTEGER:
            return True
        if operand.kind is not OperandKind.REGISTER:
            return False
        register = self._r.program.frames[index].register_base + operand.register
        return STORAGE_BITS.get(self._r.program.register_types[register]) == 32

    def _bulk(self, index: int, ins: Instruction) -> Iterator[Found]:
        words = [m.split("::")[0] for m in ins.modifiers]
        spaces = [w for w in words if w in ("global", "shared")]
        if "prefetch" in words:
            return
        reduces = "reduce" in words
        if len(spaces) < 2 or len(ins.operands) < 3:
            yield Mark(index, Property.UNKNOWN, f"{ins.full} is not understood")
            return
        size = self._r.domain.interpret(self._r.operand(index, ins.operands[2]), 32, False)
        if spaces[0] == "global":
            mode = UPDATE if reduces else WRITE
            yield from self._touch(index, mode, ins.operands[0], size, "global")
            if reduces and any(t in ins.modifiers for t in ("f16", "bf16", "f32", "f64")):
                yield Mark(index, Property.ORDER_DEPENDENT)
        if spaces[1] == "global":
            yield from self._touch(index, READ, ins.operands[1], size, "global")

    def _wmma(self, index: int, ins: Instruction) -> Iterator[Found]:
        if ins.modifiers[0] not in ("load", "store") or space_of(ins) == "shared":
            return
        is_load = ins.modifiers[0] == "load"
        operand = ins.operands[1 if is_load else 0]
        shape = _fragment(ins)
        if shape is None:
            yield Mark(index, Property.UNKNOWN, f"the shape of {ins.full} is not known")
            return
        lines, length, bits = shape
        stride = Value(constant(length))
        if len(ins.operands) > 2:
            stride = self._r.domain.interpret(self._r.operand(index, ins.operands[2]), 32, False)
        pitch = stride.poly.scale(bits)
        if pitch.content() % 8 or length * bits % 8:
            yield Mark(index, Property.UNKNOWN, f"{ins.full} has a stride of part of a byte")
            return
        pitch = pitch.divide_exactly(8)
        for line in range(lines):
            for touch in self._touch(
                index, READ if is_load else WRITE, operand, length * bits // 8
            ):
                assert isinstance(touch, Touch)
                obligations = touch.obligations | stride.obligations
                address = touch.address + pitch.scale(line)
                yield replace(touch, address=address, obligations=obligations)

    def _discard(self, index: int, ins: Instruction) -> Iterator[Found]:
        """discard.L2 leaves bytes undefined: a write."""
        yield from self._touch(index, WRITE, ins.operands[0], 128)

    def _multimem(self, index: int, ins: Instruction) -> Iterator[Found]:
        yield Mark(index, Property.UNKNOWN, f"{ins.full} reaches several devices")

    def _cluster(self, index: int, ins: Instruction) -> Iterator[Found]:
        if ins.opcode != "barrier" or "cluster" in ins.modifiers:
            yield Mark(index, Property.CLUSTERS)


def _order_matters(ins: Instruction) -> bool:
    """Whether the result of the kernel may depend on the order of its atomics: sums that round,
    exchanges, and old values that are handed out."""
    if "exch" in ins.modifiers or "cas" in ins.modifiers:
        return True
    if "add" in ins.modifiers and ins.type in FLOAT_BITS:
        return True
    return ins.opcode == "atom" and ins.operands[0].kind is not OperandKind.SINK


_DEVICE_DEPENDENT = (
    "%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%envreg",
    "%pm", "%total_smem_size", "%aggr_smem_size", "%reserved_smem",
)  # fmt: skip


def _special_register(index: int, name: str) -> Iterator[Found]:
    if name.startswith(_DEVICE_DEPENDENT):
        yield Mark(index, Property.DEVICE_DEPENDENT)
    if name.startswith("%envreg"):
        yield Mark(index, Property.GRID_SYNC)
    if "cluster" in name:
        yield Mark(index, Property.CLUSTERS)


_WMMA_ELEMENT_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "u8": 8, "s8": 8,
    "u4": 4, "s4": 4, "b1": 1,
}  # fmt: skip


def _fragment(ins: Instruction) -> tuple[int, int, int] | None:
    """(lines, elements in a line, bits of an element) of a wmma fragment in memory."""
    shape = next((m for m in ins.modifiers if m[:1] == "m" and m[1:2].isdigit()), None)
    part = next((m for m in ins.modifiers[1:] if m in ("a", "b", "c", "d")), None)
    bits = next((_WMMA_ELEMENT_BITS[m] for m in ins.modifiers if m in _WMMA_ELEMENT_BITS), None)
    by_row = "row" in ins.modifiers
    if shape is None or part is None or bits is None or not (by_row or "col" in ins.modifiers):
        return None
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[part]
    return (int(rows), int(columns), bits) if by_row else (int(columns), int(rows), bits)


_HANDLERS = {
    "ld": Scan._load, "ldu": Scan._load, "st": Scan._store, "atom": Scan._atomic,
    "red": Scan._atomic, "cp": Scan._copy, "wmma": Scan._wmma, "discard": Scan._discard,
    "multimem": Scan._multimem, "mapa": Scan._cluster, "getctarank": Scan._cluster,
    "barrier": Scan._cluster,
}  # fmt: skip
