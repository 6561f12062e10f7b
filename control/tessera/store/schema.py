# SPDX-License-Identifier: Apache-2.0
"""The tables of the store, as a list of migrations: number n brings version n - 1 to n.

A migration that has been released is never changed; a new one is added at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlite_utils import Database

APPLICATION_ID = 0x54455353  # "TESS": tells a store from other SQLite files

Migration = Callable[[Database], None]


def _first_tables(db: Database) -> None:
    db.table("settings").create({"key": str, "value": str}, pk="key")
    db.table("images").create(
        {
            "hash": str,
            "size": int,
            "kind": str,
            "path": str,
            "status": str,
            "reason": str,
            "analysis_version": int,
            "capabilities": str,
            "analysis_ms": float,
            "first_seen": float,
            "last_seen": float,
        },
        pk="hash",
    )
    db.table("kernels").create(
        {
            "image": str,
            "name": str,
            "id": int,
            "status": str,
            "reason": str,
            "grade": str,
            "properties": int,
            "minimum_architecture": int,
            "only_architecture": int,
            "summary": str,
            "blob": bytes,
            "analysis_version": int,
            "first_seen": float,
        },
        pk=("image", "name"),
        foreign_keys=[("image", "images", "hash")],
    )
    db.table("kernels").create_index(["id"], unique=True)
    db.table("rules").create({"revision": int, "text": str, "saved": float}, pk="revision")
    _history_tables(db)


def _history_tables(db: Database) -> None:
    db.table("programs").create(
        {
            "id": int,
            "pid": int,
            "program": str,
            "run": str,
            "build": str,
            "state": str,
            "started": float,
            "ended": float,
            "counters": str,
        },
        pk="id",
    )
    db.table("programs").create_index(["run"])
    db.table("dependencies").create(
        {"source": int, "target": int, "bytes": int, "launches": int}, pk=("source", "target")
    )


def _cost_tables(db: Database) -> None:
    """Times and data flow by launch class: what placements are planned from."""
    db.table("costs").create(
        {
            "launch_class": str,
            "device": str,
            "launches": int,
            "seconds": float,
            "squares": float,
        },
        pk=("launch_class", "device"),
    )
    db.table("class_dependencies").create(
        {"source": str, "target": str, "bytes": int, "launches": int}, pk=("source", "target")
    )


def _trial_tables(db: Database) -> None:
    """What trials of launches have shown."""
    db.table("trials").create(
        {
            "image": str,
            "name": str,
            "launch_class": str,
            "verdict": str,
            "trials": int,
            "reason": str,
            "basis": str,
            "shape": str,
            "summary": str,
            "run": str,
            "tried": float,
        },
        pk=("image", "name", "launch_class", "basis"),
    )
    db.table("trials").create_index(["run"])


MIGRATIONS: tuple[Migration, ...] = (_first_tables, _cost_tables, _trial_tables)


def version_of(db: Database) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def application_of(db: Database) -> int:
    return int(db.execute("PRAGMA application_id").fetchone()[0])


def migrate(db: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Brings the tables to the newest version. Called inside a transaction."""
    for number in range(version_of(db), len(migrations)):
        migrations[number](db)
    db.execute(f"PRAGMA user_version = {len(migrations)}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
