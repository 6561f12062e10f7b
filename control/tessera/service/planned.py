# SPDX-License-Identifier: Apache-2.0
"""Computed plans in the controller: kept in the store, and chosen between by the load."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.placement import Condition, ConditionError, Plans, parse_condition
from tessera.placement.policy import Apart, KernelName
from tessera.planning.adaptation import Chooser, Observation
from tessera.store import Store

if TYPE_CHECKING:
    from tessera.service.controller import Controller

log = logging.getLogger(__name__)
OBJECTIVES = ("latency", "throughput")
INTERVAL = 0.25  # seconds between looks at the load


def setting_of(objective: str) -> str:
    """Where the store keeps a plan."""
    return f"plan.{objective}"


Row = tuple[str, str, int] | tuple[str, str, int, str]
"""Image, kernel name, device; and a condition, where it is about some of the launches."""


def encode(rows: Iterable[Row]) -> str:
    return json.dumps([list(row) for row in rows])


def row_of(given: Sequence[Any]) -> Row:
    """Raises ValueError for what is no row of a plan."""
    image, name, device, *condition = given
    if len(condition) > 1:
        raise ValueError(f"{len(given)} columns")
    row = (str(image), str(name), int(device))
    return (*row, str(parse(str(condition[0])))) if condition else row


def parse(condition: str) -> Condition:
    """Raises ValueError."""
    try:
        return parse_condition(condition.split())
    except ConditionError as error:
        raise ValueError(str(error)) from None


def decode(text: str) -> tuple[dict[KernelName, int], dict[KernelName, Apart]]:
    """Devices of kernels, and of some of their launches. Raises ValueError for what is no plan."""
    devices: dict[KernelName, int] = {}
    apart: dict[KernelName, Apart] = {}
    for image, name, device, *condition in map(row_of, json.loads(text)):
        if condition:
            apart[image, name] = (*apart.get((image, name), ()), (parse(condition[0]), device))
        else:
            devices[image, name] = device
    return devices, apart


def changed(plans: Plans, objective: str, text: str) -> Plans:
    """The plans with another one for an objective."""
    devices, apart = decode(text)
    if objective == "latency":
        return dataclasses.replace(plans, latency=devices, latency_apart=apart)
    return dataclasses.replace(plans, throughput=devices, throughput_apart=apart)


def load(store: Store) -> Plans:
    """The plans that the store keeps; one that cannot be read is as none."""
    plans = Plans()
    for objective in OBJECTIVES:
        if text := store.setting(setting_of(objective)):
            try:
                plans = changed(plans, objective, text)
            except (ValueError, TypeError) as error:
                log.warning("the plan for %s is ignored: %s", objective, error)
    return plans


class Load:
    """The load of each device, from how often kernels are launched and what they take.

    Launches are counted when they are made, so more work than time means that work waits:
    what has gathered is the queue, in seconds of the device.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[int, int, str], int] = {}
        self._waiting: dict[str, float] = {}
        self._seen: float | None = None

    def observe(self, programs: Iterable[tuple[int, dict[str, list[dict[str, dict[str, int]]]]]],
                now: float) -> Observation:  # fmt: skip
        """`programs`: process id and counters of each."""
        work: dict[str, float] = {}
        for pid, counters in programs:
            for kernel in counters["kernels"]:
                for device, launches in kernel["launches"].items():
                    key = (pid, int(kernel["id"]), device)  # type: ignore[call-overload]
                    fresh = launches - self._before.get(key, launches)
                    self._before[key] = launches
                    timed = kernel["timed"].get(device, 0)
                    mean = kernel["time_ns"].get(device, 0) * 1e-9 / timed if timed else 0.0
                    work[device] = work.get(device, 0.0) + fresh * mean
        passed = now - self._seen if self._seen is not None else 0.0
        self._seen = now
        if passed <= 0.0:
            return Observation(now, 0.0, 0.0)
        for device, seconds in work.items():
            waiting = self._waiting.get(device, 0.0) + seconds - passed
            self._waiting[device] = max(0.0, waiting)
        busiest = max(work.values(), default=0.0) / passed
        return Observation(now, max(self._waiting.values(), default=0.0), min(1.0, busiest))


async def adapt(controller: Controller) -> None:
    """While the policy is adaptive: follows the load, until the controller stops."""
    load_of = Load()
    chooser = Chooser(queue_above=0.1, queue_below=0.02, stay=1.0, smoothing=0.3, patience=2.0)
    while not controller.stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(controller.stopping.wait(), INTERVAL)
        if controller.placer.policy != "adaptive":
            continue
        programs = [(one.identity.pid, one.counters()) for one in controller.programs.all()]
        mode = chooser.observe(load_of.observe(programs, time.monotonic()))
        if mode != controller.placer.plans.mode:
            log.info("the adaptive policy changes to %s", mode)
            plans = dataclasses.replace(controller.placer.plans, mode=mode)
            controller.placer.set_plans(plans)
