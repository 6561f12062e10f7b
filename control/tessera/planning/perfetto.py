# SPDX-License-Identifier: Apache-2.0
"""Timelines of the simulator as trace files that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tessera.planning.simulator import Interval


def write_trace(path: Path, trace: Sequence[Interval], labels: Sequence[str]) -> None:
    """Writes intervals as complete events; devices and links are tracks. Raises OSError."""
    tracks = sorted({one.resource for one in trace})
    events: list[dict[str, Any]] = [
        {
            "ph": "M", "pid": 1, "tid": number, "name": "thread_name",
            "args": {"name": track_name(track, labels)},
        }
        for number, track in enumerate(tracks)
    ]  # fmt: skip
    for one in trace:
        events.append(
            {
                "ph": "X", "pid": 1, "tid": tracks.index(one.resource),
                "ts": round(one.begin * 1e6, 3), "dur": round((one.end - one.begin) * 1e6, 3),
                "name": f"{one.job} {one.label}", "args": {"slot": one.slot},
            }
        )  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")


def track_name(track: str, labels: Sequence[str]) -> str:
    """`device 0` and `link 0-1` with the devices' names."""
    kind, which = track.split(" ")
    names = [labels[int(part)] for part in which.split("-")]
    return names[0] if kind == "device" else f"{names[0]} to {names[1]}"
