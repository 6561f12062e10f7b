# SPDX-License-Identifier: Apache-2.0
"""The PTX front end: `parse` gives a module of plain Python objects.

Functions are turned into Python objects when they are first looked at, so that a module
of thousands of kernels costs little until one of them is wanted.
"""

from __future__ import annotations

import enum
import functools
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cffi

from tessera.native import NativeError, cdef_text, library_path

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


class ImageKind(enum.IntEnum):
    """`tessera::ptx::ImageKind`"""

    UNKNOWN = 0
    PTX = 1
    ELF = 2
    FATBIN = 3
    FATBIN_WRAPPER = 4


class EntryKind(enum.IntEnum):
    """`tessera::ptx::ImageEntry::Kind`"""

    PTX = 0
    ELF = 1
    LTO_IR = 2
    OTHER = 3


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


@dataclass(frozen=True, slots=True)
class Operand:
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


@dataclass(frozen=True, slots=True)
class Instruction:
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


@dataclass(frozen=True, slots=True)
class Register:
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

    def __init__(self, module: Module, view: Any) -> None:
        self._module = module  # owns the memory that `view` points to
        self._view = view
        self.name: str = module._text(int(_ffi().cast("uintptr_t", view.name)))
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
        return self._module._variables(self._view.parameters, self._view.n_parameters)

    @functools.cached_property
    def returns(self) -> tuple[Variable, ...]:
        return self._module._variables(self._view.returns, self._view.n_returns)

    @functools.cached_property
    def variables(self) -> tuple[Variable, ...]:
        return self._module._variables(self._view.variables, self._view.n_variables)

    @functools.cached_property
    def registers(self) -> tuple[Register, ...]:
        text = self._module._text
        records = _records("ts_ptx_register", self._view.registers, self._view.n_registers)
        return tuple(Register(text(name), _TYPES[kind], vector) for name, kind, vector in records)

    @functools.cached_property
    def labels(self) -> dict[str, int]:
        """Name to the index of the instruction that the label precedes."""
        text = self._module._text
        records = _records("ts_ptx_label", self._view.labels, self._view.n_labels)
        return {text(name): index for name, index in records}

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        edges = _ffi().unpack(self._view.edges, self._view.n_edges) if self._view.n_edges else []
        records = _records("ts_ptx_block", self._view.blocks, self._view.n_blocks)
        return tuple([_block(record, edges) for record in records])

    @functools.cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(_Decoder(self._module, self._view).instructions())


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

    def __init__(self, module: Module, view: Any) -> None:
        self._text = module._text
        self._view = view
        pointers = _unpack_pointers(view.modifiers, view.n_modifiers)
        self._words = [module._text(pointer) for pointer in pointers]
        self._operands = list(_records("ts_ptx_operand", view.operands, view.n_operands))

    def instructions(self) -> Iterator[Instruction]:
        text, words, view = self._text, self._words, self._view
        mnemonics: dict[tuple[int, int], tuple[str, ...]] = {}
        for record in _records("ts_ptx_instruction", view.instructions, view.n_instructions):
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
                text(opcode), text(full), modifiers, _TYPES[type_], _TYPES[type2], guard,
                bool(negated), self._slice(first_operand, n_operands), line, column,
            )  # fmt: skip

    def _slice(self, first: int, count: int) -> tuple[Operand, ...]:
        return tuple([self._operand(record) for record in self._operands[first : first + count]])

    def _operand(self, record: Sequence[int]) -> Operand:
        (
            kind, negated, component, float_bits, register, label, n_elements,
            bits, offset, text, first_element, first_modifier, n_modifiers,
        ) = record  # fmt: skip
        return Operand(
            _OPERAND_KINDS[kind],
            self._text(text) if text else "",
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


class Module:
    """A parsed module: what could be read, and the errors about the rest."""

    def __init__(self, text: str | bytes) -> None:
        data = text.encode("utf-8") if isinstance(text, str) else text
        handle = _library().ts_ptx_parse(data, len(data))
        if handle == _ffi().NULL:
            raise MemoryError("no memory to parse PTX")
        self._handle = _ffi().gc(handle, _library().ts_ptx_free)
        self._strings: dict[int, str] = {}
        self._lock = threading.Lock()
        self.errors = tuple(self._read_errors())
        self.target: str = _ffi().string(_library().ts_ptx_target(self._handle)).decode()
        version = _library().ts_ptx_version(self._handle)
        self.version: tuple[int, int] = divmod(version, 100)
        self._functions: list[Function | None] = [None] * _library().ts_ptx_function_count(
            self._handle
        )

    def __repr__(self) -> str:
        return f"<PTX module for {self.target}: {len(self._functions)} functions>"

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(self._function(index) for index in range(len(self._functions)))

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
        library = _library()
        out: list[Variable] = []
        for index in range(library.ts_ptx_variable_count(self._handle)):
            out.extend(self._variables(library.ts_ptx_variable_at(self._handle, index), 1))
        return tuple(out)

    def _read_errors(self) -> Iterator[Error]:
        line, column = _ffi().new("uint32_t*"), _ffi().new("uint32_t*")
        for index in range(_library().ts_ptx_error_count(self._handle)):
            message = _library().ts_ptx_error(self._handle, index, line, column)
            yield Error(line[0], column[0], _ffi().string(message).decode("utf-8", "replace"))

    def _function(self, index: int) -> Function:
        with self._lock:  # the C side builds its view of a function at the first call
            function = self._functions[index]
            if function is None:
                view = _library().ts_ptx_function_at(self._handle, index)
                if view == _ffi().NULL:
                    raise MemoryError("no memory for the view of a PTX function")
                function = self._functions[index] = Function(self, view)
            return function

    def _text(self, pointer: int) -> str:
        """The interned string at an address."""
        text = self._strings.get(pointer)
        if text is None:
            raw = _ffi().string(_ffi().cast("const char*", pointer))
            text = self._strings[pointer] = raw.decode("utf-8", "replace")
        return text

    def _variables(self, pointer: Any, count: int) -> tuple[Variable, ...]:
        records = _records("ts_ptx_variable", pointer, count)
        return tuple([self._variable(record) for record in records])

    def _variable(self, record: Sequence[int]) -> Variable:
        (
            name, space, type_, vector, linkage, is_pointer, pointer_space,
            has_initializer, alignment, size, offset, pointer_alignment,
        ) = record  # fmt: skip
        return Variable(
            self._text(name),
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
        )


class Entry:
    """One entry of an image; its payload is decompressed when it is asked for."""

    def __init__(self, image: Image, index: int, kind: EntryKind, architecture: int) -> None:
        self._image = image
        self._index = index
        self.kind = kind
        self.architecture = architecture

    def __repr__(self) -> str:
        return f"<{self.kind.name} for sm_{self.architecture}>"

    def read(self) -> bytes:
        """The payload; PTX without trailing NULs. Raises ValueError when it is malformed."""
        return self._image._read(self._index)


class Image:
    """PTX text, a cubin, a fatbin, or a library that carries fatbins."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        ffi, library = _ffi(), _library()
        self._data = ffi.from_buffer(data)
        self.kind = ImageKind(library.ts_image_kind(self._data, len(self._data)))
        handle = library.ts_image_open(self._data, len(self._data))
        if handle == ffi.NULL:
            raise MemoryError("no memory to list an image")
        self._handle = ffi.gc(handle, library.ts_image_free)
        self._lock = threading.Lock()
        self.errors = tuple(self._error(i) for i in range(library.ts_image_error_count(handle)))
        self.entries = tuple(self._entries())

    def _entries(self) -> Iterator[Entry]:
        architecture = _ffi().new("uint32_t*")
        for index in range(_library().ts_image_entry_count(self._handle)):
            kind = _library().ts_image_entry_kind(self._handle, index, architecture)
            yield Entry(self, index, EntryKind(kind), architecture[0])

    def _error(self, index: int) -> str:
        text = _ffi().string(_library().ts_image_error(self._handle, index))
        return str(text.decode("utf-8", "replace"))

    def _read(self, index: int) -> bytes:
        ffi, library = _ffi(), _library()
        size = ffi.new("size_t*")
        with self._lock:
            payload = library.ts_image_entry(self._handle, index, ffi.NULL, ffi.NULL, size)
            if payload == ffi.NULL:
                raise ValueError(self._error(library.ts_image_error_count(self._handle) - 1))
            out = bytes(ffi.buffer(payload, size[0]))
            library.ts_image_drop(self._handle, index)
            return out


def parse(text: str | bytes) -> Module:
    """Parse a PTX module. Bad input never raises: see `Module.errors` and `Function.is_broken`."""
    return Module(text)


def open_image(data: bytes | bytearray | memoryview) -> Image:
    """List what an image holds. Bad input never raises: see `Image.errors`."""
    return Image(data)


# The binding itself.


@functools.cache
def _ffi() -> Any:
    ffi: Any = cffi.FFI()
    ffi.cdef(cdef_text("tessera/ptx/capi.h"))
    return ffi


@functools.cache
def _library() -> Any:
    path = library_path("libtessera_ptx.so")
    library = _ffi().dlopen(str(path))
    last = library.ts_ptx_type_name(Type.OTHER)
    if last == _ffi().NULL or library.ts_ptx_type_name(Type.OTHER + 1) != _ffi().NULL:
        raise NativeError(f"{path} belongs to another version of Tessera; rebuild the native parts")
    return library


_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}


@functools.cache
def _layout(name: str) -> struct.Struct:
    """The layout of a struct of capi.h, for struct.iter_unpack."""
    ffi = _ffi()
    kind = ffi.typeof(name)
    parts, at = ["="], 0
    for _, field in kind.fields:
        code = _FORMATS[ffi.sizeof(field.type)]
        signed = field.type.cname.startswith("int")
        parts.append(f"{field.offset - at}x{code if signed else code.upper()}")
        at = field.offset + ffi.sizeof(field.type)
    parts.append(f"{ffi.sizeof(kind) - at}x")
    return struct.Struct("".join(parts))


def _records(name: str, pointer: Any, count: int) -> Iterator[tuple[int, ...]]:
    if count == 0:
        return iter(())
    layout = _layout(name)
    return layout.iter_unpack(_ffi().buffer(pointer, count * layout.size))


def _unpack_pointers(pointer: Any, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}Q", _ffi().buffer(pointer, count * 8)) if count else ()
