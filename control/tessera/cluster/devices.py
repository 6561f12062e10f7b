# SPDX-License-Identifier: Apache-2.0
"""The devices of this machine, asked for in a process that ends right after."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from tessera.cluster.environment import python_environment
from tessera.native.driver import DeviceInfo

PROBE_TIMEOUT = 60.0  # seconds: a driver that has to load its kernel module takes many


class DevicesError(Exception):
    """The devices cannot be listed; the message says why."""


@dataclass(frozen=True)
class Machine:
    """What the driver shows."""

    driver: str
    version: int  # 13000 for CUDA 13.0
    devices: tuple[DeviceInfo, ...]
    checks: dict[int, dict[str, str]] = field(default_factory=dict)  # by ordinal; empty text: works


def find_devices(*, deep: bool = False, timeout: float = PROBE_TIMEOUT) -> Machine:
    """Asks the driver. Raises DevicesError."""
    command = [sys.executable, "-P", "-m", "tessera.cluster.probe", *(["--deep"] if deep else [])]
    try:
        result = subprocess.run(
            command,
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DevicesError(f"the driver did not answer within {timeout:g} s") from None
    except OSError as error:
        raise DevicesError(f"no process can be started: {error.strerror}") from None
    return _machine(result)


def _machine(result: subprocess.CompletedProcess[bytes]) -> Machine:
    # The driver, or what it loads, may print lines of its own before ours.
    lines = result.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        error = result.stderr.decode("utf-8", "replace").strip().splitlines()
        last = f": {error[-1]}" if error else ""
        raise DevicesError(f"asking the driver ended with {result.returncode}{last}") from None
    if "error" in answer:
        raise DevicesError(answer["error"])
    return Machine(
        answer["driver"],
        answer["version"],
        tuple(DeviceInfo(**device) for device in answer["devices"]),
        {int(ordinal): checks for ordinal, checks in answer.get("checks", {}).items()},
    )
