# SPDX-License-Identifier: Apache-2.0
"""The messages and shared tables of Tessera's processes, as Python sees them.

Their one description is the C headers: the text between the cdef markers is given to cffi
as it stands, and the NumPy types of the shared tables are derived from cffi's. Nothing else
in this package knows an offset or a number of the protocol.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cffi
import numpy as np

from tessera.settings import header_path

_BEGIN, _END = "/* cdef begin */", "/* cdef end */"
_HEADERS = (
    "tessera/protocol/control.h",
    "tessera/protocol/channel.h",
    "tessera/access/summary.h",
)
_INTEGERS = {(1, True): "i1", (2, True): "i2", (4, True): "i4", (8, True): "i8"} | {
    (1, False): "u1",
    (2, False): "u2",
    (4, False): "u4",
    (8, False): "u8",
}


class ProtocolError(Exception):
    """What came in is not a message of this protocol; the text says what is wrong with it."""


class VersionMismatchError(ProtocolError):
    """The other end speaks another version of the protocol; the text names both."""

    def __init__(self, theirs: int) -> None:
        self.theirs = theirs
        super().__init__(
            f"this controller speaks protocol version {VERSION}, the program speaks {theirs}: "
            "install the same Tessera on both sides"
        )


def cdef_text(header: str) -> str:
    """The part of a header that cffi may read. Raises ValueError when the markers are missing."""
    text = header_path(header).read_text("utf-8")
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        raise ValueError(f"{header}: no text between {_BEGIN} and {_END}")
    return text[begin + len(_BEGIN) : end]


def _load() -> tuple[Any, Any]:
    loaded: Any = cffi.FFI()
    for header in _HEADERS:
        loaded.cdef(cdef_text(header))
    return loaded, loaded.dlopen(None)  # opened for its enumeration constants alone


_ffi, _constants = _load()


def constant(name: str) -> int:
    """An enumeration constant of the headers, such as TS_MAX_KERNELS."""
    return int(getattr(_constants, name))


VERSION = constant("TS_PROTOCOL_VERSION")
MAGIC = constant("TS_CONTROL_MAGIC")
MAX_MESSAGE = constant("TS_MAX_MESSAGE")
MAX_DEVICES = constant("TS_MAX_DEVICES")
MAX_KERNELS = constant("TS_MAX_KERNELS")
HOME_ONLY = constant("TS_KERNEL_HOME_ONLY")
KERNEL_UNKNOWN = constant("TS_KERNEL_UNKNOWN")
DEVICE_HOME = constant("TS_DEVICE_HOME")


class MessageType(enum.IntEnum):
    """ts_message.type"""

    HELLO = constant("TS_HELLO")
    WELCOME = constant("TS_WELCOME")
    REFUSED = constant("TS_REFUSED")
    KERNEL = constant("TS_KERNEL")
    KERNEL_INFO = constant("TS_KERNEL_INFO")
    WORKERS = constant("TS_WORKERS")
    STATUS = constant("TS_STATUS")
    WORKER_LOST = constant("TS_WORKER_LOST")
    OBSERVE = constant("TS_OBSERVE")
    OBSERVED = constant("TS_OBSERVED")


class KernelStatus(enum.IntEnum):
    """ts_kernel_info.status"""

    READY = constant("TS_KERNEL_READY")
    NEED_IMAGE = constant("TS_KERNEL_NEED_IMAGE")
    PENDING = constant("TS_KERNEL_PENDING")
    FAILED = constant("TS_KERNEL_FAILED")


STAY_REASONS: dict[int, str] = {
    constant("TS_STAY_PLACED"): "placed at home",
    constant("TS_STAY_NO_SUMMARY"): "no summary",
    constant("TS_STAY_UNKNOWN"): "accesses unknown",
    constant("TS_STAY_PROPERTY"): "does what only home can",
    constant("TS_STAY_MEMORY"): "argument outside the arena",
    constant("TS_STAY_ATTRIBUTES"): "launch attributes",
    constant("TS_STAY_CAPTURE"): "stream capture",
    constant("TS_STAY_WORKER"): "worker could not",
}

PROPERTY_WORDS: dict[int, str] = {
    constant("TS_KERNEL_UNKNOWN"): "unknown accesses",
    constant("TS_KERNEL_PRINTS"): "prints",
    constant("TS_KERNEL_ALLOCATES"): "allocates device memory",
    constant("TS_KERNEL_ASSERTS"): "asserts",
    constant("TS_KERNEL_LAUNCHES"): "launches kernels",
    constant("TS_KERNEL_WRITES_GLOBALS"): "writes module variables",
    constant("TS_KERNEL_READS_GLOBALS"): "reads module variables",
    constant("TS_KERNEL_READS_CONSTANT_DATA"): "reads constant data",
    constant("TS_KERNEL_TEXTURES"): "uses textures",
    constant("TS_KERNEL_TENSOR_MAPS"): "uses tensor maps",
    constant("TS_KERNEL_DEVICE_DEPENDENT"): "depends on the device",
    constant("TS_KERNEL_GRID_SYNC"): "synchronises the grid",
    constant("TS_KERNEL_INDIRECT_CALLS"): "calls through pointers",
    constant("TS_KERNEL_ORDER_DEPENDENT"): "depends on the order of atomics",
    constant("TS_KERNEL_SYSTEM_SCOPE"): "talks to the host or to peers",
    constant("TS_KERNEL_CLUSTERS"): "uses clusters",
}


def property_words(properties: int) -> list[str]:
    """Words for the bits of TS_KERNEL_*, in the order of the bits."""
    return [words for bit, words in sorted(PROPERTY_WORDS.items()) if properties & bit]


def sizeof(type_name: str) -> int:
    """Bytes of a struct of the headers."""
    return int(_ffi.sizeof(type_name))


def offsetof(type_name: str, member: str) -> int:
    """Byte offset of a member of a struct of the headers."""
    return int(_ffi.offsetof(type_name, member))


def members(type_name: str) -> list[str]:
    """The names of a struct's members, in order."""
    return [str(name) for name, _ in _ffi.typeof(type_name).fields]


@functools.cache
def dtype(type_name: str) -> np.dtype[Any]:
    """The NumPy type with the layout of a struct of the headers; char[] becomes bytes."""
    result: np.dtype[Any] = np.dtype(_format(_ffi.typeof(type_name)))
    return result


def _format(ctype: Any) -> Any:
    if ctype.kind == "struct":
        parts = [(name, _format(part.type), part.offset) for name, part in ctype.fields]
        return np.dtype(
            {
                "names": [part[0] for part in parts],
                "formats": [part[1] for part in parts],
                "offsets": [part[2] for part in parts],
                "itemsize": _ffi.sizeof(ctype),
            }
        )
    if ctype.kind == "array":
        if ctype.item.cname == "char":
            return f"S{ctype.length}"
        return np.dtype((_format(ctype.item), (ctype.length,)))
    signed = int(_ffi.cast(ctype, -1)) < 0
    return _INTEGERS[_ffi.sizeof(ctype), signed]


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
    value = _ffi.new(f"{type_name} *")
    _ffi.memmove(value, data, size)
    return value


def _message(type_name: str, kind: int, request: int, tail_size: int = 0) -> Any:
    value = _ffi.new(f"{type_name} *")
    header = value if type_name == "ts_message" else value.header
    header.magic, header.version, header.type = MAGIC, VERSION, kind
    header.size, header.request = sizeof(type_name) + tail_size, request
    return value


def _bytes(value: Any) -> bytes:
    return bytes(_ffi.buffer(value))


def _text(array: Any) -> str:
    raw: bytes = _ffi.string(array)
    return raw.decode("utf-8", "replace")


def _put_text(array: Any, text: str) -> None:
    """Copies text, cut so that it stays valid UTF-8 and ends with a NUL."""
    raw = text.encode("utf-8", "replace")[: len(array) - 1]
    raw = raw.decode("utf-8", "ignore").encode("utf-8")
    _ffi.memmove(array, raw + b"\0", len(raw) + 1)


@dataclass(frozen=True)
class Device:
    """ts_device"""

    uuid: str = "0" * 32  # 32 hexadecimal digits
    compute_capability: int = 0  # major * 10 + minor
    memory_bytes: int = 0
    name: str = ""


def _device(value: Any) -> Device:
    uuid = bytes(_ffi.buffer(value.uuid)).hex()
    return Device(uuid, value.compute_capability, value.memory_bytes, _text(value.name))


def _put_device(target: Any, device: Device) -> None:
    _ffi.memmove(target.uuid, bytes.fromhex(device.uuid), 16)
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
        return cls(_hash_text(value.image), value.image_size, has_image, name, path)

    def pack(self, request: int) -> bytes:
        name = self.name.encode("utf-8")
        path = self.path.encode("utf-8", "surrogateescape")
        value = _message("ts_kernel_query", MessageType.KERNEL, request, len(name) + len(path))
        value.image.high, value.image.low = int(self.image[:16], 16), int(self.image[16:], 16)
        value.image_size, value.name_size, value.path_size = self.image_size, len(name), len(path)
        value.flags = constant("TS_KERNEL_HAS_IMAGE") if self.has_image else 0
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

    @classmethod
    def unpack(cls, data: bytes) -> KernelInfo:
        value = _struct("ts_kernel_info", data)
        tail = data[sizeof("ts_kernel_info") :]
        if value.summary_size + value.reason_size != len(tail):
            raise ProtocolError(f"a kernel info with {len(tail)} bytes behind it")
        reason = tail[value.summary_size :].decode("utf-8", "replace")
        return cls(KernelStatus(value.status), value.kernel_id, tail[: value.summary_size], reason)

    def pack(self, request: int) -> bytes:
        reason = self.reason.encode("utf-8", "replace")[:4096]
        tail = self.summary + reason
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


def pack_summary_header(properties: int, minimum_architecture: int = 0) -> bytes:
    """A summary without accesses: what a kernel with no memory access has."""
    value = _ffi.new("ts_summary *")
    value.magic, value.version = constant("TS_SUMMARY_MAGIC"), constant("TS_SUMMARY_VERSION")
    value.size, value.properties = sizeof("ts_summary"), properties
    value.minimum_architecture = minimum_architecture
    return _bytes(value)
