# SPDX-License-Identifier: Apache-2.0
"""The operations on the store, each of them one transaction."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from tessera import protocol
from tessera.store import trials as trial_rows
from tessera.store.connection import Connection
from tessera.store.errors import StoreError
from tessera.store.records import (
    ClassDependency,
    CostRecord,
    Dependency,
    ImageRecord,
    KernelRecord,
    ProgramRecord,
    RulesRecord,
    Status,
    TrialRecord,
)

KEPT_PROGRAMS = 1000
KEPT_RULES = 100
KEPT_BYTES = 1 << 30
UNUSED_AFTER = 30 * 86400.0  # seconds: what was seen since then is never pruned


_Columns = tuple[tuple[str, ...], tuple[str, ...]]  # of a key, and of what is summed up
_EDGE: _Columns = (("source", "target"), ("bytes", "launches"))
_COST: _Columns = (("launch_class", "device"), ("launches", "seconds", "squares"))


class RulesChangedError(StoreError):
    """Somebody else saved rules after the text that is being saved was read."""


class Store:
    """Images, kernels, rules and history. Not safe for several threads at once.

    Every method raises StoreError when the file fails and falling back to memory is not
    wanted or not possible.
    """

    def __init__(self, path: Path, *, fall_back: bool = False, busy_timeout: float = 5.0) -> None:
        self.path = path
        self._connection = Connection(path, fall_back=fall_back, busy_timeout=busy_timeout)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def memory_reason(self) -> str | None:
        """Why nothing is written to the file any more; None while all is well."""
        return self._connection.memory_reason

    # Images and kernels

    def image(self, image_hash: str) -> ImageRecord | None:
        rows = self._rows("SELECT * FROM images WHERE hash = ?", [image_hash])
        return _image(rows[0]) if rows else None

    def images(self) -> list[ImageRecord]:
        return [_image(row) for row in self._rows("SELECT * FROM images ORDER BY first_seen, hash")]

    def touch_image(self, image_hash: str, now: float | None = None) -> None:
        """Notes that the image was asked for."""
        seen = time.time() if now is None else now
        self._execute("UPDATE images SET last_seen = ? WHERE hash = ?", [seen, image_hash])

    def kernels(self, *, launched_only: bool = False) -> list[KernelRecord]:
        """All kernels without their summaries and blobs; those with an id first, by id."""
        columns = (
            "image, name, id, status, reason, grade, properties, minimum_architecture, "
            "only_architecture, analysis_version, first_seen"
        )
        where = "WHERE id IS NOT NULL" if launched_only else ""
        order = "ORDER BY id IS NULL, id, image, name"
        return [
            _kernel(row) for row in self._rows(f"SELECT {columns} FROM kernels {where} {order}")
        ]

    def kernels_of(self, image_hash: str) -> list[KernelRecord]:
        """The kernels of one image, complete."""
        rows = self._rows("SELECT * FROM kernels WHERE image = ? ORDER BY name", [image_hash])
        return [_kernel(row) for row in rows]

    def kernel(self, image_hash: str, name: str) -> KernelRecord | None:
        """One kernel, complete."""
        rows = self._rows("SELECT * FROM kernels WHERE image = ? AND name = ?", [image_hash, name])
        return _kernel(rows[0]) if rows else None

    def claim(
        self, image: ImageRecord, name: str, capacity: int = protocol.MAX_KERNELS
    ) -> KernelRecord:
        """The kernel with an id, which it keeps for ever; without one when none is left.

        Image and kernel are made, as pending, when they are not known.
        """

        def operation(db: Database) -> KernelRecord:
            now = time.time()
            if not list(db.query("SELECT 1 FROM images WHERE hash = ?", [image.hash])):
                db.table("images").insert(_image_row(image, now))
            key = [image.hash, name]
            select = "SELECT * FROM kernels WHERE image = ? AND name = ?"
            rows = list(db.query(select, key))
            if not rows:
                fresh = KernelRecord(image.hash, name, first_seen=now)
                db.table("kernels").insert(_kernel_row(fresh))
            if not rows or rows[0]["id"] is None:
                db.execute(
                    "UPDATE kernels SET id = ? WHERE image = ? AND name = ?",
                    [_free_id(db, capacity), *key],
                )
                rows = list(db.query(select, key))
            return _kernel(rows[0])

        return self._connection.write(operation)

    def save_analysis(self, image: ImageRecord, kernels: Iterable[KernelRecord]) -> None:
        """Stores what an analysis found. Ids are kept; kernels that it did not find have failed."""

        def operation(db: Database) -> None:
            now = time.time()
            known = list(db.query("SELECT first_seen FROM images WHERE hash = ?", [image.hash]))
            first = known[0]["first_seen"] if known else now
            db.table("images").upsert(_image_row(image, now) | {"first_seen": first}, pk="hash")
            found = (
                "the PTX of the image has no kernel of this name"
                if image.status == Status.READY
                else ""
            )
            db.execute(
                "UPDATE kernels SET status = ?, reason = ?, blob = x'', summary = '{}' "
                "WHERE image = ?",
                [Status.FAILED, found or image.reason, image.hash],
            )
            for kernel in kernels:
                _upsert_kernel(db, kernel, now)

        self._connection.write(operation)

    def prune(self, keep_bytes: int = KEPT_BYTES, now: float | None = None) -> int:
        """Drops the images unused for longest while the file is too large; returns how many.

        What a running program may still refer to was seen lately, and stays.
        """

        def operation(db: Database) -> int:
            seen = (time.time() if now is None else now) - UNUSED_AFTER
            count = 0
            query = "SELECT hash FROM images WHERE last_seen < ? ORDER BY last_seen"
            for row in list(db.query(query, [seen])):
                if _used_bytes(db) <= keep_bytes:
                    break
                db.execute("DELETE FROM kernels WHERE image = ?", [row["hash"]])
                db.execute("DELETE FROM trials WHERE image = ?", [row["hash"]])
                db.execute("DELETE FROM images WHERE hash = ?", [row["hash"]])
                count += 1
            return count

        return self._connection.write(operation)

    # Trials

    def add_trial(self, record: TrialRecord) -> KernelRecord | None:
        """Adds what a trial showed. A kernel whose summary it shows wrong is marked, and returned.

        Nothing is known of a kernel that is not stored: then nothing is added.
        """

        def operation(db: Database) -> KernelRecord | None:
            key = [record.image, record.name]
            select = "SELECT * FROM kernels WHERE image = ? AND name = ?"
            rows = list(db.query(select, key))
            if not rows:
                return None
            digest = trial_rows.summary_digest(rows[0]["blob"])
            trial_rows.add(db, dataclasses.replace(record, summary=digest))
            if record.verdict != trial_rows.WRONG or record.basis != "summary" or not digest:
                return None
            if not rows[0]["properties"] & protocol.KERNEL_UNKNOWN:
                row = trial_rows.marked_unknown(rows[0], record.reason)
                db.table("kernels").upsert(row, pk=("image", "name"))
            return _kernel(next(db.query(select, key)))

        return self._connection.write(operation)

    def trials(
        self, *, run: str | None = None, kernel: tuple[str, str] | None = None
    ) -> list[TrialRecord]:
        """Of one run, of one kernel (image and name), or all."""
        where, parameters = "", []
        if run is not None:
            where, parameters = "WHERE run = ?", [run]
        elif kernel is not None:
            where, parameters = "WHERE image = ? AND name = ?", [*kernel]
        order = "ORDER BY name, image, launch_class"
        rows = self._rows(f"SELECT * FROM trials {where} {order}", parameters)
        return [TrialRecord(**row) for row in rows]

    # Rules and settings

    def rules(self) -> RulesRecord:
        rows = self._rows("SELECT * FROM rules ORDER BY revision DESC LIMIT 1")
        return RulesRecord(**rows[0]) if rows else RulesRecord()

    def save_rules(self, text: str, base_revision: int | None = None) -> RulesRecord:
        """Makes the text the rules. Raises RulesChangedError when the base is not the newest."""

        def operation(db: Database) -> RulesRecord:
            newest = db.execute("SELECT coalesce(max(revision), 0) FROM rules").fetchone()[0]
            if base_revision is not None and newest != base_revision:
                raise RulesChangedError(
                    f"the rules were changed meanwhile (revision {newest}, not {base_revision})"
                )
            record = RulesRecord(newest + 1, text, time.time())
            db.table("rules").insert(
                {"revision": record.revision, "text": text, "saved": record.saved}
            )
            db.execute("DELETE FROM rules WHERE revision <= ?", [record.revision - KEPT_RULES])
            return record

        return self._connection.write(operation)

    def setting(self, key: str, default: str = "") -> str:
        rows = self._rows("SELECT value FROM settings WHERE key = ?", [key])
        return str(rows[0]["value"]) if rows else default

    def save_setting(self, key: str, value: str) -> None:
        self._execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", [key, value])

    # History

    def add_program(self, record: ProgramRecord) -> None:
        def operation(db: Database) -> None:
            row = {name: getattr(record, name) for name in _PROGRAM_COLUMNS}
            row["counters"] = json.dumps(record.counters)
            db.table("programs").insert(row)
            db.execute(
                "DELETE FROM programs WHERE id <= (SELECT max(id) FROM programs) - ?",
                [KEPT_PROGRAMS],
            )

        self._connection.write(operation)

    def programs(
        self, *, run: str | None = None, limit: int = KEPT_PROGRAMS
    ) -> list[ProgramRecord]:
        """Programs that have ended, newest first."""
        where, parameters = ("WHERE run = ?", [run]) if run is not None else ("", [])
        rows = self._rows(
            f"SELECT * FROM programs {where} ORDER BY id DESC LIMIT ?", [*parameters, limit]
        )
        return [ProgramRecord(**(row | {"counters": json.loads(row["counters"])})) for row in rows]

    def add_dependencies(self, edges: Iterable[Dependency]) -> None:
        """Adds to what is known about data that goes from kernel to kernel."""
        self._accumulate("dependencies", _EDGE, edges)

    def dependencies(self) -> list[Dependency]:
        return [
            Dependency(**row)
            for row in self._rows("SELECT * FROM dependencies ORDER BY source, target")
        ]

    # Costs

    def add_costs(self, records: Iterable[CostRecord]) -> None:
        """Adds measured launches to what is known of their classes and devices."""
        self._accumulate("costs", _COST, records)

    def costs(self) -> list[CostRecord]:
        rows = self._rows("SELECT * FROM costs ORDER BY launch_class, device")
        return [CostRecord(**row) for row in rows]

    def add_class_dependencies(self, edges: Iterable[ClassDependency]) -> None:
        """Adds to what is known about data that goes from launch class to launch class."""
        self._accumulate("class_dependencies", _EDGE, edges)

    def class_dependencies(self) -> list[ClassDependency]:
        rows = self._rows("SELECT * FROM class_dependencies ORDER BY source, target")
        return [ClassDependency(**row) for row in rows]

    def _accumulate(self, table: str, columns: _Columns, records: Iterable[object]) -> None:
        """Inserts records, or adds their sums to those of the row with the same key."""
        key, sums = columns
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in sums)
        statement = (
            f"INSERT INTO {table} ({', '.join(key + sums)}) "
            f"VALUES ({', '.join('?' for _ in key + sums)}) "
            f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}"
        )

        def operation(db: Database) -> None:
            for record in records:
                db.execute(statement, [getattr(record, name) for name in key + sums])

        self._connection.write(operation)

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        return self._connection.read(lambda db: list(db.query(sql, list(parameters))))

    def _execute(self, sql: str, parameters: Sequence[object]) -> None:
        self._connection.write(lambda db: db.execute(sql, list(parameters)))


_PROGRAM_COLUMNS = ("pid", "program", "run", "build", "state", "started", "ended")
_KERNEL_COLUMNS = (
    "image",
    "name",
    "id",
    "status",
    "reason",
    "grade",
    "properties",
    "minimum_architecture",
    "only_architecture",
    "analysis_version",
    "first_seen",
)


def _image(row: dict[str, Any]) -> ImageRecord:
    capabilities = tuple(json.loads(row["capabilities"]))
    return ImageRecord(**(row | {"status": Status(row["status"]), "capabilities": capabilities}))


def _image_row(image: ImageRecord, now: float) -> dict[str, Any]:
    return {
        "hash": image.hash,
        "size": image.size,
        "kind": image.kind,
        "path": image.path,
        "status": image.status,
        "reason": image.reason,
        "analysis_version": image.analysis_version,
        "capabilities": json.dumps(list(image.capabilities)),
        "analysis_ms": image.analysis_ms,
        "first_seen": image.first_seen or now,
        "last_seen": now,
    }


def _kernel(row: dict[str, Any]) -> KernelRecord:
    values = {name: row[name] for name in _KERNEL_COLUMNS} | {"status": Status(row["status"])}
    summary = json.loads(row["summary"]) if row.get("summary") else {}
    return KernelRecord(**values, summary=summary, blob=row.get("blob") or b"")


def _kernel_row(kernel: KernelRecord) -> dict[str, Any]:
    row = {name: getattr(kernel, name) for name in _KERNEL_COLUMNS}
    return row | {"summary": json.dumps(kernel.summary), "blob": kernel.blob}


def _upsert_kernel(db: Database, kernel: KernelRecord, now: float) -> None:
    known = list(
        db.query(
            "SELECT id, first_seen FROM kernels WHERE image = ? AND name = ?",
            [kernel.image, kernel.name],
        )
    )
    row = _kernel_row(kernel)
    row |= known[0] if known else {"first_seen": kernel.first_seen or now}
    if wrong := trial_rows.shown_wrong(db, kernel):
        row = trial_rows.marked_unknown(row, wrong)
    db.table("kernels").upsert(row, pk=("image", "name"))


def _free_id(db: Database, capacity: int) -> int | None:
    """The next id; once those have run out, the smallest that pruning has set free."""
    following: int = db.execute("SELECT coalesce(max(id) + 1, 0) FROM kernels").fetchone()[0]
    if following < capacity:
        return following
    if db.execute("SELECT 1 FROM kernels WHERE id = 0").fetchone() is None:
        return 0 if capacity else None
    gap: int | None = db.execute(
        "SELECT min(id) + 1 FROM kernels AS a WHERE id IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM kernels AS b WHERE b.id = a.id + 1)"
    ).fetchone()[0]
    return gap if gap is not None and gap < capacity else None


def _used_bytes(db: Database) -> int:
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
