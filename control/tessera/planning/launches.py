# SPDX-License-Identifier: Apache-2.0
"""What a program launches: the sequence that plans are made for.

Bytes and operations are of one launch. Addresses are the program's own, or those that a
generator made up: only whether two ranges overlap matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Range:
    """Bytes from `begin` up to, and without, `end`."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Work:
    """What a launch does, for the roofline."""

    flops: float = 0.0
    kind: str = "f32"  # the rate that the operations run at: "tensor_bf16"
    memory: float = 0.0  # bytes to and from device memory
    family: str = "memory"  # which efficiency applies: gemm, attention, memory, scan, conv


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Launches of one class behave alike: same kernel, shape and scalars."""

    kernel: str
    launch_class: str
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    work: Work | None = None  # None: nothing but measurements can tell its time
    role: str = ""  # what coarser splits go by: attention, projection, ffn, other


@dataclass(frozen=True)
class Job:
    """A stretch of launches in one stream, run `count` times for each unit of work.

    Jobs of a unit run side by side; what one hands to another is there for the next unit.
    """

    name: str  # prefill, decode, denoise
    launches: tuple[Launch, ...]
    count: float = 1.0


@dataclass(frozen=True)
class Region:
    """An allocation that keeps its content from unit to unit: weights, or a request's state."""

    name: str
    range: Range
    per_slot: bool = False  # each unit in flight has its own, as with KV caches


@dataclass(frozen=True)
class Workload:
    """All jobs of one unit of work, and what they keep in memory."""

    name: str
    jobs: tuple[Job, ...]
    regions: tuple[Region, ...] = ()
    outputs: float = 1.0  # tokens or images that a unit brings forth
    requests: float = 1.0  # requests that a unit completes
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def launches(self) -> Sequence[tuple[Job, Launch]]:
        return [(job, launch) for job in self.jobs for launch in job.launches]
