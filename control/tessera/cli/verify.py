# SPDX-License-Identifier: Apache-2.0
"""verify: a program whose launches are tried with nothing mapped but what they claim."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tessera.cli import render
from tessera.cli.child import programs_of, run_child, stop, write_json
from tessera.cli.common import CliError, ask, clear_errors
from tessera.cli.lifecycle import DevicesOption, chosen_devices, start
from tessera.cli.render import Column

ANALYSIS_WAIT = "120000"  # milliseconds: a kernel that is not analysed yet cannot be tried
PROGRESS_EVERY = 1.0  # seconds
SHOWN_WRONG = 1  # exit status
ORDER = ("wrong", "failed", "not deterministic", "undecided", "passed", "not tried")
STYLES = {"wrong": "bold red", "failed": "red", "passed": "green"}


def verify(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program with its arguments.")
    ],
    device: DevicesOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the table as JSON, too.")
    ] = None,
) -> None:
    """Try a program's launches elsewhere: is what is known right?

    The program runs at home. The first launches of each launch class (kernel, shape, argument
    pattern) run a second time in a process of their own, where only the pages that the launch
    claims are mapped and whatever else lies in them is poisoned. A fault, a change outside of
    what it may write, or another result than home's shows the summary wrong: the kernel stays
    home from then on. The program only sees home's results. This takes its time, and needs a
    worker.

    Kernels whose code says too little are tried with all pointers among their arguments. With
    TESSERA_TRUST=verified those that pass may move. That is evidence, not proof.

    Exit status: 1 when a summary was shown wrong; else the program's.

    \b
    Examples:
      tessera-ctl verify -- python train.py --steps 3
      tessera-ctl verify -d 0 --report trials.json -- ./simulate
    """
    with clear_errors():
        status, fresh = start(chosen_devices(device, False))
        try:
            _need_worker(status)
            run_id = uuid.uuid4().hex
            os.environ["TESSERA_VERIFY"] = "1"
            os.environ.setdefault("TESSERA_ANALYSIS_WAIT_MS", ANALYSIS_WAIT)
            with _progress(run_id):
                code = run_child(command, run_id)
            programs_of(run_id)  # what they still had to say has come in when they have ended
            found = ask("trials", run=run_id)["trials"]
        finally:
            if fresh:
                stop()
        if report is not None:
            write_json(report, {"command": command, "exit_status": code, "trials": found})
        _show(found)
    wrong = any(trial["verdict"] == "wrong" for trial in found)
    raise typer.Exit(SHOWN_WRONG if wrong else code)


def _need_worker(status: dict[str, Any]) -> None:
    if not any(worker["state"] == "up" for worker in status["workers"]):
        raise CliError(
            "trials run on the device of a worker, and none is up\n"
            "for one on the program's own GPU: tessera-ctl down, then tessera-ctl verify -d 0"
        )


@contextmanager
def _progress(run_id: str) -> Iterator[None]:
    """Tells on a terminal how many launch classes have been tried."""
    done = threading.Event()

    def tell() -> None:
        from tessera.service.client import ClientError, NotRunningError

        before = ""
        while not done.wait(PROGRESS_EVERY):
            try:
                text = _summary(ask("trials", run=run_id)["trials"])
            except (ClientError, NotRunningError):
                return  # the program goes on without the controller, and the end will say so
            if text != before:
                print(f"tessera: so far {text}", file=sys.stderr)
            before = text

    if not sys.stderr.isatty():
        yield
        return
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _summary(found: Sequence[dict[str, Any]]) -> str:
    classes = [trial for trial in found if trial["launch_class"]]
    counts = {
        word: sum(trial["verdict"] == word for trial in classes)
        for word in ORDER
        if any(trial["verdict"] == word for trial in classes)
    }
    words = ", ".join(f"{number} {word}" for word, number in counts.items())
    noun = "launch class" if len(classes) == 1 else "launch classes"
    return f"{len(classes):,} {noun}: {words or 'none tried'}"


def _show(found: list[dict[str, Any]]) -> None:
    out = render.console(sys.stderr)
    out.print(Text(f"tessera: {_summary(found)}", style="bold"))
    if not found:
        out.print("  No process of it launched a kernel through Tessera.")
        return
    columns = [
        Column("KERNEL", least=14),
        Column("GRADE"),
        Column("LAUNCH", drop=1),
        Column("TRIALS", right=True),
        Column("VERDICT"),
        Column("WHY", least=16, prose=True),
    ]
    rows = [_row(t) for t in sorted(found, key=lambda t: (ORDER.index(t["verdict"]), t["name"]))]
    render.show(out, render.table(columns, rows))
    if any(trial["verdict"] == "wrong" for trial in found):
        out.print(
            "A summary that was shown wrong is a bug of Tessera's: please report it. "
            "The kernel stays home from now on.",
            soft_wrap=True,
        )


def _row(trial: dict[str, Any]) -> list[Any]:
    why = trial["reason"]
    if trial["verdict"] == "not tried" and trial["properties"]:
        why = f"{why} ({', '.join(trial['properties'])})"
    return [
        render.one_line(trial["name"]),
        trial["grade"],
        trial["shape"],
        trial["trials"] or "",
        Text(trial["verdict"], style=STYLES.get(trial["verdict"], "")),
        render.one_line(why),
    ]
