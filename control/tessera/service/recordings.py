# SPDX-License-Identifier: Apache-2.0
"""What programs have told of the order of their launches: which kernel hands how much to which.

A recording is asked for; while none is, programs do nothing for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tessera.planning.dataflow import Flow, flows
from tessera.planning.launches import Launch, Range
from tessera.protocol.recording import RecordedLaunch

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Named:
    """A launch as it was told, and the name of its class; empty: it is not told apart."""

    launch: RecordedLaunch
    launch_class: str = ""

    @property
    def kernel(self) -> int:
        return self.launch.kernel_id

    @property
    def node(self) -> tuple[int, str]:
        return self.launch.kernel_id, self.launch_class


class Recordings:
    """The launches that were recorded since they were last asked for, by program."""

    def __init__(self) -> None:
        self._told: dict[Hashable, list[Named]] = {}
        self._pending: set[Hashable] = set()

    def begin(self, programs: Iterable[Hashable]) -> None:
        """Forgets what there was: these programs have been asked."""
        self._told.clear()
        self._pending = set(programs)

    def take(
        self,
        program: Hashable,
        launches: list[RecordedLaunch],
        last: bool,
        classes: Mapping[int, str] | None = None,
    ) -> None:
        """A part of a program's recording. `classes`: names of launch classes, by row."""
        names = classes or {}
        self._told.setdefault(program, []).extend(
            Named(one, names.get(one.row, "") if one.row is not None else "") for one in launches
        )
        if last:
            self._pending.discard(program)

    def gone(self, program: Hashable) -> None:
        """It tells no more; what it has told stays."""
        self._pending.discard(program)

    def summary(self) -> dict[str, Any]:
        """`pending` programs, `launches` by kernel id, how many are `unknown`, and `edges` as the
        store has them: bytes and launches of data that goes from one kernel to another. `classes`
        and `class_edges` are the same by launch class, whose nodes are [kernel id, class].
        """
        launches: Counter[int] = Counter()
        classes: Counter[tuple[int, str]] = Counter()
        edges: dict[tuple[int, int], tuple[int, int]] = {}
        class_edges: dict[tuple[tuple[int, str], tuple[int, str]], tuple[int, int]] = {}
        unknown = 0
        for told in self._told.values():
            launches.update(one.kernel for one in told)
            classes.update(one.node for one in told)
            unknown += sum(one.launch.unknown for one in told)
            found = flows([_as_launch(one.launch) for one in told])
            _add(edges, edges_of(found, [one.kernel for one in told]))
            _add(class_edges, edges_of(found, [one.node for one in told]))
        return {
            "pending": len(self._pending),
            "launches": {str(kernel): count for kernel, count in launches.items()},
            "unknown": unknown,
            "edges": _listed(edges),
            "classes": [
                {"kernel": kernel, "class": name, "launches": count}
                for (kernel, name), count in sorted(classes.items())
            ],
            "class_edges": _listed(class_edges),
        }


def _as_launch(told: RecordedLaunch) -> Launch:
    reads, writes = (
        tuple(Range(begin, end) for begin, end in ranges) for ranges in (told.reads, told.writes)
    )
    return Launch(str(told.kernel_id), str(told.kernel_id), reads, writes)


def edges_of(found: Iterable[Flow], nodes: Sequence[Key]) -> dict[tuple[Key, Key], tuple[int, int]]:
    """(bytes, times) by source and target of a sequence's flows; `nodes`: of each launch."""
    edges: dict[tuple[Key, Key], tuple[int, int]] = {}
    for flow in found:
        source = nodes[flow.producer]
        for target in {nodes[consumer] for consumer in flow.consumers}:
            _add(edges, {(source, target): (flow.size, 1)})
    return edges


def _add(total: dict[Key, tuple[int, int]], more: Mapping[Key, tuple[int, int]]) -> None:
    for key, (size, count) in more.items():
        before = total.get(key, (0, 0))
        total[key] = (before[0] + size, before[1] + count)


def _listed(edges: Mapping[Any, tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"source": source, "target": target, "bytes": size, "launches": count}
        for (source, target), (size, count) in sorted(edges.items())
    ]
