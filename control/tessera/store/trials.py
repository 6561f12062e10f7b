# SPDX-License-Identifier: Apache-2.0
"""What trials showed, and what follows from it for a stored kernel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlite_utils import Database

from tessera import protocol
from tessera.store.records import KernelRecord, TrialRecord

WRONG, PASSED = "wrong", "passed"
SUFFIX = ", shown wrong"  # of a grade
_COLUMNS = tuple(TrialRecord.__dataclass_fields__)
# A verdict is never forgotten for a better one.
_WEIGHT = {"not tried": 0, "undecided": 1, PASSED: 2, "not deterministic": 3, WRONG: 4}


def summary_digest(blob: bytes) -> str:
    """What a summary is known by, whether or not it has been marked unknown since."""
    if not blob:
        return ""
    return hashlib.blake2b(_with(blob, 0), digest_size=12).hexdigest()


def _with(blob: bytes, properties: int) -> bytes:
    try:
        return protocol.with_properties(blob, properties)
    except protocol.ProtocolError:
        return blob  # of another version of the summaries: no program takes it


def add(db: Database, record: TrialRecord) -> None:
    """Adds one trial to what is known of its launch class. Trials of another summary are void."""
    key = (record.image, record.name, record.launch_class, record.basis)
    where = "image = ? AND name = ? AND launch_class = ? AND basis = ?"
    rows = list(db.query(f"SELECT * FROM trials WHERE {where}", key))
    row = {name: getattr(record, name) for name in _COLUMNS}
    if rows and rows[0]["summary"] == record.summary:
        row["trials"] += rows[0]["trials"]
        if _WEIGHT.get(rows[0]["verdict"], 0) > _WEIGHT[record.verdict]:
            row |= {"verdict": rows[0]["verdict"], "reason": rows[0]["reason"]}
    db.table("trials").upsert(row, pk=("image", "name", "launch_class", "basis"))


def shown_wrong(db: Database, kernel: KernelRecord) -> str:
    """Why a summary must not be used although the analysis made it; empty when nothing is known
    against it."""
    query = (
        "SELECT reason FROM trials WHERE image = ? AND name = ? AND basis = 'summary' "
        "AND verdict = ? AND summary = ?"
    )
    digest = summary_digest(kernel.blob)
    rows = list(db.query(query, [kernel.image, kernel.name, WRONG, digest])) if digest else []
    return str(rows[0]["reason"]) if rows else ""


def marked_unknown(row: dict[str, Any], reason: str) -> dict[str, Any]:
    """A kernel's row with its summary kept, but of no use any more."""
    text = f"a trial showed its summary wrong: {reason}"
    properties = row["properties"] | protocol.KERNEL_UNKNOWN
    summary = json.loads(row["summary"]) if row["summary"] else {}
    if summary:
        summary["reasons"] = {**summary.get("reasons", {}), "UNKNOWN": text}
    return row | {
        "reason": text,
        "grade": row["grade"].removesuffix(SUFFIX) + SUFFIX,
        "properties": properties,
        "summary": json.dumps(summary),
        "blob": _with(row["blob"], properties),
    }


def passed_classes(records: Sequence[TrialRecord]) -> tuple[int, ...]:
    """The launch classes of an unknown kernel that passed by their words, unless another failed:
    then it does follow pointers that are not among its arguments."""
    mine = [record for record in records if record.basis == "words" and record.launch_class]
    if any(record.verdict == WRONG for record in mine):
        return ()
    return tuple(int(record.launch_class, 16) for record in mine if record.verdict == PASSED)
