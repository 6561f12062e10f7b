# SPDX-License-Identifier: Apache-2.0
"""Devices and the links between them, as the planner sees them.

Rates are per second: bytes for memory and links (one direction), operations for arithmetic.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MAX_DEVICES = 16


class CatalogueError(Exception):
    """The catalogue cannot be read, or has no such device; the message says what to do."""


@dataclass(frozen=True)
class Device:
    """One GPU."""

    key: str  # in the catalogue: "L40S"
    name: str  # the driver's: "NVIDIA L40S"
    capability: int  # 89 for sm_89; 0: not known
    memory: float  # bytes
    bandwidth: float
    flops: Mapping[str, float] = field(default_factory=dict)  # by type: "tensor_bf16"
    launch_overhead: float = 2e-6  # seconds
    port_bandwidth: float = 32e9
    port_latency: float = 4e-6  # seconds
    price: float = 0.0  # dollars an hour
    source: str = ""

    def __hash__(self) -> int:
        return hash((self.key, self.name))


@dataclass(frozen=True)
class Link:
    """One direction between two devices."""

    bandwidth: float
    latency: float  # seconds, of one transfer with the flags that announce it

    def time(self, size: float) -> float:
        """Seconds that `size` bytes keep the link busy."""
        return size / self.bandwidth


@dataclass(frozen=True)
class LinkModel:
    """How links follow from ports until a pair is measured."""

    efficiency: float = 0.8  # of the nominal rate that large copies reach
    handoff: float = 6e-6  # seconds: a pair of flags between the streams of two processes
    bandwidth: float = 0.0  # of every link, instead of what the ports give; 0: the ports'


@dataclass(frozen=True)
class Machine:
    """Devices, the first of them home, and a link for each ordered pair.

    All transfers that leave a device share its port, and so do all that arrive: they are
    served one after another, each at the rate of its link.
    """

    devices: tuple[Device, ...]
    links: Mapping[tuple[int, int], Link]
    memory_share: float = 0.9  # of each device's memory that may be planned with

    def __post_init__(self) -> None:
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            raise ValueError(f"{len(self.devices)} devices: 1 to {MAX_DEVICES} can be planned for")

    @property
    def size(self) -> int:
        return len(self.devices)

    @property
    def price(self) -> float:
        """Dollars an hour of all devices."""
        return sum(device.price for device in self.devices)

    def memory(self, device: int) -> float:
        """Bytes that may be planned with."""
        return self.devices[device].memory * self.memory_share

    def labels(self) -> list[str]:
        """A short name for each device; numbered where two are alike."""
        keys = [device.key for device in self.devices]
        return [
            f"{key} #{keys[:i].count(key) + 1}" if keys.count(key) > 1 else key
            for i, key in enumerate(keys)
        ]


def connect(
    devices: Sequence[Device],
    model: LinkModel | None = None,
    measured: Mapping[tuple[int, int], Link] | None = None,
) -> Machine:
    """A machine whose links are what both ports allow, but for those that were measured."""
    model = model or LinkModel()
    links = {}
    for i, source in enumerate(devices):
        for j, target in enumerate(devices):
            if i == j:
                continue
            nominal = model.bandwidth or min(source.port_bandwidth, target.port_bandwidth)
            latency = max(source.port_latency, target.port_latency) + model.handoff
            links[i, j] = Link(nominal * model.efficiency, latency)
    return Machine(tuple(devices), links | dict(measured or {}))


def catalogue_path() -> Path:
    """The file of devices: TESSERA_SIM_CATALOGUE, the installed one, or the source tree's.

    Raises CatalogueError.
    """
    package = Path(__file__).resolve().parents[1]
    native = os.environ.get("TESSERA_NATIVE_DIR", "")
    candidates = [
        *([Path(given)] if (given := os.environ.get("TESSERA_SIM_CATALOGUE", "")) else []),
        package.parents[1] / "native" / "sim" / "devices" / "catalogue.json",
        package / "_native" / "sim" / "catalogue.json",
        *([Path(native) / "sim" / "catalogue.json"] if native else []),
    ]
    for path in candidates:
        if path.is_file():
            return path
    tried = ", ".join(str(path) for path in candidates)
    raise CatalogueError(f"no catalogue of devices (looked for {tried}): set TESSERA_SIM_CATALOGUE")


def load_catalogue(path: Path | None = None) -> dict[str, Device]:
    """Every device of the catalogue, by key. Raises CatalogueError."""
    path = path or catalogue_path()
    try:
        entries: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))["devices"]
        return {key: _device(key, entry) for key, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CatalogueError(f"{path}: {type(error).__name__}: {error}") from None


def pick(catalogue: Mapping[str, Device], keys: Iterable[str]) -> list[Device]:
    """The devices of these keys, whatever their case. Raises CatalogueError."""
    by_key = {key.casefold(): device for key, device in catalogue.items()}
    found = []
    for key in keys:
        device = by_key.get(key.strip().casefold())
        if device is None:
            raise CatalogueError(f"unknown device {key.strip()!r}: {', '.join(catalogue)}")
        found.append(device)
    return found


def find_by_name(catalogue: Mapping[str, Device], name: str, memory: float = 0) -> Device | None:
    """The catalogue's entry for a device as the driver calls it."""
    for device in catalogue.values():
        if device.name == name:
            return replace(device, memory=memory or device.memory)
    return None


def _device(key: str, entry: Mapping[str, Any]) -> Device:
    major, minor = str(entry["compute_capability"]).split(".")
    return Device(
        key=key,
        name=str(entry["name"]),
        capability=int(major) * 10 + int(minor),
        memory=float(entry["memory_bytes"]),
        bandwidth=float(entry["memory_bandwidth"]),
        flops={kind: float(rate) for kind, rate in entry["flops"].items()},
        launch_overhead=float(entry["launch_overhead_us"]) * 1e-6,
        port_bandwidth=float(entry["peer_link"]["bandwidth"]),
        port_latency=float(entry["peer_link"]["latency_us"]) * 1e-6,
        price=float(entry["price_per_hour"]),
        source="; ".join(str(text) for text in entry["sources"].values()),
    )
