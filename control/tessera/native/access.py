# SPDX-License-Identifier: Apache-2.0
"""The native evaluator of access summaries, for tools and tests: the shim links it directly."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cffi

from tessera.native import NativeError, cdef_text, library_path

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Range:
    """What a launch may touch through one pointer: absolute addresses, half-open."""

    pointer: int
    begin: int
    end: int
    mode: int  # TS_ACCESS_READ, TS_ACCESS_WRITE
    flags: int  # TS_ACCESS_UNBOUNDED and others
    width: int = 0  # of a row, bytes; with levels only
    levels: tuple[tuple[int, int], ...] = ()  # (pitch, count): [begin, end) is the hull of rows
    row_flags: int = 0  # TS_ACCESS_EXACT, TS_ACCESS_MUST_WRITE of the rows

    @property
    def unbounded(self) -> bool:
        return bool(self.flags & 1)

    @property
    def promises(self) -> int:
        """TS_ACCESS_EXACT and TS_ACCESS_MUST_WRITE, of the interval or of its rows."""
        return (self.row_flags if self.levels else self.flags) & (2 | 8)

    def rows(self) -> Iterator[tuple[int, int]]:
        """Every row as [begin, end): the interval itself where there are no levels."""
        width = self.width if self.levels else self.end - self.begin
        for place in itertools.product(*(range(count) for _, count in self.levels)):
            steps = zip(place, self.levels, strict=True)
            begin = self.begin + sum(i * pitch for i, (pitch, _) in steps)
            yield begin, begin + width


def validate(blob: bytes) -> bool:
    """Whether the evaluator accepts a blob as a summary."""
    return _aligned(blob)[1]


def evaluate(
    blob: bytes,
    grid: Dim3,
    block: Dim3,
    parameters: bytes,
    cluster: Dim3 = (1, 1, 1),
    dynamic_shared: int = 0,
) -> list[Range]:
    """The byte ranges of one launch. Raises ValueError when the blob is malformed or the
    parameters are too short for it."""
    ffi, library = _ffi(), _library()
    data, good = _aligned(blob)
    if not good:
        raise ValueError("not an access summary of this version")
    block_of_parameters = ffi.from_buffer("uint8_t[]", parameters or b"\0")
    shape = ffi.new("ts_launch_shape*")
    shape.parameters = block_of_parameters
    shape.parameter_size = len(parameters)
    shape.grid, shape.block, shape.cluster = grid, block, cluster
    shape.dynamic_shared = dynamic_shared
    capacity = library.TS_SUMMARY_MAX_ACCESSES
    ranges = ffi.new("ts_range[]", capacity)
    count = ffi.new("uint32_t*")
    status = library.ts_summary_evaluate(data, shape, ranges, capacity, count)
    if status != library.TS_EVALUATE_OK:
        raise ValueError(f"the summary could not be evaluated: status {status}")
    return [
        Range(r.pointer, r.begin, r.end, r.mode, r.flags, *_levels(r))
        for r in (ranges[i] for i in range(count[0]))
    ]


def _levels(found: Any) -> tuple[int, tuple[tuple[int, int], ...], int]:
    if not found.n_levels:
        return 0, (), 0
    pairs = tuple((found.pitch[i], found.count[i]) for i in range(found.n_levels))
    return found.width, pairs, found.row_flags


def constants() -> dict[str, int]:
    """Every enumerator of summary.h, by name."""
    ffi = _ffi()
    names = {}
    for name in dir(_library()):
        value = getattr(_library(), name)
        if isinstance(value, int):
            names[name] = value
    assert ffi.sizeof("ts_node") == 24
    return names


def sizes() -> dict[str, int]:
    """Sizes of the structs that a blob is made of, in bytes."""
    return {name: _ffi().sizeof(name) for name in ("ts_summary", "ts_node", "ts_access")}


def _aligned(blob: bytes) -> tuple[Any, bool]:
    """A copy at an aligned address, and whether it is valid."""
    ffi, library = _ffi(), _library()
    words = ffi.new("uint64_t[]", (len(blob) + 7) // 8 or 1)
    ffi.memmove(words, blob, len(blob))
    return words, library.ts_summary_validate(words, len(blob)) == library.TS_EVALUATE_OK


@functools.cache
def _ffi() -> Any:
    ffi: Any = cffi.FFI()
    ffi.cdef(cdef_text("tessera/access/summary.h"))
    return ffi


@functools.cache
def _library() -> Any:
    path = library_path("libtessera_access.so")
    try:
        return _ffi().dlopen(str(path))
    except OSError as error:
        raise NativeError(f"{path} cannot be loaded: {error}") from error
