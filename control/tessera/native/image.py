# SPDX-License-Identifier: Apache-2.0
"""Images: what a driver gets as a module, and the libraries that such images are packed in."""

from __future__ import annotations

import enum
import mmap
import threading
from collections.abc import Iterator
from typing import TypeAlias

from tessera.native.ptx_binding import ffi, library, text_at

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap


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


class _Contents:
    """What the library knows of one image. Refers to no Python object that refers back to it."""

    def __init__(self, data: Buffer) -> None:
        self._data = ffi().from_buffer(_plain(data))
        self.kind = ImageKind(library().ts_image_kind(self._data, len(self._data)))
        handle = library().ts_image_open(self._data, len(self._data))
        if handle == ffi().NULL:
            raise MemoryError("no memory to list an image")
        self._handle = ffi().gc(handle, library().ts_image_free)
        self._lock = threading.Lock()

    def errors(self) -> tuple[str, ...]:
        count = library().ts_image_error_count(self._handle)
        return tuple([self._error(index) for index in range(count)])

    def entries(self) -> Iterator[Entry]:
        architecture = ffi().new("uint32_t*")
        for index in range(library().ts_image_entry_count(self._handle)):
            kind = library().ts_image_entry_kind(self._handle, index, architecture)
            yield Entry(self, index, EntryKind(kind), architecture[0])

    def read(self, index: int) -> bytes:
        null, size = ffi().NULL, ffi().new("size_t*")
        with self._lock:
            payload = library().ts_image_entry(self._handle, index, null, null, size)
            if payload == null:
                raise ValueError(self._error(library().ts_image_error_count(self._handle) - 1))
            out = bytes(ffi().buffer(payload, size[0]))
            library().ts_image_drop(self._handle, index)
            return out

    def _error(self, index: int) -> str:
        return text_at(library().ts_image_error(self._handle, index))


class Entry:
    """One entry of an image; its payload is decompressed when it is asked for."""

    def __init__(self, contents: _Contents, index: int, kind: EntryKind, architecture: int) -> None:
        self._contents = contents
        self._index = index
        self.kind = kind
        self.architecture = architecture

    def __repr__(self) -> str:
        return f"<{self.kind.name} for sm_{self.architecture}>"

    def read(self) -> bytes:
        """The payload; PTX without trailing NULs. Raises ValueError when it is malformed."""
        return self._contents.read(self._index)


class Image:
    """PTX text, a cubin, a fatbin, or a library that carries fatbins."""

    def __init__(self, data: Buffer) -> None:
        contents = _Contents(data)
        self.kind = contents.kind
        self.errors = contents.errors()
        self.entries = tuple(contents.entries())


def _plain(data: Buffer) -> bytes | bytearray | mmap.mmap:
    """The object behind a memoryview: cffi crashes when garbage collection meets a view of one."""
    if not isinstance(data, memoryview):
        return data
    whole = data.obj
    if isinstance(whole, (bytes, bytearray, mmap.mmap)) and len(whole) == data.nbytes:
        return whole
    return data.tobytes()


def open_image(data: Buffer) -> Image:
    """List what an image holds. Bad input never raises: see `Image.errors`.

    `data` is kept, not copied, and must not change.
    """
    return Image(data)
