# SPDX-License-Identifier: Apache-2.0
"""Writes launches down: gives out addresses, and counts operations and bytes."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.planning.launches import Job, Launch, Range, Region, Work

ELEMENT = 2  # bytes of a bf16 number
_ALIGNMENT = 512


class Memory:
    """Made-up addresses. What is asked for twice under one name is one allocation."""

    def __init__(self) -> None:
        self._next = 1 << 32
        self._known: dict[str, Range] = {}
        self.regions: list[Region] = []

    def temporary(self, name: str, size: float) -> Range:
        """Activations: the same memory serves every layer, as an allocator would have it."""
        return self._allocate(f"t.{name}.{size:.0f}", size)

    def weights(self, name: str, size: float) -> Range:
        return self._kept(name, size, False)

    def state(self, name: str, size: float) -> Range:
        """What the requests of one unit in flight keep: KV cache, state-space state."""
        return self._kept(name, size, True)

    def _kept(self, name: str, size: float, per_slot: bool) -> Range:
        known = name in self._known
        found = self._allocate(name, size)
        if not known:
            self.regions.append(Region(name, found, per_slot))
        return found

    def _allocate(self, name: str, size: float) -> Range:
        if name not in self._known:
            begin = self._next
            self._known[name] = Range(begin, begin + max(1, int(size)))
            self._next = (begin + int(size) + 2 * _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
        return self._known[name]


def part(whole: Range, size: float) -> Range:
    """The first `size` bytes of a range."""
    return Range(whole.begin, min(whole.end, whole.begin + max(1, int(size))))


class Tape:
    """The launches of one job, in order."""

    def __init__(self, memory: Memory, name: str) -> None:
        self.memory, self.name = memory, name
        self._launches: list[Launch] = []

    def job(self, count: float) -> Job:
        return Job(self.name, tuple(self._launches), count)

    def launch(
        self,
        kernel: str,
        reads: Iterable[Range],
        writes: Iterable[Range],
        work: Work,
        role: str,
    ) -> None:
        reads, writes = tuple(reads), tuple(writes)
        kept = {(one.begin, one.end) for one in reads if one.size > 1}
        shape = f"{work.flops:.4g}/{work.memory:.4g}/{len(kept)}"
        name = f"{self.name}|{kernel}|{role}|{shape}"
        self._launches.append(Launch(kernel, name, reads, writes, work, role))

    def gemm(
        self, source: Range, target: Range, weights: Range, m: float, n: float, k: float, role: str
    ) -> None:
        """target[m, n] = source[m, k] weights[k, n]; libraries choose a kernel by size."""
        traffic = ELEMENT * (m * k + k * n + m * n)
        work = Work(2.0 * m * n * k, "tensor_bf16", traffic, "gemm")
        self.launch(f"gemm_{tile(m)}", [source, weights], [target], work, role)

    def pointwise(
        self,
        kernel: str,
        reads: Iterable[Range],
        writes: Iterable[Range],
        role: str,
        operations: float = 4.0,
    ) -> None:
        """A kernel that touches all it reads and writes once; `operations` for each element."""
        reads, writes = tuple(reads), tuple(writes)
        traffic = float(sum(one.size for one in (*reads, *writes)))
        work = Work(operations * traffic / (2 * ELEMENT), "f32", traffic, "memory")
        self.launch(kernel, reads, writes, work, role)


def tile(rows: float) -> str:
    """The tile that matrix libraries take for so many rows."""
    if rows >= 1024:
        return "256x128"
    if rows >= 256:
        return "128x128"
    return "64x64" if rows >= 32 else "64x8"
