# SPDX-License-Identifier: Apache-2.0
"""What tells launches of one kernel apart, and the message about it: TS_CLASS."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tessera.protocol.headers import MessageType, constant, ffi, sizeof
from tessera.protocol.messages import ProtocolError

ARGUMENT = constant("TS_ARGUMENT")  # and on: the first argument, the second
ARGUMENTS = constant("TS_QUANTITIES") - ARGUMENT
MOST_VALUES = constant("TS_CLASS_VALUES")
ROWS = ffi.typeof("ts_counters_table").fields[-1][1].type.length  # of the counters


class Quantity(enum.IntEnum):
    """ts_term.quantity, but for arguments."""

    GRID_X = constant("TS_GRID_X")
    GRID_Y = constant("TS_GRID_Y")
    GRID_Z = constant("TS_GRID_Z")
    BLOCK_X = constant("TS_BLOCK_X")
    BLOCK_Y = constant("TS_BLOCK_Y")
    BLOCK_Z = constant("TS_BLOCK_Z")
    SHARED = constant("TS_SHARED")
    BLOCKS = constant("TS_BLOCKS")
    THREADS = constant("TS_THREADS")
    CALL_M = constant("TS_CALL_M")
    CALL_N = constant("TS_CALL_N")
    CALL_K = constant("TS_CALL_K")
    CALL_BATCHES = constant("TS_CALL_BATCHES")


def _is_quantity(number: int) -> bool:
    return number in set(Quantity) or ARGUMENT <= number < ARGUMENT + ARGUMENTS


@dataclass(frozen=True)
class LaunchClass:
    """ts_class: what the launches have in common that a row of a program's counters counts."""

    counter_slot: int
    kernel_id: int
    values: tuple[tuple[int, int], ...]  # quantity and value

    @classmethod
    def unpack(cls, data: bytes) -> LaunchClass:
        """Raises ProtocolError."""
        if len(data) != sizeof("ts_class"):
            raise ProtocolError(f"a launch class of {len(data)} bytes")
        told = ffi.new("ts_class *")
        ffi.memmove(told, data, len(data))
        if told.n_values > MOST_VALUES or told.counter_slot >= ROWS:
            raise ProtocolError("a launch class with too many values, or of no row")
        values = tuple((v.quantity, v.value) for v in told.values[0 : told.n_values])
        if not all(_is_quantity(quantity) for quantity, _ in values):
            raise ProtocolError("a launch class with a quantity that there is none of")
        return cls(told.counter_slot, told.kernel_id, values)

    def pack(self) -> bytes:
        """As programs send it: an answer to no request."""
        told = ffi.new("ts_class *")
        told.header.magic = constant("TS_CONTROL_MAGIC")
        told.header.version = constant("TS_PROTOCOL_VERSION")
        told.header.type, told.header.size = MessageType.CLASS, sizeof("ts_class")
        told.counter_slot, told.kernel_id = self.counter_slot, self.kernel_id
        told.n_values = len(self.values)
        for place, (quantity, value) in zip(told.values, self.values, strict=False):
            place.quantity, place.value = quantity, value
        return bytes(ffi.buffer(told))
