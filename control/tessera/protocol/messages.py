# SPDX-License-Identifier: Apache-2.0
"""The messages, as plain values that can be packed and unpacked.

Unpacking checks everything that can be checked without knowing what a message is for, and
raises ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.protocol.headers import (
    MAGIC,
    MAX_DEVICES,
    VERSION,
    KernelStatus,
    MessageType,
    Verdict,
    constant,
    ffi,
    sizeof,
)


class ProtocolError(Exception):
    """What came in is not a message of this protocol; the text says what is wrong with it."""


class VersionMismatchError(ProtocolError):
    """The other end speaks another version of the protocol; the text names both."""

    def __init__(self, theirs: int) -> None:
        self.theirs = theirs
        super().__init__(
            f"protocol versions differ: {theirs} came in, this side speaks {VERSION}; "
            "use the same Tessera on both sides"
        )


@dataclass(frozen=True)
class Header:
    """A checked ts_message."""

    type: int
    size: int
    request: int


def read_header(data: bytes) -> Header:
    """Checks a packet's header. Raises ProtocolError; VersionMismatchError for another version."""
    if len(data) < sizeof("ts_message"):
        raise ProtocolError(f"a packet of {len(data)} bytes is shorter than a message header")
    message = _struct("ts_message", data)
    if message.magic != MAGIC:
        raise ProtocolError(f"a packet starts with {message.magic:#010x}, not {MAGIC:#010x}")
    if message.version != VERSION:
        raise VersionMismatchError(message.version)
    if message.size != len(data):
        raise ProtocolError(f"a message says that it has {message.size} bytes, and has {len(data)}")
    return Header(message.type, message.size, message.request)


def _struct(type_name: str, data: bytes) -> Any:
    """A copy of the struct at the start of `data`. Raises ProtocolError when it is too short."""
    size = sizeof(type_name)
    if len(data) < size:
        raise ProtocolError(f"a {type_name} has {size} bytes, the message only {len(data)}")
    value = ffi.new(f"{type_name} *")
    ffi.memmove(value, data, size)
    return value


def _message(type_name: str, kind: int, request: int, tail_size: int = 0) -> Any:
    value = ffi.new(f"{type_name} *")
    header = value if type_name == "ts_message" else value.header
    header.magic, header.version, header.type = MAGIC, VERSION, kind
    header.size, header.request = sizeof(type_name) + tail_size, request
    return value


def _bytes(value: Any) -> bytes:
    return bytes(ffi.buffer(value))


def _text(array: Any) -> str:
    raw: bytes = ffi.string(array)
    return raw.decode("utf-8", "replace")


def _put_text(array: Any, text: str) -> None:
    """Copies text, cut so that it stays valid UTF-8 and ends with a NUL."""
    raw = text.encode("utf-8", "replace")[: len(array) - 1]
    raw = raw.decode("utf-8", "ignore").encode("utf-8")
    ffi.memmove(array, raw + b"\0", len(raw) + 1)


@dataclass(frozen=True)
class Device:
    """ts_device"""

    uuid: str = "0" * 32  # 32 hexadecimal digits
    compute_capability: int = 0  # major * 10 + minor
    memory_bytes: int = 0
    name: str = ""


def _device(value: Any) -> Device:
    uuid = bytes(ffi.buffer(value.uuid)).hex()
    return Device(uuid, value.compute_capability, value.memory_bytes, _text(value.name))


def _put_device(target: Any, device: Device) -> None:
    ffi.memmove(target.uuid, bytes.fromhex(device.uuid), 16)
    target.compute_capability = device.compute_capability
    target.memory_bytes = device.memory_bytes
    _put_text(target.name, device.name)


@dataclass(frozen=True)
class Hello:
    """ts_hello"""

    pid: int
    devices: tuple[Device, ...]
    program: str
    build: str

    @classmethod
    def unpack(cls, data: bytes) -> Hello:
        value = _struct("ts_hello", data)
        if value.n_devices > MAX_DEVICES:
            raise ProtocolError(f"a program with {value.n_devices} devices: {MAX_DEVICES} at most")
        devices = tuple(_device(value.devices[i]) for i in range(value.n_devices))
        return cls(value.pid, devices, _text(value.program), _text(value.build))

    def pack(self, request: int) -> bytes:
        value = _message("ts_hello", MessageType.HELLO, request)
        value.pid, value.n_devices = self.pid, len(self.devices)
        for i, device in enumerate(self.devices):
            _put_device(value.devices[i], device)
        _put_text(value.program, self.program)
        _put_text(value.build, self.build)
        return _bytes(value)


@dataclass(frozen=True)
class WorkerInfo:
    """ts_worker_info"""

    index: int
    up: bool
    device: Device
    socket: str


def _put_workers(target: Any, workers: Sequence[WorkerInfo]) -> None:
    for i, worker in enumerate(workers):
        target[i].index, target[i].state = worker.index, 1 if worker.up else 0
        _put_device(target[i].device, worker.device)
        _put_text(target[i].socket, worker.socket)


def _workers(value: Any) -> tuple[WorkerInfo, ...]:
    if value.n_workers > MAX_DEVICES:
        raise ProtocolError(f"{value.n_workers} workers: {MAX_DEVICES} at most")
    entries = [value.workers[i] for i in range(value.n_workers)]
    return tuple(
        WorkerInfo(e.index, e.state == 1, _device(e.device), _text(e.socket)) for e in entries
    )


@dataclass(frozen=True)
class Welcome:
    """ts_welcome"""

    arena_base: int
    arena_size: int
    slot: int
    workers: tuple[WorkerInfo, ...]

    @classmethod
    def unpack(cls, data: bytes) -> Welcome:
        value = _struct("ts_welcome", data)
        return cls(value.arena_base, value.arena_size, value.slot, _workers(value))

    def pack(self, request: int) -> bytes:
        value = _message("ts_welcome", MessageType.WELCOME, request)
        value.arena_base, value.arena_size = self.arena_base, self.arena_size
        value.slot, value.n_workers = self.slot, len(self.workers)
        _put_workers(value.workers, self.workers)
        return _bytes(value)


def pack_workers(workers: Sequence[WorkerInfo], request: int = 0) -> bytes:
    """A ts_workers message."""
    value = _message("ts_workers", MessageType.WORKERS, request)
    value.n_workers = len(workers)
    _put_workers(value.workers, workers)
    return _bytes(value)


def unpack_workers(data: bytes) -> tuple[WorkerInfo, ...]:
    return _workers(_struct("ts_workers", data))


def pack_refused(reason: str, request: int = 0) -> bytes:
    """A ts_refused message."""
    value = _message("ts_refused", MessageType.REFUSED, request)
    _put_text(value.reason, reason)
    return _bytes(value)


def unpack_refused(data: bytes) -> str:
    return _text(_struct("ts_refused", data).reason)


@dataclass(frozen=True)
class KernelQuery:
    """ts_kernel_query with what follows it."""

    image: str  # 32 hexadecimal digits: the high half, then the low one, as xxhsum prints them
    image_size: int
    has_image: bool
    name: str
    path: str = ""
    wants_passed: bool = False

    @classmethod
    def unpack(cls, data: bytes) -> KernelQuery:
        value = _struct("ts_kernel_query", data)
        tail = data[sizeof("ts_kernel_query") :]
        if value.name_size == 0:
            raise ProtocolError("a kernel query without a kernel name")
        if value.name_size + value.path_size != len(tail):
            raise ProtocolError(
                f"a kernel query with {len(tail)} bytes of text, "
                f"and {value.name_size} + {value.path_size} announced"
            )
        try:
            name = tail[: value.name_size].decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a kernel query whose kernel name is not UTF-8") from None
        path = tail[value.name_size :].decode("utf-8", "surrogateescape")
        if "\0" in name or "\0" in path:
            raise ProtocolError("a kernel query with a NUL inside its text")
        has_image = bool(value.flags & constant("TS_KERNEL_HAS_IMAGE"))
        wants_passed = bool(value.flags & constant("TS_KERNEL_WANTS_PASSED"))
        return cls(_hash_text(value.image), value.image_size, has_image, name, path, wants_passed)

    def pack(self, request: int) -> bytes:
        name = self.name.encode("utf-8")
        path = self.path.encode("utf-8", "surrogateescape")
        value = _message("ts_kernel_query", MessageType.KERNEL, request, len(name) + len(path))
        value.image.high, value.image.low = int(self.image[:16], 16), int(self.image[16:], 16)
        value.image_size, value.name_size, value.path_size = self.image_size, len(name), len(path)
        value.flags = constant("TS_KERNEL_HAS_IMAGE") if self.has_image else 0
        value.flags |= constant("TS_KERNEL_WANTS_PASSED") if self.wants_passed else 0
        return _bytes(value) + name + path


def _hash_text(value: Any) -> str:
    return f"{value.high:016x}{value.low:016x}"


@dataclass(frozen=True)
class KernelInfo:
    """ts_kernel_info with what follows it."""

    status: KernelStatus
    kernel_id: int
    summary: bytes = b""
    reason: str = ""
    passed: tuple[int, ...] = ()  # launch classes; only for those who ask

    @classmethod
    def unpack(cls, data: bytes) -> KernelInfo:
        value = _struct("ts_kernel_info", data)
        tail = data[sizeof("ts_kernel_info") :]
        end = value.summary_size + value.reason_size
        if end > len(tail) or (len(tail) - end) % 8:
            raise ProtocolError(f"a kernel info with {len(tail)} bytes behind it")
        reason = tail[value.summary_size : end].decode("utf-8", "replace")
        passed = struct.unpack(f"={(len(tail) - end) // 8}Q", tail[end:])
        status = KernelStatus(value.status)
        return cls(status, value.kernel_id, tail[: value.summary_size], reason, passed)

    def pack(self, request: int) -> bytes:
        reason = self.reason.encode("utf-8", "replace")[:4096]
        tail = self.summary + reason + struct.pack(f"={len(self.passed)}Q", *self.passed)
        value = _message("ts_kernel_info", MessageType.KERNEL_INFO, request, len(tail))
        value.status, value.kernel_id = self.status, self.kernel_id
        value.summary_size, value.reason_size = len(self.summary), len(reason)
        return _bytes(value) + tail


@dataclass(frozen=True)
class WorkerLost:
    """ts_worker_lost"""

    index: int
    reason: str

    @classmethod
    def unpack(cls, data: bytes) -> WorkerLost:
        value = _struct("ts_worker_lost", data)
        return cls(value.index, _text(value.reason))

    def pack(self, request: int) -> bytes:
        value = _message("ts_worker_lost", MessageType.WORKER_LOST, request)
        value.index = self.index
        _put_text(value.reason, self.reason)
        return _bytes(value)


@dataclass(frozen=True)
class Tried:
    """ts_tried with what follows it."""

    image: str
    name: str
    launch_class: int  # 0: of no launch in particular
    verdict: Verdict
    by_words: bool = False  # the claims were every pointer among the arguments, not a summary's
    grid: tuple[int, ...] = (0, 0, 0)
    block: tuple[int, ...] = (0, 0, 0)
    dynamic_shared: int = 0
    reason: str = ""

    @classmethod
    def unpack(cls, data: bytes) -> Tried:
        value = _struct("ts_tried", data)
        tail = data[sizeof("ts_tried") :]
        if value.name_size == 0 or value.name_size + value.reason_size != len(tail):
            raise ProtocolError(f"a trial with {len(tail)} bytes of text")
        try:
            verdict = Verdict(value.verdict)
            name = tail[: value.name_size].decode("utf-8")
        except ValueError as error:
            raise ProtocolError(f"a trial that says nothing: {error}") from None
        return cls(
            _hash_text(value.image),
            name,
            value.launch_class,
            verdict,
            bool(value.flags & constant("TS_TRIED_WORDS")),
            tuple(value.grid),
            tuple(value.block),
            value.dynamic_shared,
            tail[value.name_size :].decode("utf-8", "replace"),
        )

    def pack(self, request: int) -> bytes:
        name, reason = self.name.encode("utf-8"), self.reason.encode("utf-8")
        value = _message("ts_tried", MessageType.TRIED, request, len(name) + len(reason))
        value.image.high, value.image.low = int(self.image[:16], 16), int(self.image[16:], 16)
        value.launch_class, value.verdict = self.launch_class, self.verdict
        value.flags = constant("TS_TRIED_WORDS") if self.by_words else 0
        value.grid, value.block = list(self.grid), list(self.block)
        value.dynamic_shared = self.dynamic_shared
        value.name_size, value.reason_size = len(name), len(reason)
        return _bytes(value) + name + reason


@dataclass(frozen=True)
class AllHome:
    """ts_all_home"""

    reason: str

    @classmethod
    def unpack(cls, data: bytes) -> AllHome:
        return cls(_text(_struct("ts_all_home", data).reason))

    def pack(self, request: int) -> bytes:
        value = _message("ts_all_home", MessageType.ALL_HOME, request)
        _put_text(value.reason, self.reason)
        return _bytes(value)


def pack_plain(kind: MessageType, request: int, tail: bytes = b"") -> bytes:
    """A message that is a header and bytes: TS_STATUS, TS_OBSERVE, TS_OBSERVED."""
    return _bytes(_message("ts_message", kind, request, len(tail))) + tail


def plain_tail(data: bytes) -> bytes:
    """What follows the header."""
    return data[sizeof("ts_message") :]


@dataclass(frozen=True)
class SummaryHeader:
    """The fields of a ts_summary that the controller uses."""

    properties: int
    minimum_architecture: int
    only_architecture: int


def read_summary_header(blob: bytes) -> SummaryHeader:
    """Raises ProtocolError when the blob is not a summary of this version."""
    value = _struct("ts_summary", blob)
    if value.magic != constant("TS_SUMMARY_MAGIC"):
        raise ProtocolError("not an access summary: wrong magic")
    if value.version != constant("TS_SUMMARY_VERSION"):
        raise ProtocolError(
            f"an access summary of version {value.version}, "
            f"{constant('TS_SUMMARY_VERSION')} is wanted"
        )
    if value.size != len(blob):
        raise ProtocolError(f"an access summary of {value.size} bytes came with {len(blob)}")
    return SummaryHeader(value.properties, value.minimum_architecture, value.only_architecture)


def with_properties(blob: bytes, properties: int) -> bytes:
    """The summary with those properties in place of its own. Raises ProtocolError."""
    read_summary_header(blob)
    value = _struct("ts_summary", blob)
    value.properties = properties
    return _bytes(value) + blob[sizeof("ts_summary") :]


def pack_summary_header(properties: int, minimum_architecture: int = 0) -> bytes:
    """A summary without accesses: what a kernel with no memory access has."""
    value = ffi.new("ts_summary *")
    value.magic, value.version = constant("TS_SUMMARY_MAGIC"), constant("TS_SUMMARY_VERSION")
    value.size, value.properties = sizeof("ts_summary"), properties
    value.minimum_architecture = minimum_architecture
    return _bytes(value)
