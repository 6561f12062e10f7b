# SPDX-License-Identifier: Apache-2.0
"""up and down."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from tessera.cli import render
from tessera.cli.common import NOT_RUNNING, USAGE, ask, clear_errors, fail, folder, store_path

SETTLE_TIMEOUT = 60.0  # seconds that workers get to become ready
WAIT_PERIOD = 0.2  # seconds between looks at whether programs have ended
INTERRUPTED = 130  # exit status, as shells have it

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

    When a controller runs already, and is what this would start, that is as good. When it is
    not, because its devices, its store or its settings are others, this says what differs and
    changes nothing; the exit status is then 1.

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
        status, fresh = start(chosen, exact=True)
    _describe(status, fresh)
    driver = status["controller"]["driver"]
    if driver["error"]:
        fail(f"there are no workers: {driver['error']}\n{driver['remedy']}")
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


def start(chosen: tuple[int, ...] | None, *, exact: bool = False) -> tuple[dict[str, Any], bool]:
    """Starts a controller, or joins the one that runs; waits for its workers.

    With `exact` one that runs already has to be the one that would be started.
    """
    from tessera.service import daemon, differences

    started = daemon.start(folder(), chosen)
    if exact and started.status is not None:
        found = differences.of_all(started.status, chosen, store_path())
        if found:
            raise daemon.RunningOtherwiseError(started.pid, found)
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
    known = status["controller"]["driver"]["error"]  # ends the command, and is said then
    for problem in status["problems"]:
        if not known or known not in problem:
            out.print(f"Note: {render.one_line(problem)}")
    if known:
        return
    if not status["workers"]:
        out.print(_without_workers(status))
    out.print("Run a program with it: tessera-ctl run -- COMMAND")


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
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="As soon as no program uses it any more.")
    ] = False,
) -> None:
    """Stop the controller and its workers.

    While programs use it nothing is stopped, unless you wait for them or use force: their
    data may lie on a worker. Those programs are named.

    \b
    Examples:
      tessera-ctl down
      tessera-ctl down --wait        when the programs that are running have ended
      tessera-ctl down --force       although programs are running
    """
    from tessera.service import daemon

    if force and wait:
        fail("either --force or --wait", USAGE)
    with clear_errors():
        try:
            pid = _stop_when_unused() if wait else daemon.stop(folder(), force=force)
        except daemon.InUseError as error:
            users = render.count(len(error.programs), "program")
            fail(
                f"nothing was stopped: {users} on this controller\n{_named(error.programs)}\n"
                "tessera-ctl down --wait waits for them; with --force they may fail"
            )
    if pid is None:
        fail(f"no controller runs in {folder()}", NOT_RUNNING)
    print(f"The controller has stopped (process {pid}).")


def _stop_when_unused() -> int | None:
    """Stops the controller once no program uses it, and says whom it waits for."""
    try:
        return _wait_and_stop()
    except KeyboardInterrupt:
        fail("not waited for any longer: the controller goes on", INTERRUPTED)


def _wait_and_stop() -> int | None:
    from tessera.service import daemon

    said = ""
    while True:
        try:
            return daemon.stop(folder())
        except daemon.InUseError as error:
            if (names := _named(error.programs)) != said:
                said = names
                print(f"waiting for:\n{names}", file=sys.stderr, flush=True)
        time.sleep(WAIT_PERIOD)


def _named(programs: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"  process {one['pid']}: {render.command(one['program'], 100)}" for one in programs
    )
