# SPDX-License-Identifier: Apache-2.0
"""What all commands share: where the controller is, and how a command fails."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tessera.settings import Settings, SettingsError

FAILURE, USAGE, NOT_RUNNING = 1, 2, 3


class CliError(Exception):
    """Ends the command: one or two lines for the user, and an exit status."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        self.status = status
        super().__init__(message)


def fail(message: str, status: int = FAILURE) -> NoReturn:
    raise CliError(message, status)


@functools.cache
def settings() -> Settings:
    """The settings of this process's environment."""
    return Settings.from_environment()


def folder() -> Path:
    """The runtime folder, absolute."""
    return settings().runtime_folder().absolute()


def store_path() -> Path:
    return settings().store_path().absolute()


def ask(command: str, **arguments: Any) -> dict[str, Any]:
    """The controller's answer. Raises NotRunningError, ClientError."""
    from tessera.service.client import request

    return request(folder(), command, **arguments)


def ask_if_running(command: str, **arguments: Any) -> dict[str, Any] | None:
    """The same, but None when no controller runs."""
    from tessera.service.client import NotRunningError

    try:
        return ask(command, **arguments)
    except NotRunningError:
        return None


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Turns the errors that commands know into CliError."""
    try:
        yield
    except Exception as error:
        known = _as_cli_error(error)
        if known is None:
            raise
        raise known from None


def _as_cli_error(error: Exception) -> CliError | None:
    """Imports here, not before something fails: a command should start at once."""
    from tessera.cluster.devices import DevicesError
    from tessera.native import NativeError
    from tessera.service.client import ClientError, NotRunningError
    from tessera.service.daemon import DaemonError
    from tessera.service.runtime import RuntimeFolderError
    from tessera.store import StoreError

    if isinstance(error, NotRunningError):
        return CliError(f"{error}\nstart one: tessera-ctl up", NOT_RUNNING)
    if isinstance(error, DevicesError):
        return CliError(f"{error.problem}\n{error.remedy}")
    known = (
        ClientError,
        DaemonError,
        NativeError,
        RuntimeFolderError,
        SettingsError,
        StoreError,
    )
    return CliError(str(error)) if isinstance(error, known) else None
