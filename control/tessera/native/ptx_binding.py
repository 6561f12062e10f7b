# SPDX-License-Identifier: Apache-2.0
"""libtessera_ptx.so through cffi: the library, and flat arrays of its structs."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import Any

import cffi

from tessera.native import NativeError, cdef_text, library_path

_LAST_TYPE = b"other"
_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}


@functools.cache
def ffi() -> Any:
    made: Any = cffi.FFI()
    made.cdef(cdef_text("tessera/ptx/capi.h"))
    return made


@functools.cache
def library() -> Any:
    """Raises NativeError when the library is missing or of another version."""
    path = library_path("libtessera_ptx.so")
    try:
        opened = ffi().dlopen(str(path))
        names: list[bytes] = []
        while (name := opened.ts_ptx_type_name(len(names))) != ffi().NULL:
            names.append(ffi().string(name))
    except (OSError, AttributeError) as error:
        raise NativeError(f"{path} can't be used: {error}; rebuild the native parts") from error
    if names[-1] != _LAST_TYPE:
        raise NativeError(f"{path} belongs to another version of Tessera; rebuild the native parts")
    return opened


@functools.cache
def _layout(name: str) -> struct.Struct:
    """The layout of a struct of capi.h, for struct.iter_unpack."""
    kind = ffi().typeof(name)
    parts, at = ["="], 0
    for _, field in kind.fields:
        size = ffi().sizeof(field.type)
        code = _FORMATS[size]
        signed = field.type.cname.startswith("int")
        parts.append(f"{field.offset - at}x{code if signed else code.upper()}")
        at = field.offset + size
    parts.append(f"{ffi().sizeof(kind) - at}x")
    return struct.Struct("".join(parts))


def records(name: str, pointer: Any, count: int) -> Iterator[tuple[int, ...]]:
    """`count` structs of that name as tuples of their fields, pointers as integers."""
    if count == 0:
        return iter(())
    layout = _layout(name)
    return layout.iter_unpack(ffi().buffer(pointer, count * layout.size))


def pointers(array: Any, count: int) -> tuple[int, ...]:
    """The addresses in an array of pointers."""
    return struct.unpack(f"={count}Q", ffi().buffer(array, count * 8)) if count else ()


def text_at(pointer: Any) -> str:
    """The C string at a pointer, given as cdata or as an address."""
    raw = ffi().string(ffi().cast("const char*", pointer))
    return str(raw.decode("utf-8", "replace"))
