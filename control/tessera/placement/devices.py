# SPDX-License-Identifier: Apache-2.0
"""Names of devices in rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tessera import protocol

HOME = "home"


@dataclass(frozen=True)
class Worker:
    """A worker as placement sees it."""

    index: int  # the value in the placement table: 1 to 15
    name: str = ""  # the device's: "NVIDIA L40S"
    compute_capability: int = 0  # 90 for sm_90; 0: not known
    up: bool = True

    def __str__(self) -> str:
        return f"{self.index} ({self.name})" if self.name else str(self.index)


class DeviceNameError(Exception):
    """A rule names no device, or more than one."""


def device_names(workers: Sequence[Worker]) -> str:
    """What a rule may say, for messages: `home, 1 (NVIDIA L40S)`."""
    return ", ".join([HOME, *(str(worker) for worker in workers)])


def find_device(name: str, workers: Sequence[Worker]) -> int:
    """The index that a name stands for. Raises DeviceNameError."""
    if name.lower() == HOME:
        return protocol.DEVICE_HOME
    if match := re.fullmatch(r"(?:gpu)?(\d{1,3})", name.lower()):
        return _by_index(name, int(match[1]), workers)
    found = [worker for worker in workers if _fits(name, worker.name)]
    if len(found) == 1:
        return found[0].index
    if found:
        several = " and ".join(str(worker.index) for worker in found)
        raise DeviceNameError(f"{name!r} fits workers {several}: write the number")
    raise DeviceNameError(f"unknown device {name!r} (there are: {device_names(workers)})")


def _by_index(name: str, index: int, workers: Sequence[Worker]) -> int:
    if any(worker.index == index for worker in workers):
        return index
    hint = f", {HOME!r} is the program's own GPU" if index == 0 else ""
    raise DeviceNameError(f"no worker {name!r} (there are: {device_names(workers)}{hint})")


def _fits(name: str, device: str) -> bool:
    """`L40S` and `nvidia l40s` fit "NVIDIA L40S"; `L4` does not."""
    words = re.findall(r"[a-z0-9]+", device.lower())
    wanted = re.findall(r"[a-z0-9]+", name.lower())
    starts = range(len(words) - len(wanted) + 1)
    return bool(wanted) and any(words[i : i + len(wanted)] == wanted for i in starts)
