# SPDX-License-Identifier: Apache-2.0
"""devices."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from tessera.cli import render
from tessera.cli.common import ask_if_running, clear_errors
from tessera.cli.render import Column


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False,
) -> None:
    """List the GPUs that the driver shows, and their parts.

    The numbers are those of `up --device`. CUDA_VISIBLE_DEVICES has its say.

    \b
    Examples:
      tessera-ctl devices
      tessera-ctl devices --json
    """
    from tessera.cluster.devices import find_devices

    with clear_errors():
        machine = find_devices()
        answer = ask_if_running("status")
    roles: dict[str, str] = {}
    if answer is not None:
        for worker in answer["status"]["workers"]:
            roles[worker["device"]["uuid"]] = f"worker {worker['index']}, {worker['state']}"
    if as_json:
        found = [dataclasses.asdict(device) for device in machine.devices]
        print(json.dumps(found))
        return
    out = render.console()
    if not machine.devices:
        out.print(f"The driver ({machine.driver}) shows no device.")
        return
    columns = [
        Column("NUMBER", right=True),
        Column("NAME"),
        Column("CC"),
        Column("MEMORY", right=True),
        Column("UUID", least=13, prose=True),
        Column("ROLE"),
    ]
    rows = []
    for device in machine.devices:
        role = roles.get(device.uuid, "")
        if device.ordinal == 0:
            role = f"home; {role}" if role else "home"
        rows.append(
            [
                device.ordinal,
                device.name,
                render.capability(device.compute_capability),
                render.size(device.memory_bytes),
                _uuid(device.uuid),
                role,
            ]
        )
    render.show(out, render.table(columns, rows))


def _uuid(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)
