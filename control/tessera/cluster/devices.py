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


_INSTALL = "install NVIDIA's driver, or name one with TESSERA_DRIVER or LD_LIBRARY_PATH"
_REMEDIES = {
    "no driver": _INSTALL,
    "TESSERA_SIM_DEVICES": "set TESSERA_SIM_DEVICES to devices of the simulated driver's catalogue",
    "CUDA_ERROR_NO_DEVICE": "is there a GPU (nvidia-smi)? is CUDA_VISIBLE_DEVICES empty or wrong?",
    "CUDA_ERROR_STUB_LIBRARY": "this libcuda is for linking only: put the driver's own before it "
    "in LD_LIBRARY_PATH, or name it with TESSERA_DRIVER",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "library and kernel module of the driver are of different "
    "versions: load the module anew, or restart the machine",
    "CUDA_ERROR_SYSTEM_NOT_READY": "the driver's services do not run yet: with NVSwitch, "
    "nvidia-fabricmanager has to",
    "CUDA_ERROR_OPERATING_SYSTEM": "may this user open /dev/nvidia*? in a container, pass the GPUs "
    "on to it",
}
_ELSE = "does nvidia-smi work? TESSERA_DRIVER names another driver"
_SAID_LINES, _SAID_LENGTH = 5, 400  # of what a driver prints, for messages


class DevicesError(Exception):
    """The devices cannot be listed; the message says why, with what the driver itself said."""

    def __init__(self, problem: str, said: str = "") -> None:
        self.problem = f"{problem}; the driver says: {said}" if said else problem
        text = f"{problem} {said}"
        self.remedy = next((mend for sign, mend in _REMEDIES.items() if sign in text), _ELSE)
        super().__init__(self.problem)


@dataclass(frozen=True)
class Machine:
    """What the driver shows."""

    driver: str
    version: int  # 13000 for CUDA 13.0
    devices: tuple[DeviceInfo, ...]
    checks: dict[int, dict[str, str]] = field(default_factory=dict)  # by ordinal; empty text: works
    library: str = ""  # the file that the driver was loaded from, where that can be told


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
        how = f"asking the driver ended with {result.returncode}"
        raise DevicesError(how, _said(result.stderr)) from None
    if "error" in answer:
        raise DevicesError(answer["error"], _said(result.stderr))
    return Machine(
        answer["driver"],
        answer["version"],
        tuple(DeviceInfo(**device) for device in answer["devices"]),
        {int(ordinal): checks for ordinal, checks in answer.get("checks", {}).items()},
        answer["library"],
    )


def _said(stderr: bytes) -> str:
    """What the driver printed about its failure, on one line."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    kept = list(dict.fromkeys(line for line in lines if line))[-_SAID_LINES:]
    return " / ".join(kept)[-_SAID_LENGTH:]
