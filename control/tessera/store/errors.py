# SPDX-License-Identifier: Apache-2.0
"""Why a store cannot be used, in words for the user."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class StoreError(Exception):
    """The message names the file and says what to do."""


class CorruptStoreError(StoreError):
    """The file is damaged, or no store at all. It is left as it is."""

    def __init__(self, path: Path, why: str) -> None:
        why = " ".join(why.split())
        super().__init__(
            f"{path} cannot be read as a store: {why}. Move it away and start again "
            f"(mv {path} {path}.damaged): summaries are made anew, rules and history are lost"
        )


class NewerStoreError(StoreError):
    """The file was written by a newer Tessera."""

    def __init__(self, path: Path, theirs: int, ours: int) -> None:
        super().__init__(
            f"{path} has schema version {theirs}, this Tessera knows versions up to {ours}: "
            "use the newer Tessera, or set TESSERA_STORE to another file"
        )


class StoreUnavailableError(StoreError):
    """The file cannot be written: read-only, full, locked, or in a folder that cannot be made."""

    def __init__(self, path: Path, why: str) -> None:
        self.why = why
        super().__init__(f"{path}: {why}")


_UNAVAILABLE = {
    sqlite3.SQLITE_PERM: "no permission",
    sqlite3.SQLITE_BUSY: "another process has kept it locked",
    sqlite3.SQLITE_LOCKED: "another process has kept it locked",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or made",
}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def translate(path: Path, error: sqlite3.Error) -> StoreError | None:
    """The store's own error for one of SQLite's; None for what is a fault in the code."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & 0xFF
    if primary in _CORRUPT:
        return CorruptStoreError(path, str(error))
    if primary in _UNAVAILABLE:
        return StoreUnavailableError(path, f"{_UNAVAILABLE[primary]} ({error})")
    return None
