# SPDX-License-Identifier: Apache-2.0
"""What a cubin says about its kernels, to tell whether a PTX text belongs to it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_EM_CUDA = 190
_PARAM_CBANK = 0x0A  # of .nv.info: u32 symbol, u16 offset, u16 size of the parameter block
_FORMAT_SIZED = 4


@dataclass(frozen=True)
class Cubin:
    """Kernel and function names, and the parameter block's bytes where the cubin tells it."""

    functions: frozenset[str]
    parameter_sizes: dict[str, int]


def read_cubin(data: bytes) -> Cubin:
    """Raises ValueError when the data is no whole CUDA ELF file."""
    try:
        return _read(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a malformed cubin: {error}") from None


def _read(data: bytes) -> Cubin:
    fields = _HEADER.unpack_from(data)
    if not fields[0].startswith(b"\x7fELF\x02\x01") or fields[2] != _EM_CUDA:
        raise ValueError("not a cubin")
    start, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size < _SECTION.size:
        raise ValueError("a malformed cubin: section headers are too short")
    sections = [_SECTION.unpack_from(data, start + i * entry_size) for i in range(count)]
    names = _content(data, sections[names_index])
    functions, sizes = set(), {}
    for section in sections:
        end = names.index(b"\0", section[0])
        name = names[section[0] : end].decode("utf-8", "replace")
        if name.startswith(".text."):
            functions.add(name.removeprefix(".text."))
        elif name.startswith(".nv.info."):
            size = _parameter_size(_content(data, section))
            if size is not None:
                sizes[name.removeprefix(".nv.info.")] = size
    return Cubin(frozenset(functions), sizes)


def _content(data: bytes, section: tuple[int, ...]) -> bytes:
    offset, size = section[4], section[5]
    if offset + size > len(data):
        raise ValueError("a malformed cubin: a section lies outside the file")
    return data[offset : offset + size]


def _parameter_size(info: bytes) -> int | None:
    at = 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _FORMAT_SIZED:
            continue
        if attribute == _PARAM_CBANK and value >= 8:
            size: int = struct.unpack_from("<IHH", info, at)[2]
            return size
        at += value
    return None
