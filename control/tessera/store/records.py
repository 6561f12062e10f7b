# SPDX-License-Identifier: Apache-2.0
"""What the store keeps, as plain values. Times are seconds since 1970."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class Status(enum.StrEnum):
    """How far the knowledge of an image or a kernel goes."""

    PENDING = "pending"  # seen, not analysed
    READY = "ready"
    FAILED = "failed"  # no summary to be had; the reason says why


@dataclass(frozen=True)
class ImageRecord:
    """A module image, by the hash that the shim gives it (32 hexadecimal digits)."""

    hash: str
    size: int  # bytes
    kind: str = ""  # ptx, elf, fatbin; empty before its first analysis
    path: str = ""  # where the program loaded it from; empty: from memory
    status: Status = Status.PENDING
    reason: str = ""
    analysis_version: int = 0
    capabilities: tuple[int, ...] = ()  # the devices that the analysis holds for: 90 for sm_90
    analysis_ms: float = 0.0
    first_seen: float = 0.0
    last_seen: float = 0.0


@dataclass(frozen=True)
class KernelRecord:
    """One kernel of one image."""

    image: str
    name: str
    id: int | None = None  # index into the placement table; None: never launched
    status: Status = Status.PENDING
    reason: str = ""
    grade: str = ""
    properties: int = 0  # TS_KERNEL_*
    minimum_architecture: int = 0  # 80 for sm_80
    only_architecture: int = 0  # sm_90a: 90; 8: newer ones of 8.x; 0: all newer ones
    summary: dict[str, Any] = field(default_factory=dict)
    blob: bytes = b""
    analysis_version: int = 0
    first_seen: float = 0.0


@dataclass(frozen=True)
class TrialRecord:
    """What trials showed of one launch class of a kernel. Class "": of none in particular."""

    image: str
    name: str
    launch_class: str  # 16 hexadecimal digits
    verdict: str  # passed, wrong, not deterministic, undecided, not tried
    trials: int = 1
    reason: str = ""
    basis: str = "summary"  # what was claimed; "words": every pointer among the arguments
    shape: str = ""
    summary: str = ""  # digest of the summary that was tried
    run: str = ""  # the last run that tried it
    tried: float = 0.0


@dataclass(frozen=True)
class RulesRecord:
    """The user's rules as they typed them. Revision 0: there never were any."""

    revision: int = 0
    text: str = ""
    saved: float = 0.0


@dataclass(frozen=True)
class ProgramRecord:
    """One program that has ended, with its counters at the end."""

    pid: int
    program: str
    started: float
    ended: float
    run: str = ""  # identity that `tessera-ctl run` gave it
    build: str = ""
    state: str = ""
    counters: dict[str, Any] = field(default_factory=dict)
    id: int | None = None


@dataclass(frozen=True)
class CostRecord:
    """Measured launches of one class on one device."""

    launch_class: str
    device: str  # the driver's name of it
    launches: int
    seconds: float  # of all launches together
    squares: float = 0.0  # sum of squared seconds; 0: the spread is not known


@dataclass(frozen=True)
class ClassDependency:
    """Data that went from launches of one class to those of another."""

    source: str
    target: str
    bytes: int
    launches: int


@dataclass(frozen=True)
class Dependency:
    """Data that went from one kernel to another."""

    source: int  # kernel ids
    target: int
    bytes: int
    launches: int
