# SPDX-License-Identifier: Apache-2.0
"""The native artefacts of Tessera: where they are, and their C headers for cffi."""

from __future__ import annotations

import os
from pathlib import Path

from tessera.settings import header_path

_BEGIN, _END = "/* cdef begin */", "/* cdef end */"


class NativeError(Exception):
    """A native artefact is missing or does not fit; the message says what to do."""


def native_folder() -> Path:
    """The folder of libtessera.so and the other artefacts; it need not exist.

    TESSERA_NATIVE_DIR names it during development; otherwise it lies in the package.
    """
    if given := os.environ.get("TESSERA_NATIVE_DIR"):
        return Path(given)
    return Path(__file__).resolve().parent.parent / "_native"


def library_path(name: str) -> Path:
    """The path of an artefact, such as `libtessera_ptx.so`. Raises NativeError if it is missing."""
    path = native_folder() / name
    if path.is_file():
        return path
    if os.environ.get("TESSERA_NATIVE_DIR"):
        advice = "TESSERA_NATIVE_DIR names that folder: build the native parts, or unset it"
    else:
        advice = "reinstall Tessera, or set TESSERA_NATIVE_DIR to the native_out folder of a build"
    raise NativeError(f"{path} does not exist; {advice}")


def cdef_text(header: str) -> str:
    """The part between the cdef markers of a header such as `tessera/ptx/capi.h`."""
    text = header_path(header).read_text("utf-8")
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        raise NativeError(f"{header}: no text between {_BEGIN} and {_END}")
    return text[begin + len(_BEGIN) : end]
