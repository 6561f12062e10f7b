# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder do with programs and with the store."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redirect.machine import TIMEOUT, Machine
from tessera.analysis import Access, KernelSummary
from tessera.protocol import read_summary_header
from tessera.store import KernelRecord, Store

PROGRAM = str(Path(__file__).with_name("program.py"))
SMALL = 3000  # words: all buffers lie in one granule
LARGE = 600_000  # each buffer has granules of its own
Change = Callable[[KernelSummary], KernelSummary]


@dataclasses.dataclass
class Verified:
    """One `tessera-ctl verify`."""

    status: int
    stderr: str
    trials: list[dict[str, Any]]

    def of(self, kernel: str) -> list[dict[str, Any]]:
        return [trial for trial in self.trials if trial["name"] == kernel]

    def verdicts(self, kernel: str) -> list[str]:
        return [trial["verdict"] for trial in self.of(kernel)]


def verify(machine: Machine, folder: Path, command: list[str], **more: str) -> Verified:
    report = folder / "trials.json"
    report.unlink(missing_ok=True)
    control = [sys.executable, "-m", "tessera.cli.main", "verify", "--report", str(report), "--"]
    done = subprocess.run(
        [*control, *command],
        env=machine.environment(**more),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    found = json.loads(report.read_text())["trials"] if report.exists() else []
    return Verified(done.returncode, done.stderr, found)


def command(out: Path, words: int, *kernels: str) -> list[str]:
    return [sys.executable, PROGRAM, str(out), str(words), *kernels]


def expected(machine: Machine, folder: Path, words: int, *kernels: str) -> bytes:
    """What the program gives without Tessera."""
    machine.native_run(*command(folder / "alone", words, *kernels))
    return (folder / "alone").read_bytes()


def shown(machine: Machine, kernel: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(machine.control("show", kernel, "--json"))["kernel"]
    return found


def tamper(machine: Machine, folder: Path, kernel: str, change: Change) -> None:
    """Has the program's kernels analysed, and puts a changed summary into the store."""
    machine.run(*command(folder / "first", 16, kernel))
    machine.control("down")
    with Store(machine.folder / "store.db") as store:
        [record] = [r for r in store.kernels() if r.name == kernel]
        complete = store.kernel(record.image, kernel)
        image = store.image(record.image)
        assert complete is not None and image is not None
        others = [k for k in store.kernels_of(record.image) if k.name != kernel]
        changed = change(KernelSummary.from_dict(complete.summary))
        store.save_analysis(image, [*others, with_summary(complete, changed)])
    machine.control("up")


def with_summary(record: KernelRecord, summary: KernelSummary) -> KernelRecord:
    blob = summary.to_blob()
    return dataclasses.replace(
        record,
        grade="ptx",
        reason="",
        blob=blob,
        summary=summary.to_dict(),
        properties=read_summary_header(blob).properties,
    )


def without(select: Callable[[Access], bool]) -> Change:
    """The summary without some of its accesses."""

    def change(summary: KernelSummary) -> KernelSummary:
        kept = tuple(access for access in summary.accesses if not select(access))
        assert len(kept) < len(summary.accesses)
        return dataclasses.replace(summary, accesses=kept)

    return change
