# SPDX-License-Identifier: Apache-2.0
"""Who reads what whom wrote: edges with bytes, from the read and write sets of launches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessera.planning.launches import Launch, Range


@dataclass(frozen=True)
class Flow:
    """Bytes that one launch has written and others read, before anybody overwrites them."""

    producer: int  # position in the sequence
    consumers: tuple[int, ...]
    size: int  # bytes


class LastWriters:
    """Which launch wrote each byte last: disjoint intervals in order of address."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._pieces: list[tuple[int, int, int]] = []  # begin, end, writer

    def write(self, wanted: Range, writer: int) -> None:
        """Notes that a launch writes all of a range."""
        low, high = self._span(wanted)
        kept = [(wanted.begin, wanted.end, writer)]
        for begin, end, other in self._pieces[low:high]:
            if begin < wanted.begin:
                kept.insert(0, (begin, wanted.begin, other))
            if end > wanted.end:
                kept.append((wanted.end, end, other))
        self._pieces[low:high] = kept
        self._begins[low:high] = [piece[0] for piece in kept]

    def read(self, wanted: Range) -> list[tuple[int, int, int]]:
        """(begin, end, writer) of the parts of a range that have been written."""
        low, high = self._span(wanted)
        return [
            (max(begin, wanted.begin), min(end, wanted.end), writer)
            for begin, end, writer in self._pieces[low:high]
        ]

    def _span(self, wanted: Range) -> tuple[int, int]:
        """The pieces that overlap a range."""
        low = bisect_right(self._begins, wanted.begin)
        if low and self._pieces[low - 1][1] > wanted.begin:
            low -= 1
        return low, max(low, bisect_left(self._begins, wanted.end))


def flows(launches: Sequence[Launch]) -> list[Flow]:
    """All flows of a sequence, in order of their producers.

    Pieces that a producer has written and that are read by the same launches are one flow.
    """
    writers = LastWriters()
    readers: dict[tuple[int, int, int], set[int]] = {}
    for position, launch in enumerate(launches):
        for wanted in launch.reads:
            for piece in writers.read(wanted):
                readers.setdefault(piece, set()).add(position)
        for wanted in launch.writes:
            if wanted.size > 0:
                writers.write(wanted, position)
    return _merged(_without_overlap(readers))


def _without_overlap(
    readers: dict[tuple[int, int, int], set[int]],
) -> Iterable[tuple[int, int, set[int]]]:
    """(producer, bytes, consumers): reads that overlap only in part are cut at their bounds."""
    by_producer: dict[int, list[tuple[int, int, set[int]]]] = {}
    for (begin, end, producer), consumers in readers.items():
        by_producer.setdefault(producer, []).append((begin, end, consumers))
    for producer, pieces in by_producer.items():
        cuts = sorted({bound for begin, end, _ in pieces for bound in (begin, end)})
        for low, high in pairwise(cuts):
            who: set[int] = set()
            for begin, end, consumers in pieces:
                if begin <= low and high <= end:
                    who |= consumers
            if who:
                yield producer, high - low, who


def _merged(pieces: Iterable[tuple[int, int, set[int]]]) -> list[Flow]:
    sizes: dict[tuple[int, tuple[int, ...]], int] = {}
    for producer, size, consumers in pieces:
        key = (producer, tuple(sorted(consumers - {producer})))
        if key[1]:
            sizes[key] = sizes.get(key, 0) + size
    return [Flow(producer, who, size) for (producer, who), size in sorted(sizes.items())]
