# SPDX-License-Identifier: Apache-2.0
"""Trials as the controller hears of them from programs, and as it tells of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

from tessera import protocol
from tessera.protocol import Verdict
from tessera.store import KernelRecord, Store, TrialRecord, passed_classes

Tried = dict[tuple[str, str], list[TrialRecord]]
_WORDS = {
    Verdict.PASSED: "passed",
    Verdict.WRONG: "wrong",
    Verdict.NOT_DETERMINISTIC: "not deterministic",
    Verdict.UNDECIDED: "undecided",
    Verdict.NOT_TRIED: "not tried",
}


def record_of(tried: protocol.Tried, run: str) -> TrialRecord:
    """A message of a program of that run as it is stored."""
    return TrialRecord(
        image=tried.image,
        name=tried.name,
        launch_class=f"{tried.launch_class:016x}" if tried.launch_class else "",
        verdict=_WORDS[tried.verdict],
        trials=0 if tried.verdict == Verdict.NOT_TRIED else 1,
        reason=tried.reason,
        basis="words" if tried.by_words else "summary",
        shape=_shape(tried),
        run=run,
        tried=time.time(),
    )


def _shape(tried: protocol.Tried) -> str:
    """Grid and block as launches are written down: 4x2 x 128."""
    if not tried.launch_class:
        return ""
    shared = f" + {tried.dynamic_shared} B" if tried.dynamic_shared else ""
    return f"{_sizes(tried.grid)} x {_sizes(tried.block)}{shared}"


def _sizes(sizes: tuple[int, ...]) -> str:
    """Without ones at the end: (4, 2, 1) is 4x2."""
    used = max((i + 1 for i, size in enumerate(sizes) if size != 1), default=1)
    return "x".join(str(size) for size in sizes[:used])


def verified_kernels(store: Store) -> frozenset[tuple[str, str]]:
    """Unknown kernels, as image and name, with a launch class that passed and none that failed."""
    return frozenset(
        key for key, records in by_kernel(store.trials()).items() if passed_classes(records)
    )


def by_kernel(records: Iterable[TrialRecord]) -> Tried:
    """Records by image and name."""
    found: Tried = {}
    for record in records:
        found.setdefault((record.image, record.name), []).append(record)
    return found


def summed_up(kernel: KernelRecord, tried: Tried) -> dict[str, str]:
    """What `kernels` and `show` say of a kernel beside its placement."""
    records = tried.get((kernel.image, kernel.name), [])
    return {"grade_word": grade_word(kernel), "trials": verdict_of(records)}


def described(records: Iterable[TrialRecord], kernels: dict[tuple[str, str], KernelRecord]) -> Any:
    """Trials as JSON, each with its kernel's grade and properties."""
    found = []
    for record in records:
        kernel = kernels.get((record.image, record.name))
        found.append(
            dataclasses.asdict(record)
            | {
                "verdict": word_of(record),
                "grade": grade_word(kernel) if kernel else "unknown",
                "properties": protocol.property_words(kernel.properties) if kernel else [],
            }
        )
    return found


def grade_word(kernel: KernelRecord) -> str:
    """exact, attributed, conservative or unknown; empty for a kernel that was never analysed."""
    if not kernel.grade:
        return "unknown" if kernel.blob or kernel.reason else ""
    if kernel.properties & protocol.KERNEL_UNKNOWN:
        return "unknown"
    return {"ptx": "exact"}.get(kernel.grade, kernel.grade.removeprefix("sass "))


def word_of(record: TrialRecord) -> str:
    """The verdict as users get to read it. Claims that are no summary's are not wrong when they
    fail: nobody has vouched for them."""
    return "failed" if record.verdict == "wrong" and record.basis == "words" else record.verdict


def verdict_of(records: Iterable[TrialRecord]) -> str:
    """One phrase for all trials of a kernel; empty when there were none."""
    counts: dict[str, int] = {}
    for record in records:
        if record.launch_class:
            word = word_of(record)
            counts[word] = counts.get(word, 0) + 1
    order = ("wrong", "failed", "not deterministic", "undecided", "passed")
    return ", ".join(f"{word} {counts[word]}" for word in order if word in counts)
