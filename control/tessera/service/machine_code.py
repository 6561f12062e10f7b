# SPDX-License-Identifier: Apache-2.0
"""Summaries of the machine code that the driver would choose, for images that no PTX describes.

Several devices may choose several cubins of one image. What is stored of a kernel then holds
for each of them: every pointer that any of them uses, in every way that any of them does.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

from tessera import protocol
from tessera.analysis import KernelSummary
from tessera.native import ptx
from tessera.sass import DisassemblyError, Grade, SassSummary, analyze_cubin, merge
from tessera.service.extraction import NotDescribedError, chosen_cubins


def analyze_machine_code(
    data: bytes, capabilities: Sequence[int], name: str = ""
) -> list[dict[str, Any]]:
    """What is to be stored about each kernel, or about the one of that name, if it is there.

    Raises NotDescribedError.
    """
    image_is_cubin = ptx.open_image(data).kind == ptx.ImageKind.ELF
    by_name: dict[str, list[SassSummary]] = {}
    cubins = chosen_cubins(data, capabilities)
    for cubin in cubins:
        try:
            found = analyze_cubin(cubin, [name] if name else None)
        except (ValueError, DisassemblyError) as error:
            if name and isinstance(error, DisassemblyError):
                return [without_summary(name, f"its machine code: {error}")]
            raise NotDescribedError(f"its machine code: {error}") from None
        for kernel, summary in found.items():
            by_name.setdefault(kernel, []).append(summary)
    if not by_name and not name:
        raise NotDescribedError("its machine code holds no kernel")
    return [
        _record(kernel, merge(versions, len(cubins)), image_is_cubin)
        for kernel, versions in by_name.items()
    ]


def _record(name: str, found: SassSummary, image_is_cubin: bool) -> dict[str, Any]:
    summary = found.summary
    if not image_is_cubin:  # each device has its own cubin of this image, and all were looked at
        summary = dataclasses.replace(summary, only_architecture=0)
    blob = summary.to_blob()
    unknown = found.grade is Grade.UNKNOWN
    return {
        "name": name,
        "status": "ready",
        "reason": _why(summary) if unknown else "",
        "summary": summary.to_dict(),
        "blob": base64.b64encode(blob).decode("ascii"),
        "properties": protocol.read_summary_header(blob).properties,
        "minimum": summary.minimum_architecture,
        "only": summary.only_architecture,
        "grade": f"sass {found.grade}",
    }


def without_summary(name: str, reason: str) -> dict[str, Any]:
    """What is to be stored about a kernel of which no summary is to be had."""
    return {
        "name": name,
        "status": "failed",
        "reason": reason,
        "summary": {},
        "blob": "",
        "properties": 0,
        "minimum": 0,
        "only": 0,
        "grade": "",
    }


def _why(summary: KernelSummary) -> str:
    return str(summary.reasons.get("UNKNOWN", ""))
