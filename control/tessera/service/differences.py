# SPDX-License-Identifier: Apache-2.0
"""Whether the controller that runs is the one that was asked for, and what differs if not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tessera
from tessera.cluster.devices import DevicesError, find_devices

# Which driver is found, and which devices it shows. That these differ need not mean anything.
_DRIVER_VARIABLES = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "TESSERA_DRIVER",
    "TESSERA_SIM_CATALOGUE",
    "TESSERA_SIM_DEVICES",
)
# What a controller and its workers do differently.
_OTHER_VARIABLES = (
    "TESSERA_ANALYSIS_WAIT_MS",
    "TESSERA_LOG",
    "TESSERA_NATIVE_DIR",
    "TESSERA_SIM_CLOCK",
    "TESSERA_SIM_ISA",
    "TESSERA_SIM_RECORD",
    "TESSERA_TIMEOUT_MS",
    "TESSERA_WORKER_MEMORY_MIB",
    "TESSERA_WORKER_SPIN_US",
)


@dataclass(frozen=True)
class _Seen:
    """The driver and its devices, or why they are not known."""

    library: str
    devices: tuple[tuple[str, str], ...]  # name, UUID
    error: str = ""

    def names(self) -> str:
        if self.error:
            return f"not known ({self.error})"
        return ", ".join(f"{i} {name}" for i, (name, _) in enumerate(self.devices)) or "none"


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of an environment a controller depends on."""
    wanted = (*_DRIVER_VARIABLES, *_OTHER_VARIABLES)
    return {name: variables[name] for name in wanted if name in variables}


def of_machine(status: Mapping[str, Any]) -> list[str]:
    """Where driver and devices of the controller are not those of this environment.

    The driver is asked only when the variables that choose it differ.
    """
    changed = _changed(status, _DRIVER_VARIABLES)
    if not changed:
        return []
    theirs, ours = _their_machine(status), _our_machine()
    if theirs == ours:
        return []
    if theirs.devices != ours.devices:
        return [f"its GPUs are {theirs.names()}; those of this shell are {ours.names()}", *changed]
    return [f"its driver is {theirs.library}, that of this shell {ours.library}", *changed]


def of_all(status: Mapping[str, Any], devices: tuple[int, ...] | None, store: Path) -> list[str]:
    """Everything in which the controller is not what `up` with these devices would start."""
    controller = status["controller"]
    if controller["version"] != tessera.__version__:
        return [f"it is Tessera {controller['version']}, this is {tessera.__version__}"]
    found = of_machine(status) or of_workers(status, devices)
    if Path(controller["store"]["path"]) != store:
        found.append(f"its store is {controller['store']['path']}, here it is {store}")
    return found + _changed(status, _OTHER_VARIABLES)


def of_workers(status: Mapping[str, Any], devices: tuple[int, ...] | None) -> list[str]:
    """Where the controller has other workers than `up` with these devices would start."""
    serving = tuple(worker["device"]["ordinal"] for worker in status["workers"])
    everything = tuple(device["ordinal"] for device in status["devices"])[1:]
    asked = everything if devices is None else devices
    if serving == asked:
        return []
    why = ", all but the first" if devices is None and asked else ""
    return [f"it has workers on {_listed(serving)}; asked for are {_listed(asked)}{why}"]


def _listed(ordinals: tuple[int, ...]) -> str:
    word = "device" if len(ordinals) == 1 else "devices"
    return f"{word} {', '.join(str(o) for o in ordinals)}" if ordinals else "no device"


def _changed(status: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    ours = environment()
    theirs = status["controller"].get("environment", ours)  # another version may not tell
    return [
        f"{name} is {_value(theirs, name)} there, {_value(ours, name)} here"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]


def _value(variables: Mapping[str, str], name: str) -> str:
    return repr(variables[name]) if name in variables else "not set"


def _their_machine(status: Mapping[str, Any]) -> _Seen:
    driver = status["controller"].get("driver", {})
    devices = tuple((device["name"], device["uuid"]) for device in status["devices"])
    return _Seen(driver.get("library", ""), devices, driver.get("error", ""))


def _our_machine() -> _Seen:
    try:
        machine = find_devices()
    except DevicesError as error:
        return _Seen("", (), error.problem)
    devices = tuple((device.name, device.uuid) for device in machine.devices)
    return _Seen(machine.library, devices)
