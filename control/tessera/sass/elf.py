# SPDX-License-Identifier: Apache-2.0
"""What a cubin says beside its code: kernels, parameter blocks, symbols, relocations."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_EM_CUDA = 190
_SHT_SYMTAB, _SHT_RELA, _SHT_REL = 2, 4, 9
_STT_FUNC = 2
_PARAM_CBANK, _KPARAM_INFO = 0x0A, 0x17
_SIZED = 4  # format of an attribute of .nv.info: a 16-bit size, then that many bytes
_ENTRY = 0x10  # st_other: a kernel


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the symbol table. `section` 0: defined elsewhere."""

    name: str
    section: int
    value: int
    size: int
    is_function: bool
    is_entry: bool


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel: its section, and where its parameters lie in constant bank 0."""

    name: str
    section: int
    parameter_base: int
    parameter_size: int
    parameters: tuple[tuple[int, int], ...]  # (offset, size) in order


@dataclass(slots=True)
class Cubin:
    """The parts of a cubin that the analysis looks at."""

    section_names: list[str]
    symbols: list[Symbol]
    kernels: list[KernelInfo] = field(default_factory=list)
    relocations: dict[str, dict[int, str]] = field(default_factory=dict)
    """Section name -> offset -> symbol name."""
    sizes: list[int] = field(default_factory=list)
    """Of each section, bytes."""

    @property
    def functions(self) -> frozenset[str]:
        """Names of kernels and functions that have code."""
        texts = (name for name in self.section_names if name.startswith(".text."))
        return frozenset(name.removeprefix(".text.") for name in texts)

    @property
    def parameter_sizes(self) -> dict[str, int]:
        """Bytes of the parameter block, by kernel, where the cubin tells."""
        return {kernel.name: kernel.parameter_size for kernel in self.kernels}

    def code_sections(self) -> dict[int, int]:
        """Sections that hold code, each with the index of a symbol in it."""
        out: dict[int, int] = {}
        for index, symbol in enumerate(self.symbols):
            known = symbol.is_function and symbol.section < len(self.section_names)
            if known and self.section_names[symbol.section].startswith(".text."):
                out.setdefault(symbol.section, index)
        return out


def read_cubin(data: bytes) -> Cubin:
    """Raises ValueError when the data is no whole CUDA ELF file."""
    try:
        return _read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a malformed cubin: {error}") from None


def _read(data: bytes) -> Cubin:
    fields = _HEADER.unpack_from(data)
    if not fields[0].startswith(b"\x7fELF\x02\x01") or fields[2] != _EM_CUDA:
        raise ValueError("not a cubin")
    start, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size < _SECTION.size:
        raise ValueError("a malformed cubin: section headers are too short")
    headers = [_SECTION.unpack_from(data, start + i * entry_size) for i in range(count)]
    strings = _content(data, headers[names_index])
    names = [_text(strings, header[0]) for header in headers]
    symbols = _symbols(data, headers)
    cubin = Cubin(names, symbols, sizes=[header[5] for header in headers])
    for header, name in zip(headers, names, strict=True):
        if header[1] in (_SHT_RELA, _SHT_REL):
            target = names[header[7]] if header[7] < len(names) else ""
            table = cubin.relocations.setdefault(_target(name, target), {})
            table.update(_relocations(_content(data, header), header[1], symbols))
        elif name.startswith(".nv.info."):
            cubin.kernels += _kernel(_content(data, header), name[len(".nv.info.") :], names)
    return cubin


def _target(name: str, fallback: str) -> str:
    for prefix in (".rela", ".rel"):
        if name.startswith(prefix + "."):
            return name[len(prefix) :]
    return fallback


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    offset, size = header[4], header[5]
    if offset + size > len(data):
        raise ValueError("a malformed cubin: a section lies outside the file")
    return data[offset : offset + size]


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    if end < 0:
        raise ValueError("a malformed cubin: a name has no end")
    return strings[at:end].decode()


def _symbols(data: bytes, headers: list[tuple[int, ...]]) -> list[Symbol]:
    out: list[Symbol] = []
    for header in headers:
        if header[1] != _SHT_SYMTAB:
            continue
        strings = _content(data, headers[header[6]])
        content = _content(data, header)
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(content):
            function = info & 15 == _STT_FUNC
            out.append(
                Symbol(_text(strings, name), section, value, size, function, bool(other & _ENTRY))
            )
    return out


def _relocations(content: bytes, kind: int, symbols: list[Symbol]) -> dict[int, str]:
    record = struct.Struct("<QQq" if kind == _SHT_RELA else "<QQ")
    out = {}
    for offset, info, *_ in record.iter_unpack(content):
        index = info >> 32
        out[offset] = symbols[index].name if index < len(symbols) else ""
    return out


def _kernel(info: bytes, name: str, names: list[str]) -> list[KernelInfo]:
    """The kernel that an .nv.info section describes; none for a device function."""
    at, base, size, parameters = 0, -1, 0, []
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute == _PARAM_CBANK and value >= 8:
            _, base, size = struct.unpack_from("<IHH", info, at)
        elif attribute == _KPARAM_INFO and value >= 12:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", info, at)
            parameters.append((ordinal, offset, packed >> 18))
        at += value
    section = f".text.{name}"
    if base < 0 or section not in names:
        return []
    ordered = tuple((offset, length) for _, offset, length in sorted(parameters))
    return [KernelInfo(name, names.index(section), base, size, ordered)]
