# SPDX-License-Identifier: Apache-2.0
"""Summaries as plain data for a JSON store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.analysis.launch import Op
from tessera.analysis.model import (
    FORMAT,
    Access,
    Flag,
    KernelSummary,
    Mode,
    Node,
    Parameter,
    Property,
)


def to_dict(summary: KernelSummary) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": summary.name,
        "properties": int(summary.properties),
        "nodes": [[int(n.op), n.a, n.b, n.c, n.value] for n in summary.nodes],
        "accesses": [_access(a) for a in summary.accesses],
        "parameters": [
            [p.name, p.offset, p.size, p.type, p.is_pointer] for p in summary.parameters
        ],
        "parameter_block_size": summary.parameter_block_size,
        "minimum_architecture": summary.minimum_architecture,
        "only_architecture": summary.only_architecture,
        "target": summary.target,
        "reasons": dict(summary.reasons),
        "required_block": list(summary.required_block),
    }


def from_dict(data: Mapping[str, Any]) -> KernelSummary:
    if data.get("format") != FORMAT:
        raise ValueError(f"an access summary of format {data.get('format')}, not {FORMAT}")
    try:
        return KernelSummary(
            name=data["name"],
            properties=Property(data["properties"]),
            nodes=tuple(Node(Op(op), *rest) for op, *rest in data["nodes"]),
            accesses=tuple(_access_from(words) for words in data["accesses"]),
            parameters=tuple(Parameter(*p) for p in data["parameters"]),
            parameter_block_size=data["parameter_block_size"],
            minimum_architecture=data["minimum_architecture"],
            only_architecture=data["only_architecture"],
            target=data["target"],
            reasons=dict(data["reasons"]),
            required_block=_block(data["required_block"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"an access summary with parts missing: {error}") from error


def _block(words: list[int]) -> tuple[int, int, int]:
    x, y, z = words
    return x, y, z


def _access(a: Access) -> list[Any]:
    levels = [list(level) for level in a.levels]
    return [
        int(a.mode), int(a.flags), a.parameter_offset, a.guard, a.lo, a.hi, a.line, a.reason, levels
    ]  # fmt: skip


def _access_from(words: list[Any]) -> Access:
    mode, flags, offset, guard, lo, hi, line, reason, levels = words
    pairs = tuple((pitch, count) for pitch, count in levels)
    return Access(Mode(mode), Flag(flags), offset, guard, lo, hi, line, reason, pairs)
