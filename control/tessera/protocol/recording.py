# SPDX-License-Identifier: Apache-2.0
"""The messages about the order of launches: TS_RECORD and TS_RECORDED."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.protocol.headers import MessageType, constant, ffi, sizeof
from tessera.protocol.messages import ProtocolError

MOST_LAUNCHES = 65536
Range = tuple[int, int]  # begin, end


@dataclass(frozen=True)
class RecordedLaunch:
    """ts_recorded_launch with its ranges."""

    kernel_id: int
    stream: int
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    unknown: bool = False  # it may touch anything
    row: int | None = None  # of the program's counters: its kernel's, or its launch class's


def pack_record(launches: int) -> bytes:
    """TS_RECORD: nobody asked for it, so it answers no request."""
    value = ffi.new("ts_record *")
    value.header.magic = constant("TS_CONTROL_MAGIC")
    value.header.version = constant("TS_PROTOCOL_VERSION")
    value.header.type, value.header.size = MessageType.RECORD, sizeof("ts_record")
    value.launches = launches
    return bytes(ffi.buffer(value))


def unpack_recorded(data: bytes) -> tuple[list[RecordedLaunch], bool]:
    """The launches of a TS_RECORDED, and whether it is the last. Raises ProtocolError."""
    head_size, launch_size = sizeof("ts_recorded"), sizeof("ts_recorded_launch")
    if len(data) < head_size:
        raise ProtocolError(f"a recording of {len(data)} bytes")
    head = ffi.new("ts_recorded *")
    ffi.memmove(head, data, head_size)
    found, at = [], head_size
    for _ in range(head.n_launches):
        if at + launch_size > len(data):
            raise ProtocolError("a recording is shorter than its launches")
        launch = ffi.new("ts_recorded_launch *")
        ffi.memmove(launch, data[at : at + launch_size], launch_size)
        at += launch_size
        ranges, at = _ranges(data, at, launch.n_reads + launch.n_writes)
        found.append(
            RecordedLaunch(
                launch.kernel_id,
                launch.stream,
                ranges[: launch.n_reads],
                ranges[launch.n_reads :],
                bool(launch.flags & constant("TS_RECORDED_UNKNOWN")),
                launch.counter_slot if launch.flags & constant("TS_RECORDED_IN_ROW") else None,
            )
        )
    if at != len(data):
        raise ProtocolError(f"{len(data) - at} bytes behind a recording")
    return found, bool(head.last)


def _ranges(data: bytes, at: int, count: int) -> tuple[tuple[Range, ...], int]:
    size = sizeof("ts_recorded_range")
    end = at + count * size
    if end > len(data):
        raise ProtocolError("a recorded launch is shorter than its ranges")
    array = ffi.new("ts_recorded_range[]", max(1, count))
    ffi.memmove(array, data[at:end], end - at)
    ranges = tuple((array[i].begin, array[i].end) for i in range(count))
    if any(begin >= last for begin, last in ranges):
        raise ProtocolError("a recorded range is empty")
    return ranges, end


def pack_recorded(launches: list[RecordedLaunch], last: bool) -> bytes:
    """TS_RECORDED, as programs send it."""
    tail = b""
    for one in launches:
        launch = ffi.new("ts_recorded_launch *")
        launch.kernel_id, launch.stream = one.kernel_id, one.stream
        launch.flags = constant("TS_RECORDED_UNKNOWN") if one.unknown else 0
        if one.row is not None:
            launch.flags |= constant("TS_RECORDED_IN_ROW")
            launch.counter_slot = one.row
        launch.n_reads, launch.n_writes = len(one.reads), len(one.writes)
        ranges = [*one.reads, *one.writes]
        tail += bytes(ffi.buffer(launch))
        tail += bytes(ffi.buffer(ffi.new("ts_recorded_range[]", ranges))) if ranges else b""
    head = ffi.new("ts_recorded *")
    head.header.magic = constant("TS_CONTROL_MAGIC")
    head.header.version = constant("TS_PROTOCOL_VERSION")
    head.header.type = MessageType.RECORDED
    head.header.size = sizeof("ts_recorded") + len(tail)
    head.n_launches, head.last = len(launches), int(last)
    return bytes(ffi.buffer(head)) + tail
