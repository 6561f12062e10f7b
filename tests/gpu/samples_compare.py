# SPDX-License-Identifier: Apache-2.0
"""Is what a program printed the same, but for times and other things that vary from run to run?"""

from __future__ import annotations

import re
from collections import Counter

# A line that tells of time: its numbers are measured and never the same.
TIMES = re.compile(
    r"\b(?:\d[\d.]*\s*(?:ms|msec|s|us|ns|secs?|seconds?|milliseconds?)\b|[GMK]i?B/s|GB/sec|MB/sec"
    r"|[GMT]?flops?|[GM]flop/s|[GMK]?pixels|options/sec|samples/s\w*)"
    r"|time|elapsed|bandwidth|throughput|performance|clock|cycles|latency|speed|fps\b|overhead"
    r"|options per|per second|/sec\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
ADDRESS = re.compile(r"\b(?:0x[0-9a-f]+|[0-9a-f]{12,16})\b", re.IGNORECASE)
PROCESS = re.compile(r"(\b(?:pid|process|tid)\b\D{0,12})\d+", re.IGNORECASE)
OURS = re.compile(r"tessera(?:-sim)?: ")


def lines(text: str) -> list[str]:
    """What has to be the same: without addresses, process numbers, measured times, empty lines."""
    found = []
    for raw in text.splitlines():
        line = PROCESS.sub(r"\1#", ADDRESS.sub("@", " ".join(raw.split())))
        if TIMES.search(line):
            line = NUMBER.sub("#", line)
        if line and not OURS.match(line):
            found.append(line)
    return found


def masked(line: str) -> str:
    return NUMBER.sub("#", line)


def varying(alone: list[str]) -> set[str]:
    """Lines, without their numbers, that were not the same in all outputs of runs alone."""
    counts = [Counter(lines(text)) for text in alone]
    common = counts[0].copy()
    for count in counts[1:]:
        common &= count
    return {masked(line) for count in counts for line in count - common}


def difference(alone: list[str], under: str) -> tuple[str, bool]:
    """("", whether the runs alone differ) when the same; else the first line that is not."""
    noise = varying(alone)
    here = [line for line in lines(under) if masked(line) not in noise]
    for text in alone:
        there = [line for line in lines(text) if masked(line) not in noise]
        if here == there or Counter(here) == Counter(there):
            return "", bool(noise)
    missing, extra = Counter(there) - Counter(here), Counter(here) - Counter(there)
    told = [f"no «{line}»" for line in missing][:1] + [f"«{line}»" for line in extra][:1]
    return ", but ".join(told) or "another order", bool(noise)
