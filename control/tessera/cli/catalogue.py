# SPDX-License-Identifier: Apache-2.0
"""Kernels for the commands that name them: from the controller, or else from the store."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from tessera.cli.common import CliError, ask_if_running, fail, store_path

if TYPE_CHECKING:
    from tessera.store import KernelRecord


def offline_placer() -> Any:
    """A placer without rules and workers: only a controller knows where kernels run."""
    from tessera.service.placer import Placer

    return Placer()


def all_kernels(everything: bool = True) -> list[dict[str, Any]]:
    """Every kernel, launched or not; `everything` false: only those launched once."""
    answer = ask_if_running("kernels", all=everything)
    if answer is not None:
        found: list[dict[str, Any]] = answer["kernels"]
        return found
    from tessera.service import report, trials
    from tessera.store import Store

    if not store_path().exists():
        return []
    with Store(store_path(), fall_back=True) as store:
        records = store.kernels(launched_only=not everything)
        tried = trials.by_kernel(store.trials())
    placer = offline_placer()
    placer.set_kernels(records)
    return [
        report.kernel(placer, record)
        | trials.summed_up(record, tried)
        | {"reason": _reason_offline(record)}
        for record in records
    ]


def _reason_offline(record: KernelRecord) -> str:
    """What of a kernel keeps it home; where others run is not known without a controller."""
    from tessera import protocol
    from tessera.store import Status

    if record.status != Status.READY:
        return record.reason or "not analysed yet"
    held = protocol.property_words(record.properties & protocol.HOME_ONLY)
    return f"stays home: {', '.join(held)}" if held else "no controller runs"


def details(kernel: dict[str, Any]) -> dict[str, Any]:
    """A kernel with its summary, and its image."""
    answer = ask_if_running("show", image=kernel["image"], name=kernel["name"])
    if answer is not None:
        return answer
    import dataclasses

    from tessera.store import Store

    with Store(store_path(), fall_back=True) as store:
        record = store.kernel(kernel["image"], kernel["name"])
        image = store.image(kernel["image"])
    if record is None or image is None:
        fail(f"{kernel['name']} is no longer in the store")
    return {
        "kernel": kernel | {"summary": record.summary},
        "image": dataclasses.asdict(image),
    }


def find(word: str) -> dict[str, Any]:
    """The one kernel that a number, a name, a glob or the start of a name stands for."""
    kernels = all_kernels()
    if not kernels:
        fail("no kernels are known yet: run a program first")
    for fits in (_is_number, _is_name, _is_glob, _is_start, _is_part):
        found = [kernel for kernel in kernels if fits(kernel, word)]
        if len({kernel["name"] for kernel in found}) == 1:
            return _of_several_images(found)
        if found:
            names = ", ".join(_shown(kernel) for kernel in found[:5])
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            fail(f"{word!r} fits {len(found)} kernels: {names}{more}")
    raise CliError(f"no kernel {word!r}: tessera-ctl kernels lists them")


def _of_several_images(found: list[dict[str, Any]]) -> dict[str, Any]:
    if len(found) > 1:
        numbers = ", ".join(_shown(kernel) for kernel in found[:8])
        fail(f"{found[0]['name']} is in {len(found)} images; give a number: {numbers}")
    return found[0]


def _shown(kernel: dict[str, Any]) -> str:
    name = kernel["name"] if len(kernel["name"]) <= 40 else kernel["name"][:39] + "…"
    return f"{kernel['id']} ({name})" if kernel["id"] is not None else f"{name}"


def _is_number(kernel: dict[str, Any], word: str) -> bool:
    return word.isdigit() and kernel["id"] == int(word)


def _is_name(kernel: dict[str, Any], word: str) -> bool:
    return bool(kernel["name"] == word)


def _is_glob(kernel: dict[str, Any], word: str) -> bool:
    return fnmatch.fnmatchcase(kernel["name"], word)


def _is_start(kernel: dict[str, Any], word: str) -> bool:
    return bool(kernel["name"].startswith(word))


def _is_part(kernel: dict[str, Any], word: str) -> bool:
    return word in kernel["name"]
