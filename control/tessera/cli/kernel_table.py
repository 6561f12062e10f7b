# SPDX-License-Identifier: Apache-2.0
"""Kernels and their counters, as status and run show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from tessera.cli import render
from tessera.cli.render import Column


def totals(counters: dict[str, Any]) -> tuple[int, int, int]:
    """Launches at home, launches on workers, and bytes moved either way."""
    home, away = counters["launches_untracked"], 0
    for kernel in counters["kernels"]:
        for device, launches in kernel["launches"].items():
            if device == "0":
                home += launches
            else:
                away += launches
    workers = counters["workers"].values()
    moved = sum(worker["bytes_pulled"] + worker["bytes_pushed"] for worker in workers)
    return home, away, moved


CLASSES_SHOWN = 8  # of one kernel
MEAN_EXPLAINED = "MEAN: device time of a launch, over the (n) launches that were timed"


def launched(kernels: Sequence[dict[str, Any]], rows: int | None) -> list[Any]:
    """The kernels launched most, with a line for those left out. `rows`: how many; None: all."""
    ordered = sorted(kernels, key=lambda kernel: (-sum(kernel["launches"].values()), kernel["id"]))
    shown = ordered if rows is None else ordered[:rows]
    devices = sorted({d for k in kernels for d in k["launches"]} | {"0"}, key=int)
    columns = [Column("KERNEL", least=14), Column("ON")]
    for device in devices:
        columns.append(Column(_device_title(device), right=True))
        columns.append(Column("MEAN", right=True, drop=1))
    columns += [Column("IN", right=True, drop=2), Column("WHY AT HOME", least=16, prose=True)]
    lines = [line for kernel in shown for line in _rows(kernel, devices, rows is None)]
    parts: list[Any] = [render.table(columns, lines)]
    if len(shown) < len(ordered):
        left = render.count(len(ordered) - len(shown), "more kernel")
        parts.append(Text(f"and {left}: tessera-ctl status --all", style="dim"))
    if any(kernel["launches"] for kernel in shown):
        parts.append(Text(MEAN_EXPLAINED, style="dim"))
    return parts


def _device_title(device: str) -> str:
    return "HOME" if device == "0" else f"W{device}"


def _rows(kernel: dict[str, Any], devices: Sequence[str], everything: bool) -> list[list[Any]]:
    """A kernel, and below it the launch classes of one whose launches are placed apart."""
    lines = [_row(kernel, devices, render.one_line(kernel["name"]))]
    if not kernel.get("apart"):
        return lines
    classes = sorted(
        kernel.get("classes", {}).items(), key=lambda one: -sum(one[1]["launches"].values())
    )
    shown = classes if everything else classes[:CLASSES_SHOWN]
    lines += [
        _row(one | {"bytes_in": one.get("bytes_in", {})}, devices, f"  {name}")
        for name, one in shown
    ]
    if len(shown) < len(classes):
        lines.append(
            [f"  and {len(classes) - len(shown)} more of its classes", *[""] * (len(lines[0]) - 1)]
        )
    return lines


def _row(kernel: dict[str, Any], devices: Sequence[str], title: str) -> list[Any]:
    cells: list[Any] = [title, places(kernel, _short_place)]
    for device in devices:
        launches = kernel["launches"].get(device, 0)
        timed = kernel["timed"].get(device, 0)
        cells.append(render.number(launches) if launches else "")
        cells.append(_mean(kernel["time_ns"].get(device, 0), timed) if launches else "")
    moved = sum(kernel["bytes_in"].values())
    return [*cells, render.size(moved) if moved else "", why_home(kernel)]


def _mean(nanoseconds: int, timed: int) -> str:
    """Of the launches that were timed, and how many they are."""
    return (
        f"{render.duration(nanoseconds / timed)} ({render.number(timed)})" if timed else "not timed"
    )


def remarks(programs: Sequence[dict[str, Any]]) -> list[str]:
    """What befell programs that a user should know, one line each; `programs` as in status."""
    lines = []
    for program in programs:
        counters = program["counters"]
        who = f"process {program['pid']} ({render.command(program['program'])})"
        if counters.get("all_home"):
            lines.append(f"{who}: all at home: {counters['all_home']}")
        lines += [f"{who} {lost(loss)}" for loss in counters.get("losses", [])]
    return lines


def lost(loss: dict[str, Any]) -> str:
    """How a program lost a worker, what the device said, and where to read on."""
    said = f"; the device said: {loss['said']}" if loss["said"] else ""
    return f"lost worker {loss['worker']}: {loss['reason']}{said} (log: {loss['log']})"


def place_word(device: int) -> str:
    return "home" if device == 0 else f"worker {device}"


def _short_place(device: int) -> str:
    return _device_title(str(device)) if device else "home"


def places(kernel: dict[str, Any], word: Callable[[int], str] = place_word) -> str:
    """Where a kernel runs; of one whose launches are placed apart all devices of them."""
    found = {int(one["device"]) for one in (kernel, *kernel.get("apart", []))}
    return ", ".join(word(device) for device in sorted(found))


def reasons(kernel: dict[str, Any]) -> str:
    """Why it runs there."""
    apart = [f"{one['condition']}: {one['reason']}" for one in kernel.get("apart", [])]
    return "; ".join([*apart, f"else {kernel['reason']}" if apart else str(kernel["reason"])])


def source_and_grade(grade: str) -> str:
    """What a kernel's summary was made from, and how much it says."""
    if grade.startswith("sass "):
        return f"SASS, {grade.removeprefix('sass ')}"
    return {"ptx": "PTX, exact", "unknown": "PTX, unknown"}.get(grade, grade)


def why_home(kernel: dict[str, Any]) -> str:
    """Why most of the launches at home stayed there; empty when none did."""
    from tessera import protocol

    stayed = kernel["stayed"]
    if not kernel["launches"].get("0"):
        return ""
    if not stayed:
        return str(kernel["reason"]) if kernel["device"] == 0 else ""
    most = int(max(stayed, key=lambda reason: stayed[reason]))
    words = protocol.STAY_REASONS.get(most, "unknown reason")
    detailed = {
        protocol.constant("TS_STAY_PLACED"),
        protocol.constant("TS_STAY_NO_SUMMARY"),
        protocol.constant("TS_STAY_UNKNOWN"),
        protocol.constant("TS_STAY_PROPERTY"),
    }
    if most in detailed and kernel["device"] == 0 and kernel["reason"]:
        return str(kernel["reason"])
    if most == protocol.constant("TS_STAY_PLACED") and kernel["device"]:
        return "was placed at home then"
    return words
