# SPDX-License-Identifier: Apache-2.0
"""The access summary of one kernel, as Python sees it. `summary.h` says what each part means."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.analysis.launch import ARITY, Op

NO_NODE = 0x7FFFFFFF
MAX_NODES = 1024
MAX_ACCESSES = 512
MAX_LEVELS = 3
FORMAT = 2


class Property(enum.IntFlag):
    """`TS_KERNEL_*`: what a kernel does beside reading and writing what its accesses say."""

    UNKNOWN = 1
    PRINTS = 2
    ALLOCATES = 4
    ASSERTS = 8
    LAUNCHES = 16
    WRITES_GLOBALS = 32
    READS_GLOBALS = 64
    READS_CONSTANT_DATA = 128
    TEXTURES = 256
    TENSOR_MAPS = 512
    DEVICE_DEPENDENT = 1024
    GRID_SYNC = 2048
    INDIRECT_CALLS = 4096
    ORDER_DEPENDENT = 8192
    SYSTEM_SCOPE = 16384
    CLUSTERS = 32768


HOME_ONLY = Property(0x5F77)
NOTHING = Property(0)


class Mode(enum.IntFlag):
    """`TS_ACCESS_READ`, `TS_ACCESS_WRITE`."""

    READ = 1
    WRITE = 2


class Flag(enum.IntFlag):
    """`TS_ACCESS_UNBOUNDED` and the other flags of an access."""

    UNBOUNDED = 1
    EXACT = 2
    INDIRECT = 4
    MUST_WRITE = 8
    MAYBE = 16
    ANYTHING = 32


NO_FLAGS = Flag(0)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the expression graph; operands are indices of earlier nodes."""

    op: Op
    a: int = 0
    b: int = 0
    c: int = 0
    value: int = 0

    @property
    def operands(self) -> tuple[int, ...]:
        """Those of a, b and c that are indices of nodes."""
        return (self.a, self.b, self.c)[: ARITY.get(self.op, 2)]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the kernel; offset and size in bytes."""

    name: str
    offset: int
    size: int
    type: str  # PTX's: "u64", "b8" for a struct
    is_pointer: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes [lo, hi) relative to a pointer parameter, and copies of that row at the pitches of
    its levels; nodes by index, None for none."""

    mode: Mode
    flags: Flag
    parameter_offset: int
    guard: int | None
    lo: int | None
    hi: int | None
    line: int
    reason: str = ""  # why it is not exact: the instruction that made it so
    levels: tuple[tuple[int, int], ...] = ()  # (pitch, count), in no order


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """What one kernel may read and write. Lines are lines of its PTX."""

    name: str
    properties: Property
    nodes: tuple[Node, ...]
    accesses: tuple[Access, ...]
    parameters: tuple[Parameter, ...]
    parameter_block_size: int
    minimum_architecture: int
    only_architecture: int = 0
    target: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By property name: the instruction that gave the kernel the property."""
    required_block: tuple[int, int, int] = (0, 0, 0)  # threads; a launch with others is an error

    @property
    def is_unknown(self) -> bool:
        return bool(self.properties & Property.UNKNOWN)

    @property
    def may_move(self) -> bool:
        """Whether nothing that the kernel does ties it to its home."""
        return not self.properties & HOME_ONLY

    def formula(self, node: int | None) -> str:
        """A node as text, parameters by name."""
        from tessera.analysis.formula import formula

        return "" if node is None else formula(self, node)

    def explain(self) -> str:
        """The summary for the author of the kernel."""
        from tessera.analysis.explain import explain

        return explain(self)

    def to_blob(self) -> bytes:
        """The summary as the shim evaluates it."""
        from tessera.analysis.blob import encode

        return encode(self)

    @classmethod
    def from_blob(cls, blob: bytes, name: str = "") -> KernelSummary:
        """The summary in a blob; names of parameters and reasons are not kept there.

        Raises ValueError for what is not a summary of this version.
        """
        from tessera.analysis.blob import decode

        return decode(blob, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a JSON store."""
        from tessera.analysis.plain import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KernelSummary:
        """The inverse of `to_dict`. Raises ValueError for data of another format."""
        from tessera.analysis.plain import from_dict

        return from_dict(data)
