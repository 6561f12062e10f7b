# SPDX-License-Identifier: Apache-2.0
"""tessera-ctl: the commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import tessera
from tessera.cli import (
    analyze,
    doctor,
    kernels,
    lifecycle,
    machine,
    placement,
    plan,
    render,
    run,
    status,
    verify,
)
from tessera.cli.common import CliError
from tessera.cli.help import Commands

app = Commands(
    name="tessera-ctl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tessera {tessera.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run single kernels of unmodified CUDA programs on other GPUs.

    \b
    A first run:
      tessera-ctl up                            start the controller and workers
      tessera-ctl run -- python train.py        run a program with it
      tessera-ctl kernels                       see its kernels
      tessera-ctl placement set 'matmul* -> 1'  say where some of them run
      tessera-ctl status --watch                watch

    \b
    Exit status: 0 done, 1 failed, 2 wrong usage, 3 no controller runs.
    """
    del version


app.command("up")(lifecycle.up)
app.command("down")(lifecycle.down)
app.command("status")(status.status)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("verify", context_settings={"allow_interspersed_args": False})(verify.verify)
app.command("kernels")(kernels.kernels)
app.command("show")(kernels.show)
app.add_typer(placement.app, name="placement")
app.command("plan")(plan.plan)
app.command("devices")(machine.devices)
app.command("doctor")(doctor.doctor)
app.command("env")(run.env)
app.command("analyze")(analyze.analyze)


def main() -> None:
    """The entry point. Ends the process with the status that the commands document."""
    try:
        app(prog_name="tessera-ctl")
    except CliError as error:
        render.complain(f"tessera-ctl: {error}")
        sys.exit(error.status)
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing more is to be flushed there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
