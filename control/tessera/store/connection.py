# SPDX-License-Identifier: Apache-2.0
"""One connection to a store file, which gives way to memory when the file cannot be written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from tessera.store import schema
from tessera.store.errors import (
    CorruptStoreError,
    NewerStoreError,
    StoreError,
    StoreUnavailableError,
    translate,
)

T = TypeVar("T")


class Connection:
    """Runs operations on the store's database.

    With `fall_back`, a file that cannot be written is copied into memory and left alone from
    then on; `memory_reason` says why. Not safe for several threads at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        fall_back: bool = False,
        busy_timeout: float = 5.0,
        migrations: Sequence[schema.Migration] = schema.MIGRATIONS,
    ) -> None:
        """Raises StoreError; with `fall_back` only for damaged and newer files."""
        self.path = path
        self.memory_reason: str | None = None
        self._fall_back = fall_back
        self._busy_timeout = busy_timeout
        self._migrations = migrations
        self._db: Database | None = None
        try:
            self._db = self._open_file()
        except StoreUnavailableError as error:
            if not fall_back:
                raise
            self._to_memory(error.why)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def read(self, operation: Callable[[Database], T]) -> T:
        """The result of an operation that only reads."""
        return self._run(operation)

    def write(self, operation: Callable[[Database], T]) -> T:
        """The result of an operation, all of whose changes are made or none.

        The operation may be called a second time, on the copy in memory.
        """

        def in_transaction(db: Database) -> T:
            with transaction(db):
                return operation(db)

        return self._run(in_transaction)

    def _run(self, operation: Callable[[Database], T]) -> T:
        try:
            return operation(self._open_database())
        except sqlite3.Error as error:
            ours = translate(self.path, error)
            if ours is None:
                raise
            if not self._fall_back or self.memory_reason is not None:
                raise ours from error
            self._to_memory(ours.why if isinstance(ours, StoreUnavailableError) else str(error))
            return operation(self._open_database())

    def _open_database(self) -> Database:
        if self._db is None:
            raise StoreError(f"{self.path}: the store has been closed")
        return self._db

    def _open_file(self) -> Database:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"its folder cannot be made ({error.strerror})"
            raise StoreUnavailableError(self.path, why) from error
        db: Database | None = None
        try:
            db = self._connect(str(self.path))
            self._check(db)
            db.enable_wal()
            db.execute("PRAGMA synchronous=NORMAL")
            with transaction(db):
                # Writes even when there is nothing to migrate: shows at once that writing works.
                schema.migrate(db, self._migrations)
            return db
        except (sqlite3.Error, StoreError) as error:
            if db is not None:
                db.close()
            ours = translate(self.path, error) if isinstance(error, sqlite3.Error) else error
            raise (ours or error) from error

    def _connect(self, name: str, uri: bool = False) -> Database:
        connection = sqlite3.connect(
            name, uri=uri, timeout=self._busy_timeout, check_same_thread=False
        )
        try:
            return Database(connection, execute_plugins=False)
        except sqlite3.Error:
            connection.close()
            raise

    def _check(self, db: Database) -> None:
        """Whether the file is a store that this code may touch."""
        # In this order: another process may create the store meanwhile, all at once.
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        version, application = schema.version_of(db), schema.application_of(db)
        if not empty and application != schema.APPLICATION_ID:
            raise CorruptStoreError(self.path, "it is the database of another program")
        if version > len(self._migrations):
            raise NewerStoreError(self.path, version, len(self._migrations))
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise CorruptStoreError(self.path, found)

    def _to_memory(self, why: str) -> None:
        memory = self._connect(":memory:")
        source, self._db = self._db, None
        with contextlib.suppress(sqlite3.Error, StoreError):
            # What cannot be copied is made anew: better to serve without it than not at all.
            self._copy(source, memory)
        if source is not None:
            source.close()
        with transaction(memory):
            schema.migrate(memory, self._migrations)
        self._db = memory
        self.memory_reason = f"{self.path}: {why}"

    def _copy(self, source: Database | None, memory: Database) -> None:
        if source is None and not self.path.is_file():
            return
        if source is not None:
            source.conn.backup(memory.conn)
            return
        # `immutable`: a database in WAL mode in a folder that is read-only opens no other way.
        for options in ("mode=ro", "mode=ro&immutable=1"):
            with contextlib.suppress(sqlite3.Error):
                file = self._connect(f"{self.path.absolute().as_uri()}?{options}", uri=True)
                try:
                    self._check(file)
                    file.conn.backup(memory.conn)
                    return
                finally:
                    file.close()


@contextlib.contextmanager
def transaction(db: Database) -> Iterator[None]:
    """All or nothing. Takes the write lock at once: a reader that turns writer cannot wait."""
    db.conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.conn.execute("COMMIT")
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")
        raise
