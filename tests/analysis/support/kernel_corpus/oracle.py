# SPDX-License-Identifier: Apache-2.0
"""The oracle: what launches on the simulated device really touched, against their summaries."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tessera.analysis import Flag, KernelSummary, Mode, evaluate
from tessera.native.access import Range

Span = tuple[int, int]
MANY_ROWS = 1 << 18


@dataclass
class Verdict:
    """What came of comparing some launches."""

    launches: int = 0
    unknown: int = 0
    violations: list[str] = field(default_factory=list)
    touched: int = 0  # bytes, over launches with a known summary
    claimed: int = 0
    tight: int = 0  # launches with claimed/touched at most 1.05
    judged: int = 0  # launches with a known summary
    whole_writes: int = 0  # launches that write one interval per written buffer
    whole_found: int = 0  # and whose summary says so

    def add(self, other: Verdict) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        share = 100 * self.tight / max(self.judged, 1)
        must = 100 * self.whole_found / max(self.whole_writes, 1)
        return (
            f"{self.launches} launches, {self.unknown} of unknown kernels, "
            f"{len(self.violations)} violations; claimed/touched "
            f"{self.claimed / max(self.touched, 1):.3f} over all, at most 1.05 for {share:.1f} % "
            f"of launches; must-write found for {must:.1f} % of {self.whole_writes} launches"
        )


def record(
    folder: Path,
    corpus: str,
    ptx: str,
    launches: Sequence[tuple[str, int]],
    *,
    entry: str = "",
    shared: int = 0,
    timeout: float = 600,
) -> list[tuple[dict[str, Any], list[Span]]]:
    """Run launches on the simulated device: (its record, the allocations) of each.

    `entry`: the kernel that all of them launch, where its name is not the corpus's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.ptx").write_text(ptx)
    out: list[tuple[dict[str, Any], list[Span]]] = []
    place = 0
    while place < len(launches):
        job = {
            "ptx": str(folder / "module.ptx"),
            "corpus": corpus,
            "launches": list(launches),
            "skip": place,
            "entry": entry,
            "shared": shared,
            "allocations": str(folder / "allocations.json"),
        }
        done = _run(folder, job, timeout)
        out += done
        place += len(done) + 1  # one that failed ends its process, and does not count
    return out


def _run(
    folder: Path, job: dict[str, Any], timeout: float
) -> list[tuple[dict[str, Any], list[Span]]]:
    for old in folder.glob("record.*.jsonl"):
        old.unlink()
    (folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "kernel_corpus.runner", str(folder / "job.json")]
    done = subprocess.run(
        command, env=_environment(folder / "record"), capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the simulated run failed:\n{done.stderr[-3000:]}")
    (written,) = folder.glob("record.*.jsonl")
    records = [json.loads(text) for text in written.read_text().splitlines()]
    allocations = json.loads((folder / "allocations.json").read_text())
    assert len(records) - len(allocations) in (0, 1)
    return list(zip(records, allocations, strict=False))


def _environment(prefix: Path) -> dict[str, str]:
    native = Path(os.environ["TESSERA_NATIVE_DIR"])
    support = str(Path(__file__).resolve().parents[1])
    libraries = [str(native / "sim"), os.environ.get("LD_LIBRARY_PATH", "")]
    paths = [support, *(p for p in sys.path if p)]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "PYTHONPATH": ":".join(paths),
        "TESSERA_SIM_RECORD": str(prefix),
    }


def judge(
    summaries: Mapping[str, KernelSummary],
    recorded: Iterable[tuple[dict[str, Any], list[Span]]],
) -> Verdict:
    """Compare every recorded launch with its kernel's summary."""
    verdict = Verdict()
    for launch, allocations in recorded:
        verdict.launches += 1
        if launch["fault"]:
            raise RuntimeError(
                f"{launch['kernel']} failed on the simulated device: {launch['fault']}"
            )
        summary = summaries[launch["kernel"]]
        if summary.is_unknown:
            verdict.unknown += 1
            continue
        ranges = evaluate(
            summary,
            launch["grid"],
            launch["block"],
            bytes.fromhex(launch["parameters"]),
            launch["cluster"],
            launch["shared"],
        )
        _judge_one(verdict, launch, allocations, ranges)
    return verdict


def _judge_one(
    verdict: Verdict, launch: dict[str, Any], allocations: list[Span], ranges: list[Range]
) -> None:
    ours = merge((begin, begin + size) for begin, size in allocations)
    touched = claimed = 0
    for mode, key in ((Mode.READ, "reads"), (Mode.WRITE, "writes")):
        true = intersect(merge(map(tuple, launch[key])), ours)
        said = merge(s for r in ranges if r.mode & mode for s in _spans(r, allocations))
        missed = subtract(true, said)
        if missed:
            verdict.violations.append(_describe(launch, key, missed, ranges))
        touched += length(true)
        claimed += length(intersect(said, ours))
        _judge_promises(verdict, launch, mode, true, ranges)
        if mode is Mode.WRITE and true:
            _judge_whole(verdict, true, ranges, allocations)
    verdict.judged += 1
    verdict.touched += touched
    verdict.claimed += claimed
    verdict.tight += claimed <= 1.05 * touched


def _judge_promises(
    verdict: Verdict, launch: dict[str, Any], mode: Mode, true: list[Span], ranges: list[Range]
) -> None:
    """EXACT and MUST_WRITE: every byte of the range is touched."""
    for r in ranges:
        exact = r.promises & Flag.EXACT or (mode is Mode.WRITE and r.promises & Flag.MUST_WRITE)
        if r.mode & mode and exact:
            missing = subtract(merge(_rows(r)), true)
            if missing:
                verdict.violations.append(_describe(launch, "promise", missing, ranges))


def _judge_whole(
    verdict: Verdict, true: list[Span], ranges: list[Range], allocations: list[Span]
) -> None:
    """A launch whose writes are one interval per buffer: does the summary promise them?"""
    per_buffer = [intersect(true, [(begin, begin + size)]) for begin, size in allocations]
    if any(len(spans) > 1 for spans in per_buffer):
        return
    verdict.whole_writes += 1
    promised = merge(s for r in ranges if r.promises & Flag.MUST_WRITE for s in _rows(r))
    verdict.whole_found += not subtract(true, promised)


def _rows(r: Range) -> Iterator[Span]:
    """The rows of a range; their hull where they are more than any launch here has."""
    if math.prod(count for _, count in r.levels) <= MANY_ROWS:
        yield from r.rows()
    else:
        yield r.begin, r.end


def _spans(r: Range, allocations: list[Span]) -> Iterator[Span]:
    """The bytes that a range claims: its allocation where it is unbounded."""
    if not r.unbounded:
        yield from _rows(r)
    for begin, size in allocations:
        if r.unbounded and begin <= r.pointer <= begin + size:
            yield begin, begin + size


def _describe(launch: dict[str, Any], what: str, spans: list[Span], ranges: list[Range]) -> str:
    shape = f"grid {launch['grid']}, block {launch['block']}, parameters {launch['parameters']}"
    said = [
        f"[{r.begin:#x}, {r.end:#x}) mode {r.mode} flags {r.flags} {r.width, r.levels, r.row_flags}"
        for r in ranges
    ]
    where = [f"[{begin:#x}, {end:#x})" for begin, end in spans[:4]]
    return f"{launch['kernel']}: {what} {where} outside of {said}; {shape}"


# Sets of bytes as sorted, disjoint, half-open intervals.


def merge(spans: Iterable[Span]) -> list[Span]:
    out: list[Span] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def intersect(a: list[Span], b: list[Span]) -> list[Span]:
    return merge((max(x, p), min(y, q)) for x, y in a for p, q in b if max(x, p) < min(y, q))


def subtract(a: list[Span], b: list[Span]) -> list[Span]:
    out: list[Span] = []
    for begin, end in a:
        at = begin
        for p, q in b:
            if q <= at or p >= end:
                continue
            if p > at:
                out.append((at, p))
            at = max(at, q)
        if at < end:
            out.append((at, end))
    return out


def length(spans: list[Span]) -> int:
    return sum(end - begin for begin, end in spans)
