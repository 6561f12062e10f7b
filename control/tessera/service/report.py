# SPDX-License-Identifier: Apache-2.0
"""What the controller tells of itself, as JSON. Bytes, nanoseconds; times in seconds since 1970."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tessera
from tessera import protocol
from tessera.cluster import worker_log
from tessera.cluster.fleet import State, WorkerKeeper
from tessera.placement import Finding, Placement, class_values, quantities_of
from tessera.service import differences, planned
from tessera.service.counts import add_row, by_kernel
from tessera.service.placer import Placer, kernel_of
from tessera.service.programs import Loss, Program
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
        "home": _home(controller, programs),
        "workers": [worker(keeper) for keeper in controller.fleet.keepers],
        "programs": programs,
        "kernels": _kernels(controller, programs),
        "faults": [_fault(*fault) for fault in controller.faults],
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
        "environment": differences.environment(),
        "driver": _driver(controller),
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


def _driver(controller: Controller) -> dict[str, Any]:
    machine = controller.machine
    return {
        "library": machine.library if machine else "",
        "version": machine.version if machine else 0,
        "error": controller.machine_error,
        "remedy": controller.machine_remedy,
    }


def _devices(controller: Controller) -> list[dict[str, Any]]:
    if controller.machine is None:
        return []
    workers = {k.spec.device.ordinal: k.spec.index for k in controller.fleet.keepers}
    return [
        dataclasses.asdict(device) | {"worker": workers.get(device.ordinal)}
        for device in controller.machine.devices
    ]


def _home(controller: Controller, programs: list[dict[str, Any]]) -> dict[str, Any]:
    """What ran at home, as a worker's figures: of this controller's programs, ended or not."""
    work = dataclasses.replace(controller.past.home)
    for one in programs:
        work.add(one["counters"])
    return dataclasses.asdict(work) | {"busy_ns": int(work.busy_ns)}


def _fault(when: float, one: Program, loss: Loss) -> dict[str, Any]:
    return loss.as_dict() | {"time": when, "pid": one.identity.pid, "program": one.hello.program}


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
        "counters": one.counters(),
    }


def kernel(
    placer: Placer, record: KernelRecord, kept: Mapping[int, Kept] | None = None
) -> dict[str, Any]:
    """One kernel and where it runs; `kept` as `kept_home` gives it."""
    placement = placer.placements.get(record.id) if record.id is not None else None
    why = (kept or {}).get(record.id) if record.id is not None else None
    if why is not None and placement is not None and _moves(placement):
        placement = why.instead_of(placement)
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
        "apart": [_apart(one) for one in placement.apart] if placement else [],
    }


def _moves(placement: Placement) -> bool:
    return any(one.device != protocol.DEVICE_HOME for one in (placement, *placement.apart))


def _apart(placement: Placement) -> dict[str, Any]:
    """Where those launches of a kernel run for which a condition holds."""
    return {
        "condition": str(placement.condition),
        "device": placement.device,
        "wanted": placement.wanted,
        "line": placement.line,
        "reason": placement.reason,
    }


def with_classes(described: dict[str, Any], counted: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel as above, and the `classes` of its launches that were told apart: where each runs
    now, with what was counted of it.
    """
    apart = [(planned.parse(one["condition"]), one) for one in described.get("apart", [])]
    found = {}
    for name, counts in sorted(counted.items()):
        values = quantities_of(class_values(name))
        place = next((one for condition, one in apart if condition.holds(values)), described)
        why = {key: place.get(key, 0) for key in ("device", "line", "reason")}
        found[name] = why | counts
    return described | {"classes": found}


def classes_seen(controller: Controller) -> dict[int, dict[str, Any]]:
    """By kernel and name: counters of the launch classes of this controller's programs."""
    programs = [one.counters() for one in controller.programs.all()]
    past = [{"id": i, "classes": classes} for i, classes in controller.past.classes.items()]
    found: dict[int, dict[str, Any]] = {}
    for kernel in [*past, *(one for counters in programs for one in counters["kernels"])]:
        for name, counts in kernel.get("classes", {}).items():
            add_row(found.setdefault(kernel["id"], {}).setdefault(name, {}), counts)
    return found


@dataclass(frozen=True)
class Kept:
    """Why a kernel has stayed home that is placed elsewhere: its programs keep everything there."""

    reason: str
    now: bool  # False: a program that has ended did; the next one may not

    def instead_of(self, placement: Placement) -> Placement:
        if self.now:
            reason = f"all at home: {self.reason}"
            home = protocol.DEVICE_HOME
            return dataclasses.replace(placement, device=home, reason=reason, apart=())
        reason = f"{placement.reason}; the last program kept all at home: {self.reason}"
        return dataclasses.replace(placement, reason=reason)


def kept_by(counters: Iterable[dict[str, Any]]) -> dict[int, Kept]:
    """By kernel: why all programs that have launched it keep it home. `counters`: the programs'."""
    reasons: dict[int, list[str]] = {}
    for one in counters:
        for launched in one["kernels"]:
            reasons.setdefault(launched["id"], []).append(one.get("all_home", ""))
    return {number: Kept(whys[0], True) for number, whys in reasons.items() if all(whys)}


def kept_home(controller: Controller) -> dict[int, Kept]:
    """The same of the programs that run; of a kernel that none of them has, of the last one."""
    counters = [one.counters() for one in controller.programs.all()]
    launched = {kernel["id"] for one in counters for kernel in one["kernels"]}
    past = controller.past.kept_home.items()
    return {n: Kept(why, False) for n, why in past if n not in launched} | kept_by(counters)


def _kernels(controller: Controller, programs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels that live programs have launched, with the sums of their counters."""
    known = {record.id: record for record in controller.knowledge.known_kernels()}
    kept = kept_by(one["counters"] for one in programs)
    return [
        with_classes(kernel(controller.placer, known[i], kept), counts.pop("classes", {})) | counts
        for i, counts in by_kernel(one["counters"] for one in programs).items()
        if i in known
    ]


def _problems(controller: Controller) -> list[str]:
    """What a user should know, one line each."""
    problems = []
    if controller.store.memory_reason:
        problems.append(
            f"the store is kept in memory, and lost at the end: {controller.store.memory_reason}"
        )
    if controller.machine_error:
        problems.append(
            f"the devices cannot be listed: {controller.machine_error}: {controller.machine_remedy}"
        )
    folder = controller.config.folder
    problems += [_worker_problem(keeper, folder) for keeper in controller.fleet.keepers]
    problems += [_rule_problem(finding) for finding in controller.placer.findings]
    problems.append(controller.placer.problem)
    used, most = len(controller.placer.kernels), protocol.MAX_KERNELS
    if used > MANY_IDS * most:
        problems.append(f"{used} of {most} kernel numbers are used: later kernels stay home")
    return [problem for problem in problems if problem]


def _worker_problem(keeper: WorkerKeeper, folder: Path) -> str:
    index = keeper.spec.index
    log = worker_log.path_of(folder, index)
    if keeper.state == State.FAILED:
        return f"worker {index} is given up: {keeper.error} (its log: {log})"
    if keeper.state == State.RESTARTING:
        return f"worker {index} is started again: {keeper.error} (its log: {log})"
    return ""


def _rule_problem(finding: Finding) -> str:
    return f"rules, {finding}: the rule has no effect"
