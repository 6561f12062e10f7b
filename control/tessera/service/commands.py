# SPDX-License-Identifier: Apache-2.0
"""What tessera-ctl may ask of the controller: JSON in, JSON out, over TS_STATUS.

A request is an object with `command` and its arguments. An answer has `ok`; when that is
false, `error`, and for rules `errors`, as [line, message] pairs. An answer too long for a
packet comes as a descriptor, and the packet only says its size as `attached`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from tessera.placement import Finding, Rules, make_policy, parse_rules, policy_for_rules
from tessera.protocol import packets
from tessera.protocol.recording import MOST_LAUNCHES
from tessera.service import planned, report, trials
from tessera.service.pool import PoolError
from tessera.store import KernelRecord, RulesChangedError, StoreError

if TYPE_CHECKING:
    from tessera.service.controller import Controller

log = logging.getLogger(__name__)
Request = dict[str, Any]
Answer = dict[str, Any]
RULES_TIMEOUT = 5.0  # seconds for trying rules on all known kernels


class CommandError(Exception):
    """The answer is an error; the message says what to do. `more` goes into the answer, too."""

    def __init__(self, message: str, **more: Any) -> None:
        self.more = more
        super().__init__(message)


async def execute(controller: Controller, data: bytes) -> bytes:
    """The answer to a request, as JSON. Never raises."""
    try:
        request = json.loads(data.decode("utf-8"))
        command = COMMANDS.get(request["command"])
        if command is None:
            raise CommandError(f"unknown command {request['command']!r}")
        answer: Answer = {"ok": True} | await command(controller, request)
    except CommandError as error:
        answer = {"ok": False, "error": str(error), **error.more}
    except StoreError as error:
        answer = {"ok": False, "error": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        answer = {"ok": False, "error": f"a malformed request: {type(error).__name__}: {error}"}
    except Exception as error:  # the controller serves others too
        log.exception("command %r", data[:200])
        answer = {"ok": False, "error": f"the controller failed: {error}; its log says more"}
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")


def long_answer(size: int) -> bytes:
    """What the packet says when the answer comes as a descriptor."""
    return json.dumps({"attached": size}).encode()


async def _status(controller: Controller, request: Request) -> Answer:
    del request
    return {"status": report.status(controller)}


def _described(
    controller: Controller,
    record: KernelRecord,
    kept: Mapping[int, report.Kept],
    seen: Mapping[int, dict[str, Any]],
) -> dict[str, Any]:
    """A kernel, where it runs, and its launch classes: `kept`, `seen` as report gives them."""
    classes = seen.get(record.id, {}) if record.id is not None else {}
    return report.with_classes(report.kernel(controller.placer, record, kept), classes)


async def _kernels(controller: Controller, request: Request) -> Answer:
    records = await controller.store.run(
        lambda store: store.kernels(launched_only=not request.get("all", False))
    )
    kept = report.kept_home(controller)
    tried = trials.by_kernel(await controller.store.run(lambda store: store.trials()))
    seen = report.classes_seen(controller)
    return {
        "kernels": [
            _described(controller, record, kept, seen) | trials.summed_up(record, tried)
            for record in records
        ]
    }


async def _trials(controller: Controller, request: Request) -> Answer:
    """What trials showed: of one `run`, or all of them; with how far the run's programs are."""
    run = request.get("run")
    records = await controller.store.run(lambda store: store.trials(run=run))
    kernels = await controller.store.run(lambda store: store.kernels())
    known = {(kernel.image, kernel.name): kernel for kernel in kernels}
    return {"trials": trials.described(records, known)}


async def _show(controller: Controller, request: Request) -> Answer:
    image, name = str(request["image"]), str(request["name"])
    record = await controller.store.run(lambda store: store.kernel(image, name))
    if record is None:
        raise CommandError(f"no kernel {name!r} in image {image}")
    described = await controller.store.run(lambda store: store.image(image))
    tried = await controller.store.run(lambda store: store.trials(kernel=(image, name)))
    seen = report.classes_seen(controller)
    return {
        "kernel": _described(controller, record, report.kept_home(controller), seen)
        | trials.summed_up(record, trials.by_kernel(tried))
        | {"summary": record.summary},
        "image": dataclasses.asdict(described) if described else None,
    }


async def _rules(controller: Controller, request: Request) -> Answer:
    del request
    placer = controller.placer
    return {
        "text": placer.record.text,
        "revision": placer.record.revision,
        "policy": placer.policy,
        "errors": _pairs(placer.findings),
        "workers": [dataclasses.asdict(worker) for worker in placer.workers],
    }


async def _check_rules(controller: Controller, request: Request) -> Answer:
    text = str(request["text"])
    rules = parse_rules(text, controller.placer.workers)
    warnings = [] if rules.errors else await _try_rules(controller, text)
    return {"errors": _pairs(rules.errors), "warnings": warnings}


async def _set_rules(controller: Controller, request: Request) -> Answer:
    """Checks the text and makes it the rules, or changes nothing. The policy may follow."""
    text, base = str(request["text"]), request.get("base_revision")
    rules = parse_rules(text, controller.placer.workers)
    if rules.errors:
        return {"ok": False, "error": "the rules have errors", "errors": _pairs(rules.errors)}
    warnings = await _try_rules(controller, text)
    before = controller.placer.policy
    policy = str(request.get("policy") or policy_for_rules(before, bool(rules.rules)))
    _check_policy(policy)
    try:
        record = await controller.store.run(lambda store: store.save_rules(text, base))
    except RulesChangedError as error:
        raise CommandError(f"{error}: look at them, then try again") from None
    await controller.store.run(lambda store: store.save_setting("policy", policy))
    controller.placer.set_rules(record, policy)
    log.info("rules of revision %d, policy %s", record.revision, policy)
    return {
        "revision": record.revision,
        "policy": policy,
        "policy_before": before,
        "warnings": warnings,
        "in_memory": controller.store.memory_reason,
    }


async def _set_policy(controller: Controller, request: Request) -> Answer:
    policy = str(request["policy"])
    _check_policy(policy)
    await controller.store.run(lambda store: store.save_setting("policy", policy))
    controller.placer.set_rules(controller.placer.record, policy)
    log.info("policy %s", policy)
    return {"policy": policy, "in_memory": controller.store.memory_reason}


async def _set_plan(controller: Controller, request: Request) -> Answer:
    """Keeps a computed plan: `objective`, and `devices` as [image, kernel name, device], with
    a condition behind it where it is about some of the kernel's launches; of those the first
    whose condition holds.
    """
    objective = str(request["objective"])
    if objective not in planned.OBJECTIVES:
        raise CommandError(f"unknown objective {objective!r}: {' or '.join(planned.OBJECTIVES)}")
    rows = [planned.row_of(row) for row in request["devices"]]
    text = planned.encode(rows)
    await controller.store.run(
        lambda store: store.save_setting(planned.setting_of(objective), text)
    )
    controller.placer.set_plans(planned.changed(controller.placer.plans, objective, text))
    kernels = len({row[:2] for row in rows})
    if policy := str(request.get("policy") or ""):
        return {"kernels": kernels} | await _set_policy(controller, {"policy": policy})
    return {"kernels": kernels, "policy": controller.placer.policy}


async def _dependencies(controller: Controller, request: Request) -> Answer:
    del request
    edges = await controller.store.run(lambda store: store.dependencies())
    return {"dependencies": [dataclasses.asdict(edge) for edge in edges]}


async def _record(controller: Controller, request: Request) -> Answer:
    """Programs are to tell the order of their next launches; `recording` has it then."""
    launches = int(request["launches"])
    if not 0 < launches <= MOST_LAUNCHES:
        raise CommandError(f"{launches} launches: 1 to {MOST_LAUNCHES} can be recorded")
    asked = controller.record(launches)
    if not asked:
        raise CommandError("no program runs: start one under tessera-ctl run, then record")
    return {"programs": asked}


async def _recording(controller: Controller, request: Request) -> Answer:
    del request
    return controller.recordings.summary()


async def _history(controller: Controller, request: Request) -> Answer:
    limit = int(request.get("limit", 100))
    records = await controller.store.run(lambda store: store.programs(limit=limit))
    return {"programs": [dataclasses.asdict(record) for record in records]}


async def _run(controller: Controller, request: Request) -> Answer:
    """The programs of one `tessera-ctl run`: `running`, and `ended` with their last counters."""
    run = str(request["run"])
    running = [report.program(p) for p in controller.programs.all() if p.run == run]
    records = await controller.store.run(lambda store: store.programs(run=run))
    kept = report.kept_by([p["counters"] for p in running] + [r.counters for r in records])
    return {
        "running": running,
        "ended": [dataclasses.asdict(record) for record in records],
        "kernels": {
            str(record.id): report.kernel(controller.placer, record, kept)
            for record in controller.knowledge.known_kernels()
            if record.id is not None
        },
    }


async def _shutdown(controller: Controller, request: Request) -> Answer:
    connected = [p for p in controller.programs.all() if p.connected and p.identity.alive()]
    if connected and not request.get("force", False):
        users = [{"pid": p.identity.pid, "program": p.hello.program} for p in connected]
        pids = ", ".join(str(user["pid"]) for user in users)
        raise CommandError(f"programs are using the controller (process {pids})", programs=users)
    controller.stopping.set()
    return {"programs": len(connected)}


def _check_policy(name: str) -> None:
    try:
        make_policy(name, Rules())
    except ValueError as error:
        raise CommandError(str(error)) from None


def _pairs(findings: tuple[Finding, ...]) -> list[list[Any]]:
    return [[finding.line, finding.message] for finding in findings]


async def _try_rules(controller: Controller, text: str) -> list[list[Any]]:
    """Warnings about rules that fit no kernel. Raises CommandError when trying takes too long."""
    kernels = await controller.store.run(lambda store: store.kernels())
    job = {
        "text": text,
        "workers": [dataclasses.asdict(worker) for worker in controller.placer.workers],
        "kernels": [(kernel.name, kernel.image) for kernel in kernels],
    }
    data = json.dumps(job).encode()
    fd = packets.memory_file("tessera-rules", data)
    try:
        answer = await controller.pool.run({"kind": "rules", "size": len(data)}, fd, RULES_TIMEOUT)
    except PoolError as error:
        raise CommandError(
            f"trying the rules on {len(kernels)} known kernels failed: {error}; "
            "is there a re: rule that backtracks without end?"
        ) from None
    finally:
        packets.close_fds([fd])
    unmatched: list[list[Any]] = answer["unmatched"] if kernels else []
    return unmatched


COMMANDS: dict[str, Callable[[Controller, Request], Awaitable[Answer]]] = {
    "status": _status,
    "kernels": _kernels,
    "show": _show,
    "trials": _trials,
    "rules": _rules,
    "check_rules": _check_rules,
    "set_rules": _set_rules,
    "set_policy": _set_policy,
    "set_plan": _set_plan,
    "dependencies": _dependencies,
    "record": _record,
    "recording": _recording,
    "history": _history,
    "run": _run,
    "shutdown": _shutdown,
}
