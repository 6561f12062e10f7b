# SPDX-License-Identifier: Apache-2.0
"""What programs have told of the order of their launches: which kernel hands how much to which.

A recording is asked for; while none is, programs do nothing for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from tessera.planning.dataflow import flows
from tessera.planning.launches import Launch, Range
from tessera.protocol.recording import RecordedLaunch


class Recordings:
    """The launches that were recorded since they were last asked for, by program."""

    def __init__(self) -> None:
        self._told: dict[Hashable, list[RecordedLaunch]] = {}
        self._pending: set[Hashable] = set()

    def begin(self, programs: Iterable[Hashable]) -> None:
        """Forgets what there was: these programs have been asked."""
        self._told.clear()
        self._pending = set(programs)

    def take(self, program: Hashable, launches: list[RecordedLaunch], last: bool) -> None:
        """A part of a program's recording."""
        self._told.setdefault(program, []).extend(launches)
        if last:
            self._pending.discard(program)

    def gone(self, program: Hashable) -> None:
        """It tells no more; what it has told stays."""
        self._pending.discard(program)

    def summary(self) -> dict[str, Any]:
        """`pending` programs, `launches` by kernel id, how many are `unknown`, and `edges` as the
        store has them: bytes and launches of data that goes from one kernel to another.
        """
        launches: Counter[int] = Counter()
        edges: dict[tuple[int, int], list[int]] = {}
        unknown = 0
        for told in self._told.values():
            launches.update(one.kernel_id for one in told)
            unknown += sum(one.unknown for one in told)
            for key, (size, count) in edges_of(told).items():
                entry = edges.setdefault(key, [0, 0])
                entry[0] += size
                entry[1] += count
        return {
            "pending": len(self._pending),
            "launches": {str(kernel): count for kernel, count in launches.items()},
            "unknown": unknown,
            "edges": [
                {"source": source, "target": target, "bytes": size, "launches": count}
                for (source, target), (size, count) in sorted(edges.items())
            ],
        }


def edges_of(told: list[RecordedLaunch]) -> dict[tuple[int, int], tuple[int, int]]:
    """(bytes, times) by source and target kernel, of one program's launches in their order."""
    listed = [
        Launch(
            str(one.kernel_id),
            str(one.kernel_id),
            tuple(Range(begin, end) for begin, end in one.reads),
            tuple(Range(begin, end) for begin, end in one.writes),
        )
        for one in told
    ]
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for flow in flows(listed):
        source = told[flow.producer].kernel_id
        for target in {told[consumer].kernel_id for consumer in flow.consumers}:
            size, count = found.get((source, target), (0, 0))
            found[source, target] = (size + flow.size, count + 1)
    return found
