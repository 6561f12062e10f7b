# SPDX-License-Identifier: Apache-2.0
"""status: devices, workers, programs, kernels."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from tessera.cli import kernel_table, render
from tessera.cli.common import ask, clear_errors
from tessera.cli.render import Column

FAULTS_SHOWN = 3  # of programs that have ended


def status(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again; end with Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, complete.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="All kernels, not just the busiest.")
    ] = False,
) -> None:
    """Show devices, workers, programs, and where kernels run.

    MEAN is the device time of one launch of a kernel: the mean of the launches in
    brackets, as only a sample is timed. At home those are a kernel's first few; on
    workers the first 20, then one in 64. BUSY is an estimate from them. IN and OUT are
    bytes copied to and from a worker for its kernels; MIRRORED lies on it now.

    \b
    Examples:
      tessera-ctl status
      tessera-ctl status --watch
      tessera-ctl status --json | jq '.kernels[] | {name, launches}'
    """
    with clear_errors():
        if watch:
            _watch(interval, as_json, everything)
        else:
            _once(ask("status")["status"], as_json, everything)


def _once(found: dict[str, Any], as_json: bool, everything: bool) -> None:
    if as_json:
        print(json.dumps(found))
    else:
        render.show(render.console(), *screen(found, everything))


def _watch(interval: float, as_json: bool, everything: bool) -> None:
    out = render.console()
    if as_json or not out.is_terminal:
        while True:
            _once(ask("status")["status"], as_json, everything)
            sys.stdout.flush()
            time.sleep(interval)
    first = Group(*screen(ask("status")["status"], everything))
    with Live(first, console=out, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            parts = screen(ask("status")["status"], everything, out.height)
            live.update(Group(*parts), refresh=True)


def screen(found: dict[str, Any], everything: bool, height: int | None = None) -> list[Any]:
    """The parts of the screen, one below the other, in at most `height` lines."""
    parts: list[Any] = [_head(found), Text(), _devices(found)]
    used = 4 + len(found["devices"])
    if found["programs"]:
        parts += [Text(), _programs(found)]
        used += 2 + len(found["programs"])
    else:
        parts += [Text(), Text("No program is using the controller.")]
        used += 2
    remarks = _remarks(found)
    used += 2 * len(remarks) + 2
    if found["kernels"]:
        rows = None if everything else 15
        if height is not None:
            rows = max(3, height - used - 4)
        parts += [Text(), *kernel_table.launched(found["kernels"], rows)]
    if remarks:
        parts.append(Text())
        parts += [Text(f"! {render.one_line(line, 1000)}", style="yellow") for line in remarks]
    return parts


def _remarks(found: dict[str, Any]) -> list[str]:
    """Problems, what befell the programs that run, and the last faults of those that ended."""
    running = {program["pid"] for program in found["programs"]}
    past = [fault for fault in found["faults"] if fault["pid"] not in running]
    return [
        *found["problems"],
        *kernel_table.remarks(found["programs"]),
        *(_fault(fault) for fault in past[-FAULTS_SHOWN:]),
    ]


def _fault(fault: dict[str, Any]) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(fault["time"]))
    who = f"process {fault['pid']} ({render.command(fault['program'])}, ended)"
    return f"{when} {who} {kernel_table.lost(fault)}"


def _head(found: dict[str, Any]) -> Text:
    controller = found["controller"]
    analysis = controller["analysis"]
    busy = analysis["queued"] + analysis["running"]
    words = [
        f"Tessera {controller['version']}",
        f"process {controller['pid']}",
        f"up {render.age(controller['uptime'])}",
        f"policy {controller['policy']}",
    ]
    if busy:
        words.append(f"analysing {render.count(busy, 'image')}")
    return Text("   ".join(words))


def _devices(found: dict[str, Any]) -> Any:
    columns = [
        Column("DEVICE", least=16),
        Column("CC", drop=3),
        Column("MEMORY", right=True, drop=2),
        Column("ROLE"),
        Column("STATE"),
        Column("LAUNCHES", right=True),
        Column("BUSY", right=True),
        Column("IN", right=True),
        Column("OUT", right=True),
        Column("MIRRORED", right=True, drop=1),
    ]
    workers = {worker["device"]["ordinal"]: worker for worker in found["workers"]}
    rows = []
    for device in found["devices"]:
        worker = workers.get(device["ordinal"])
        head = [
            f"{device['ordinal']} {device['name'].removeprefix('NVIDIA ')}",
            render.capability(device["compute_capability"]),
        ]
        head.append(render.size(device["memory_bytes"]))
        if device["ordinal"] == 0:
            rows.append([*head, "home", "", *_home_cells(found["home"])])
            head = ["", "", ""]
        elif worker is None:
            rows.append([*head, "-"])
        if worker is not None:
            rows.append([*head, *_worker_cells(worker)])
    return render.table(columns, [row + [""] * (len(columns) - len(row)) for row in rows])


def _home_cells(home: dict[str, Any]) -> list[str]:
    busy = render.estimate(home["busy_ns"]) if home["timed"] else ""
    return [render.number(home["launches"]), busy]


def _worker_cells(worker: dict[str, Any]) -> list[Any]:
    style = {"up": "green", "failed": "red", "restarting": "yellow"}.get(worker["state"], "")
    return [
        f"worker {worker['index']}",
        Text(worker["state"], style=style),
        render.number(worker["launches"]),
        render.estimate(worker["busy_ns"]) if worker["busy_ns"] else "",
        render.size(worker["bytes_pulled"]),
        render.size(worker["bytes_pushed"]),
        render.size(worker["memory_used"]),
    ]


def _programs(found: dict[str, Any]) -> Any:
    columns = [
        Column("PROGRAM", least=14),
        Column("PROCESS", right=True),
        Column("STATE"),
        Column("UP", right=True, drop=1),
        Column("HOME", right=True),
        Column("WORKERS", right=True),
        Column("MOVED", right=True),
        Column("ARENA", right=True, drop=2),
    ]
    now = time.time()
    rows = []
    for program in found["programs"]:
        home, away, moved = kernel_table.totals(program["counters"])
        state = program["state"] if program["connected"] else "cut off"
        if state == "active" and program["counters"]["all_home"]:
            state = "all at home"
        rows.append(
            [
                render.command(program["program"], 30),
                program["pid"],
                Text(state, style="" if state == "active" else "yellow"),
                render.age(max(0.0, now - program["started"])),
                render.number(home),
                render.number(away),
                render.size(moved),
                render.size(program["counters"]["arena_used"]),
            ]
        )
    return render.table(columns, rows)
