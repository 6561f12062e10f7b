# SPDX-License-Identifier: Apache-2.0
"""The controller's process: `python -m tessera.service`. Users start it with `tessera-ctl up`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import resource
import shlex
import sys
from typing import Any

from tessera.service import runtime
from tessera.service.config import Config
from tessera.service.controller import Controller, StartError, run
from tessera.settings import Settings, SettingsError
from tessera.store import StoreError


def parse_devices(text: str) -> tuple[int, ...] | None:
    """`1,2`; `all` is None; empty: none. Raises ValueError."""
    if text == "all":
        return None
    return tuple(int(part) for part in text.split(",") if part)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tessera.service", description=__doc__)
    parser.add_argument("--devices", type=parse_devices, default=None, metavar="1,2")
    parser.add_argument("--ready-fd", type=int, help="where to say, as JSON, how the start went")
    parser.add_argument("--analysis", help="module to analyse with, for tests")
    parser.add_argument("--worker-command", help="in place of tessera-worker, for tests")
    return parser.parse_args(argv)


def _config(options: argparse.Namespace) -> Config:
    config = Config.from_settings(Settings.from_environment(), options.devices)
    if options.analysis:
        config = dataclasses.replace(config, analysis=options.analysis)
    if options.worker_command:
        command = tuple(shlex.split(options.worker_command))
        config = dataclasses.replace(config, worker_command=command)
    return config


def _raise_descriptor_limit() -> None:
    """Each program needs a few descriptors, and the usual limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Starter:
    """Says once, to whoever started the process, how the start went."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def say(self, **answer: Any) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.write(fd, json.dumps(answer).encode() + b"\n")
        except OSError:
            logging.getLogger(__name__).warning("whoever started the controller has gone")
        os.close(fd)

    def fail(self, message: str, **more: Any) -> int:
        logging.getLogger(__name__).error("%s", message)
        self.say(ok=False, error=message, **more)
        return 1


def main(argv: list[str] | None = None) -> int:
    """Serves until it is told to stop; returns the exit status."""
    options = _arguments(argv)
    starter = Starter(options.ready_fd)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    os.umask(0o077)
    _raise_descriptor_limit()
    try:
        config = _config(options)
        runtime.prepare(config.folder)
        lock = runtime.Lock(config.folder)
    except runtime.AlreadyRunningError as error:
        return starter.fail(str(error), running=error.pid)
    except (SettingsError, runtime.RuntimeFolderError) as error:
        return starter.fail(str(error))

    def ready(controller: Controller) -> None:
        del controller
        starter.say(ok=True, pid=os.getpid())

    try:
        asyncio.run(run(config, ready))
    except (StartError, StoreError) as error:
        return starter.fail(str(error))
    except Exception as error:
        logging.getLogger(__name__).exception("the controller ends")
        return starter.fail(f"the controller failed: {type(error).__name__}: {error}")
    finally:
        lock.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
