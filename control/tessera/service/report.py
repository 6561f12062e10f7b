# SPDX-License-Identifier: Apache-2.0
"""What the controller tells of itself, as JSON. Bytes, nanoseconds; times in seconds since 1970."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import tessera
from tessera import protocol
from tessera.cluster.fleet import State, WorkerKeeper
from tessera.placement import Finding
from tessera.service.placer import Placer, kernel_of
from tessera.service.programs import Program
from tessera.store import KernelRecord, Status

if TYPE_CHECKING:
    from tessera.service.controller import Controller

SCHEMA = 1  # of the status object; raised when a member changes its meaning
MANY_IDS = 0.9  # of all kernel ids


def status(controller: Controller) -> dict[str, Any]:
    """The whole state, without kernels that no live program has launched."""
    programs = [program(one) for one in controller.programs.all()]
    return {
        "schema": SCHEMA,
        "controller": _controller(controller),
        "devices": _devices(controller),
        "workers": [worker(keeper) for keeper in controller.fleet.keepers],
        "programs": programs,
        "kernels": _kernels(controller, programs),
        "problems": _problems(controller),
    }


def _controller(controller: Controller) -> dict[str, Any]:
    store = controller.store
    return {
        "pid": os.getpid(),
        "version": tessera.__version__,
        "protocol": protocol.VERSION,
        "folder": str(controller.config.folder),
        "started": controller.started,
        "uptime": time.time() - controller.started,
        "chosen_devices": controller.config.devices,
        "store": {"path": str(store.path), "memory_reason": store.memory_reason},
        "policy": controller.placer.policy,
        "rules_revision": controller.placer.record.revision,
        "placement_generation": controller.placer.table.generation,
        "kernel_ids": {"used": len(controller.placer.kernels), "of": protocol.MAX_KERNELS},
        "analysis": {
            "version": controller.pool.version,
            "queued": controller.pool.queued,
            "running": controller.pool.running,
            "done": controller.knowledge.done,
            "failed": controller.knowledge.failed,
        },
        "refused": controller.server.refused,
    }


def _devices(controller: Controller) -> list[dict[str, Any]]:
    if controller.machine is None:
        return []
    workers = {k.spec.device.ordinal: k.spec.index for k in controller.fleet.keepers}
    return [
        dataclasses.asdict(device) | {"worker": workers.get(device.ordinal)}
        for device in controller.machine.devices
    ]


def worker(keeper: WorkerKeeper) -> dict[str, Any]:
    return {
        "index": keeper.spec.index,
        "device": dataclasses.asdict(keeper.spec.device),
        "state": keeper.state,
        "pid": keeper.pid,
        "restarts": keeper.restarts,
        "last_failure": keeper.error,
        **dataclasses.asdict(keeper.figures()),
    }


def program(one: Program) -> dict[str, Any]:
    return {
        "pid": one.identity.pid,
        "program": one.hello.program,
        "state": one.state,
        "connected": one.connected,
        "slot": one.slot,
        "started": one.started,
        "run": one.run,
        "build": one.hello.build,
        "devices": [device.name for device in one.hello.devices],
        "lost_workers": {str(index): reason for index, reason in one.lost_workers.items()},
        "counters": one.counters(),
    }


def kernel(placer: Placer, record: KernelRecord) -> dict[str, Any]:
    """One kernel and where it runs."""
    placement = placer.placements.get(record.id) if record.id is not None else None
    return {
        "id": record.id,
        "name": record.name,
        "image": record.image,
        "status": record.status,
        "grade": record.grade,
        "not_known": record.reason,
        "properties": protocol.property_words(record.properties),
        "may_move": record.status == Status.READY and not record.properties & protocol.HOME_ONLY,
        "minimum_architecture": record.minimum_architecture,
        "only_architecture": record.only_architecture,
        "device": placement.device if placement else protocol.DEVICE_HOME,
        "wanted": placement.wanted if placement else protocol.DEVICE_HOME,
        "line": placement.line if placement else 0,
        "reason": placement.reason if placement else (kernel_of(record).reason or "not launched"),
    }


def _kernels(controller: Controller, programs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels that live programs have launched, with the sums of their counters."""
    sums: dict[int, dict[str, dict[str, int]]] = {}
    for one in programs:
        for counters in one["counters"]["kernels"]:
            total = sums.setdefault(counters["id"], {})
            for name in ("launches", "stayed", "bytes_in", "time_ns", "timed"):
                add_counts(total.setdefault(name, {}), counters[name])
    known = {record.id: record for record in controller.knowledge.known_kernels()}
    return [
        kernel(controller.placer, known[i]) | counts
        for i, counts in sorted(sums.items())
        if i in known
    ]


def add_counts(total: dict[str, int], more: dict[str, int]) -> None:
    """Adds counters by device or by reason."""
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def _problems(controller: Controller) -> list[str]:
    """What a user should know, one line each."""
    problems = []
    if controller.store.memory_reason:
        problems.append(
            f"the store is kept in memory, and lost at the end: {controller.store.memory_reason}"
        )
    if controller.machine_error:
        problems.append(f"the devices cannot be listed: {controller.machine_error}")
    problems += [_worker_problem(keeper) for keeper in controller.fleet.keepers]
    problems += [_rule_problem(finding) for finding in controller.placer.findings]
    used, most = len(controller.placer.kernels), protocol.MAX_KERNELS
    if used > MANY_IDS * most:
        problems.append(f"{used} of {most} kernel numbers are used: later kernels stay home")
    return [problem for problem in problems if problem]


def _worker_problem(keeper: WorkerKeeper) -> str:
    index = keeper.spec.index
    if keeper.state == State.FAILED:
        return f"worker {index} is given up: {keeper.error}"
    if keeper.state == State.RESTARTING:
        return f"worker {index} is started again: {keeper.error}"
    return ""


def _rule_problem(finding: Finding) -> str:
    return f"rules, {finding}: the rule has no effect"
