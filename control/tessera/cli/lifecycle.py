# SPDX-License-Identifier: Apache-2.0
"""up and down."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from tessera.cli import render
from tessera.cli.common import NOT_RUNNING, ask, clear_errors, fail, folder

SETTLE_TIMEOUT = 60.0  # seconds that workers get to become ready

DevicesOption = Annotated[
    list[int] | None,
    typer.Option(
        "--device",
        "-d",
        metavar="N",
        help="A device to start a worker on, by the driver's number; may be given several times. "
        "Default: every device but the first.",
    ),
]


def up(
    device: DevicesOption = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Start no worker: everything stays home.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Do not go into the background; log to stderr.")
    ] = False,
) -> None:
    """Start the controller, and a worker on each further GPU.

    When a controller runs already with the same devices, that is as good.

    \b
    Examples:
      tessera-ctl up                 workers on all GPUs but the first
      tessera-ctl up -d 1 -d 3       workers on devices 1 and 3
      tessera-ctl up -d 0            a worker on the program's own GPU (use MPS)
    """
    with clear_errors():
        chosen = chosen_devices(device, no_workers)
        if foreground:
            _become_controller(chosen)
        status, fresh = start(chosen)
    _describe(status, fresh)
    failed = [worker for worker in status["workers"] if worker["state"] != "up"]
    if failed:
        fail(
            "\n".join(
                f"worker {worker['index']} is {worker['state']}: {worker['last_failure']}"
                for worker in failed
            )
        )


def chosen_devices(device: list[int] | None, no_workers: bool) -> tuple[int, ...] | None:
    """The ordinals that options ask for; None: all but the first."""
    if no_workers:
        return ()
    return tuple(device) if device else None


def start(chosen: tuple[int, ...] | None) -> tuple[dict[str, Any], bool]:
    """Starts a controller, or joins the one that runs; waits for its workers."""
    from tessera.service import daemon

    started = daemon.start(folder(), chosen)
    deadline = time.monotonic() + SETTLE_TIMEOUT
    while True:
        status: dict[str, Any] = ask("status")["status"]
        unsettled = {"starting", "restarting"}
        if all(worker["state"] not in unsettled for worker in status["workers"]):
            break
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return status, started.fresh


def _become_controller(chosen: tuple[int, ...] | None) -> None:
    from tessera.cluster.environment import python_environment
    from tessera.service import daemon, runtime

    pid = runtime.running_pid(folder())
    if pid is not None:
        fail(f"a controller is already running (process {pid}); tessera-ctl down ends it")
    command = daemon.command_line(chosen)
    environment = python_environment() | {"TESSERA_RUNTIME_DIR": str(folder())}
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def _describe(status: dict[str, Any], fresh: bool) -> None:
    controller = status["controller"]
    out = render.console()
    state = "runs" if fresh else "was running already"
    out.print(f"The controller {state} (process {controller['pid']}).")
    rows = []
    for device in status["devices"]:
        worker = next(
            (w for w in status["workers"] if w["device"]["ordinal"] == device["ordinal"]), None
        )
        role = f"worker {worker['index']}, {worker['state']}" if worker else ""
        if device["ordinal"] == 0:
            role = f"home; {role}" if role else "home"
        rows.append([f"  device {device['ordinal']}", device["name"], role])
    if rows:
        render.show(out, render.table([render.Column("")] * 3, rows, header=False))
    for problem in status["problems"]:
        out.print(f"Note: {render.one_line(problem)}", soft_wrap=True)
    if not status["workers"]:
        out.print(_without_workers(status), soft_wrap=True)
    out.print("Run a program with it: tessera-ctl run -- COMMAND", soft_wrap=True)


def _without_workers(status: dict[str, Any]) -> str:
    if len(status["devices"]) == 1 and status["controller"]["chosen_devices"] is None:
        return (
            "There is one GPU, so there are no workers and every kernel stays home.\n"
            "To try a worker on the same GPU: tessera-ctl down, start MPS "
            "(nvidia-cuda-mps-control -d), tessera-ctl up --device 0"
        )
    return "There are no workers: every kernel stays home."


def down(
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            "-f",
            help="Even while programs use it. What lies on workers alone is then lost to them.",
        ),
    ] = False,
) -> None:
    """Stop the controller and its workers.

    \b
    Examples:
      tessera-ctl down
      tessera-ctl down --force       although programs are running
    """
    from tessera.service import daemon
    from tessera.service.client import ClientError

    with clear_errors():
        try:
            pid = daemon.stop(folder(), force=force)
        except ClientError as error:
            fail(f"{error}\nwait for them, or use tessera-ctl down --force")
    if pid is None:
        fail(f"no controller runs in {folder()}", NOT_RUNNING)
    print(f"The controller has stopped (process {pid}).")
