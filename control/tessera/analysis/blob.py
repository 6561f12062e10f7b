# SPDX-License-Identifier: Apache-2.0
"""Summaries as blobs: `ts_summary`, nodes, accesses. A test compares the layout with summary.h."""

from __future__ import annotations

import struct

from tessera.analysis.launch import Op
from tessera.analysis.model import (
    MAX_LEVELS,
    NO_NODE,
    Access,
    Flag,
    KernelSummary,
    Mode,
    Node,
    Property,
)

MAGIC = 0x4D535354
VERSION = 2
HEADER = struct.Struct("<10I")
NODE = struct.Struct("<4iq")
ACCESS = struct.Struct("<BBBxIiiiI6i")


def encode(summary: KernelSummary) -> bytes:
    size = HEADER.size + NODE.size * len(summary.nodes) + ACCESS.size * len(summary.accesses)
    parts = [
        HEADER.pack(
            MAGIC,
            VERSION,
            size,
            int(summary.properties),
            len(summary.nodes),
            len(summary.accesses),
            summary.parameter_block_size,
            summary.minimum_architecture,
            summary.only_architecture,
            _packed(summary.required_block),
        )
    ]
    parts += [NODE.pack(n.op, n.a, n.b, n.c, n.value) for n in summary.nodes]
    parts += [
        ACCESS.pack(
            a.mode,
            a.flags,
            len(a.levels),
            a.parameter_offset,
            _index(a.guard),
            _index(a.lo),
            _index(a.hi),
            a.line,
            *_column(a, 0),
            *_column(a, 1),
        )
        for a in summary.accesses
    ]
    return b"".join(parts)


def decode(blob: bytes, name: str) -> KernelSummary:
    if len(blob) < HEADER.size:
        raise ValueError("an access summary is cut short")
    (
        magic, version, size, properties, n_nodes, n_accesses,
        block_size, minimum, only, required,
    ) = HEADER.unpack_from(blob)  # fmt: skip
    if magic != MAGIC or version != VERSION:
        raise ValueError("this is no access summary of this version")
    nodes_end = HEADER.size + NODE.size * n_nodes
    if size != len(blob) or size != nodes_end + ACCESS.size * n_accesses:
        raise ValueError("the sizes in an access summary do not hold together")
    nodes = tuple(
        Node(Op(op), a, b, c, value)
        for op, a, b, c, value in NODE.iter_unpack(blob[HEADER.size : nodes_end])
    )
    accesses = tuple(_access(words) for words in ACCESS.iter_unpack(blob[nodes_end:]))
    return KernelSummary(
        name, Property(properties), nodes, accesses, (), block_size, minimum, only, "", {},
        (required & 0x7FF, required >> 11 & 0x7FF, required >> 22),
    )  # fmt: skip


def _packed(block: tuple[int, int, int]) -> int:
    x, y, z = block
    return x | y << 11 | z << 22 if x <= 1024 and y <= 1024 and z <= 64 else 0


def _access(words: tuple[int, ...]) -> Access:
    mode, flags, n_levels, offset, guard, lo, hi, line, *levels = words
    pairs = tuple(zip(levels[:MAX_LEVELS], levels[MAX_LEVELS:], strict=True))[:n_levels]
    return Access(
        Mode(mode), Flag(flags), offset, _node(guard), _node(lo), _node(hi), line, "", pairs
    )


def _column(access: Access, place: int) -> list[int]:
    """The pitches (0) or counts (1) of all levels, those that are not there included."""
    used = [level[place] for level in access.levels]
    return used + [NO_NODE] * (MAX_LEVELS - len(used))


def _index(node: int | None) -> int:
    return NO_NODE if node is None else node


def _node(index: int) -> int | None:
    return None if index == NO_NODE else index
