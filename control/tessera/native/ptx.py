# SPDX-License-Identifier: Apache-2.0
"""The PTX front end: `parse` gives a module of plain Python objects.

The parts of a function are turned into Python objects when they are first asked for, so that
a module of thousands of kernels costs little until one of them is wanted.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tessera.native.image import Entry, EntryKind, Image, ImageKind, open_image
from tessera.native.ptx_binding import ffi, library, pointers, records, text_at

__all__ = [
    "NO_BLOCK",
    "NO_REGISTER",
    "Block",
    "Entry",
    "EntryKind",
    "Error",
    "Function",
    "Image",
    "ImageKind",
    "Instruction",
    "Linkage",
    "Module",
    "Operand",
    "OperandKind",
    "Register",
    "Space",
    "Type",
    "Variable",
    "open_image",
    "parse",
]

NO_REGISTER = -1
NO_BLOCK = 0xFFFFFFFF


class Type(enum.IntEnum):
    """`tessera::ptx::Type`; names are PTX's, in capitals."""

    NONE = 0
    PRED = 1
    B8 = 2
    B16 = 3
    B32 = 4
    B64 = 5
    B128 = 6
    U8 = 7
    U16 = 8
    U32 = 9
    U64 = 10
    S8 = 11
    S16 = 12
    S32 = 13
    S64 = 14
    F16 = 15
    F16X2 = 16
    BF16 = 17
    BF16X2 = 18
    TF32 = 19
    F32 = 20
    F64 = 21
    U16X2 = 22
    S16X2 = 23
    F32X2 = 24
    E4M3 = 25
    E5M2 = 26
    E4M3X2 = 27
    E5M2X2 = 28
    E2M1X2 = 29
    E2M3X2 = 30
    E3M2X2 = 31
    UE8M0X2 = 32
    TEXREF = 33
    SAMPLERREF = 34
    SURFREF = 35
    OTHER = 36


class Space(enum.IntEnum):
    """`tessera::ptx::Space`"""

    NONE = 0
    REGISTER = 1
    SPECIAL = 2
    CONST = 3
    GLOBAL = 4
    LOCAL = 5
    PARAM = 6
    SHARED = 7
    TEXTURE = 8


class Linkage(enum.IntEnum):
    """`tessera::ptx::Linkage`"""

    NONE = 0
    EXTERN = 1
    VISIBLE = 2
    WEAK = 3
    COMMON = 4


class OperandKind(enum.IntEnum):
    """`tessera::ptx::Operand::Kind`"""

    REGISTER = 0
    SPECIAL = 1
    INTEGER = 2
    FLOAT = 3
    SYMBOL = 4
    ADDRESS = 5
    VECTOR = 6
    TUPLE = 7
    PAIR = 8
    LABEL = 9
    SINK = 10


_TYPES = tuple(Type)
_SPACES = tuple(Space)
_LINKAGES = tuple(Linkage)
_OPERAND_KINDS = tuple(OperandKind)


@dataclass(frozen=True, slots=True)
class Error:
    """What could not be read, and where: line and column count from 1."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


class Operand(NamedTuple):
    """One operand; which fields mean something depends on `kind`, as in ir.h."""

    kind: OperandKind
    text: str  # SYMBOL, SPECIAL, LABEL: the name
    register: int  # REGISTER: index into Function.registers
    component: int  # .x is 0; -1: none
    negated: bool
    bits: int  # INTEGER: 64 bits, two's complement; FLOAT: the pattern
    float_bits: int  # FLOAT: 32 or 64
    offset: int  # ADDRESS, SYMBOL: bytes
    label: int  # LABEL: index of the instruction
    elements: tuple[Operand, ...]
    modifiers: tuple[str, ...]

    @property
    def signed(self) -> int:
        """`bits` as a signed 64-bit integer."""
        return self.bits - (1 << 64) if self.bits >> 63 else self.bits


class Instruction(NamedTuple):
    """One instruction; unknown ones look like all others."""

    opcode: str
    full: str  # "ld.global.nc.v4.b32"
    modifiers: tuple[str, ...]
    type: Type
    type2: Type
    guard: int  # register of @%p, or NO_REGISTER
    guard_negated: bool
    operands: tuple[Operand, ...]
    line: int
    column: int

    def has(self, modifier: str) -> bool:
        """Whether a dotted word, given without its dot, is among the modifiers."""
        return modifier in self.modifiers


class Register(NamedTuple):
    name: str
    type: Type
    vector: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter; sizes, offsets and alignments are in bytes."""

    name: str
    space: Space
    type: Type
    vector: int
    linkage: Linkage
    is_pointer: bool
    pointer_space: Space
    pointer_alignment: int
    has_initializer: bool
    alignment: int
    size: int  # 0: unsized
    offset: int  # parameters: in the parameter block
    holds_addresses: bool  # in its initializer


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: instructions[begin:end]."""

    begin: int
    end: int
    successors: tuple[int, ...]
    immediate_dominator: int | None
    immediate_post_dominator: int | None  # None: the virtual exit
    is_loop_header: bool
    is_reachable: bool
    exits: bool


class Function:
    """A kernel, function or declaration. Its parts are made when they are first asked for."""

    def __init__(self, parsed: _Parsed, index: int) -> None:
        view = parsed.view(index)
        self._parsed = parsed  # owns the memory that `view` points to
        self._view = view
        self.name = parsed.strings[int(ffi().cast("uintptr_t", view.name))]
        self.is_entry = bool(view.is_entry)
        self.is_declaration = bool(view.is_declaration)
        self.is_broken = bool(view.is_broken)
        self.linkage = _LINKAGES[view.linkage]
        self.noreturn = bool(view.noreturn)
        self.has_indirect_branch = bool(view.has_indirect_branch)
        self.max_threads: tuple[int, int, int] = tuple(view.max_threads)
        self.required_threads: tuple[int, int, int] = tuple(view.required_threads)
        self.required_cluster: tuple[int, int, int] = tuple(view.required_cluster)
        self.line: int = view.line
        self.column: int = view.column
        self.parameter_block_size: int = view.parameter_block_size

    def __repr__(self) -> str:
        kind = "entry" if self.is_entry else "func"
        return f"<{kind} {self.name}: {self._view.n_instructions} instructions>"

    @functools.cached_property
    def parameters(self) -> tuple[Variable, ...]:
        return self._parsed.variables(self._view.parameters, self._view.n_parameters)

    @functools.cached_property
    def returns(self) -> tuple[Variable, ...]:
        return self._parsed.variables(self._view.returns, self._view.n_returns)

    @functools.cached_property
    def variables(self) -> tuple[Variable, ...]:
        return self._parsed.variables(self._view.variables, self._view.n_variables)

    @functools.cached_property
    def registers(self) -> tuple[Register, ...]:
        strings = self._parsed.strings
        found = records("ts_ptx_register", self._view.registers, self._view.n_registers)
        return tuple([Register(strings[name], _TYPES[kind], v) for name, kind, v in found])

    @functools.cached_property
    def labels(self) -> dict[str, int]:
        """Name to the index of the instruction that the label precedes."""
        strings = self._parsed.strings
        found = records("ts_ptx_label", self._view.labels, self._view.n_labels)
        return {strings[name]: index for name, index in found}

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        edges = ffi().unpack(self._view.edges, self._view.n_edges) if self._view.n_edges else []
        found = records("ts_ptx_block", self._view.blocks, self._view.n_blocks)
        return tuple([_block(record, edges) for record in found])

    @functools.cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(_Decoder(self._parsed, self._view).instructions())


def _block(record: Sequence[int], edges: Sequence[int]) -> Block:
    begin, end, first, count, dominator, post_dominator, is_header, is_reachable, exits = record
    return Block(
        begin,
        end,
        tuple(edges[first : first + count]),
        None if dominator == NO_BLOCK else dominator,
        None if post_dominator == NO_BLOCK else post_dominator,
        bool(is_header),
        bool(is_reachable),
        bool(exits),
    )


class _Decoder:
    """Turns the flat arrays of one function into objects."""

    def __init__(self, parsed: _Parsed, view: Any) -> None:
        self._strings = parsed.strings
        self._view = view
        words = pointers(view.modifiers, view.n_modifiers)
        self._words = [parsed.strings[pointer] for pointer in words]
        self._operands = list(records("ts_ptx_operand", view.operands, view.n_operands))
        self._leaves: dict[Sequence[int], Operand] = {}  # most operands repeat earlier ones

    def instructions(self) -> Iterator[Instruction]:
        strings, words, view = self._strings, self._words, self._view
        mnemonics: dict[tuple[int, int], tuple[str, ...]] = {}
        for record in records("ts_ptx_instruction", view.instructions, view.n_instructions):
            (
                opcode, full, type_, type2, negated, n_modifiers, guard,
                first_modifier, first_operand, n_operands, line, column,
            ) = record  # fmt: skip
            key = (first_modifier, n_modifiers)
            modifiers = mnemonics.get(key)
            if modifiers is None:
                modifiers = tuple(words[first_modifier : first_modifier + n_modifiers])
                mnemonics[key] = modifiers
            yield Instruction(
                strings[opcode], strings[full], modifiers, _TYPES[type_], _TYPES[type2], guard,
                bool(negated), self._slice(first_operand, n_operands), line, column,
            )  # fmt: skip

    def _slice(self, first: int, count: int) -> tuple[Operand, ...]:
        leaves, out = self._leaves, []
        for record in self._operands[first : first + count]:
            operand = leaves.get(record)
            if operand is None:
                operand = self._operand(record)
                if not operand.elements:
                    leaves[record] = operand
            out.append(operand)
        return tuple(out)

    def _operand(self, record: Sequence[int]) -> Operand:
        (
            kind, negated, component, float_bits, register, label, n_elements,
            bits, offset, text, first_element, first_modifier, n_modifiers,
        ) = record  # fmt: skip
        return Operand(
            _OPERAND_KINDS[kind],
            self._strings[text] if text else "",
            register,
            component,
            bool(negated),
            bits,
            float_bits,
            offset,
            label,
            self._slice(first_element, n_elements) if n_elements else (),
            tuple(self._words[first_modifier : first_modifier + n_modifiers])
            if n_modifiers
            else (),
        )


class _Strings(dict[int, str]):
    """The interned strings of a module, read when they are first asked for."""

    def __missing__(self, pointer: int) -> str:
        text = self[pointer] = text_at(pointer)
        return text


class _Parsed:
    """What the library knows of one module. Owns the memory that all views point into."""

    def __init__(self, text: str | bytes) -> None:
        data = text.encode("utf-8") if isinstance(text, str) else text
        handle = library().ts_ptx_parse(data, len(data))
        if handle == ffi().NULL:
            raise MemoryError("no memory to parse PTX")
        self.handle = ffi().gc(handle, library().ts_ptx_free)
        self.strings = _Strings()  # by their addresses
        self._lock = threading.Lock()

    def errors(self) -> Iterator[Error]:
        line, column = ffi().new("uint32_t*"), ffi().new("uint32_t*")
        for index in range(library().ts_ptx_error_count(self.handle)):
            message = library().ts_ptx_error(self.handle, index, line, column)
            yield Error(line[0], column[0], text_at(message))

    def view(self, index: int) -> Any:
        with self._lock:  # the library builds its view of a function at the first call
            view = library().ts_ptx_function_at(self.handle, index)
        if view == ffi().NULL:
            raise MemoryError("no memory for the view of a PTX function")
        return view

    def variables(self, pointer: Any, count: int) -> tuple[Variable, ...]:
        found = records("ts_ptx_variable", pointer, count)
        return tuple([self._variable(record) for record in found])

    def _variable(self, record: Sequence[int]) -> Variable:
        (
            name, space, type_, vector, linkage, is_pointer, pointer_space,
            has_initializer, alignment, size, offset, pointer_alignment,
        ) = record  # fmt: skip
        return Variable(
            self.strings[name],
            _SPACES[space],
            _TYPES[type_],
            vector,
            _LINKAGES[linkage],
            bool(is_pointer),
            _SPACES[pointer_space],
            pointer_alignment,
            bool(has_initializer),
            alignment,
            size,
            offset,
            has_initializer == 2,
        )


class Module:
    """A parsed module: what could be read, and the errors about the rest."""

    def __init__(self, text: str | bytes) -> None:
        self._parsed = _Parsed(text)
        self.errors = tuple(self._parsed.errors())
        self.target = text_at(library().ts_ptx_target(self._parsed.handle))
        version: int = library().ts_ptx_version(self._parsed.handle)
        self.version = divmod(version, 100)

    def __repr__(self) -> str:
        return f"<PTX module for {self.target}: {len(self.functions)} functions>"

    @functools.cached_property
    def functions(self) -> tuple[Function, ...]:
        count = library().ts_ptx_function_count(self._parsed.handle)
        return tuple([Function(self._parsed, index) for index in range(count)])

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels that have a body."""
        return tuple(f for f in self.functions if f.is_entry and not f.is_declaration)

    def function(self, name: str) -> Function:
        """The definition of that name, else its declaration. Raises KeyError if there is none."""
        found = [function for function in self.functions if function.name == name]
        found.sort(key=lambda function: function.is_declaration)
        if not found:
            raise KeyError(name)
        return found[0]

    @functools.cached_property
    def variables(self) -> tuple[Variable, ...]:
        out: list[Variable] = []
        for index in range(library().ts_ptx_variable_count(self._parsed.handle)):
            pointer = library().ts_ptx_variable_at(self._parsed.handle, index)
            out.extend(self._parsed.variables(pointer, 1))
        return tuple(out)


def parse(text: str | bytes) -> Module:
    """Parse a PTX module. Bad input never raises: see `Module.errors` and `Function.is_broken`."""
    return Module(text)
