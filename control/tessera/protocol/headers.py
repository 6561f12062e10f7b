# SPDX-License-Identifier: Apache-2.0
"""Constants, sizes and NumPy types out of the C headers.

The text between their cdef markers is given to cffi as it stands.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import cffi
import numpy as np

from tessera.native import cdef_text

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


def _load() -> tuple[Any, Any]:
    loaded: Any = cffi.FFI()
    for header in _HEADERS:
        loaded.cdef(cdef_text(header))
    return loaded, loaded.dlopen(None)  # opened for its enumeration constants alone


ffi, _constants = _load()


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
    TRIED = constant("TS_TRIED")
    ALL_HOME = constant("TS_ALL_HOME")
    RECORD = constant("TS_RECORD")
    RECORDED = constant("TS_RECORDED")
    CLASS = constant("TS_CLASS")
    OBSERVE = constant("TS_OBSERVE")
    OBSERVED = constant("TS_OBSERVED")


class KernelStatus(enum.IntEnum):
    """ts_kernel_info.status"""

    READY = constant("TS_KERNEL_READY")
    NEED_IMAGE = constant("TS_KERNEL_NEED_IMAGE")
    PENDING = constant("TS_KERNEL_PENDING")
    FAILED = constant("TS_KERNEL_FAILED")


class Verdict(enum.IntEnum):
    """ts_tried.verdict"""

    PASSED = constant("TS_VERDICT_PASSED")
    WRONG = constant("TS_VERDICT_WRONG")
    NOT_DETERMINISTIC = constant("TS_VERDICT_NOT_DETERMINISTIC")
    UNDECIDED = constant("TS_VERDICT_UNDECIDED")
    NOT_TRIED = constant("TS_VERDICT_NOT_TRIED")


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
    return int(ffi.sizeof(type_name))


def offsetof(type_name: str, member: str) -> int:
    """Byte offset of a member of a struct of the headers."""
    return int(ffi.offsetof(type_name, member))


def members(type_name: str) -> list[str]:
    """The names of a struct's members, in order."""
    return [str(name) for name, _ in ffi.typeof(type_name).fields]


@functools.cache
def dtype(type_name: str) -> np.dtype[Any]:
    """The NumPy type with the layout of a struct of the headers; char[] becomes bytes."""
    result: np.dtype[Any] = np.dtype(_format(ffi.typeof(type_name)))
    return result


def _format(ctype: Any) -> Any:
    if ctype.kind == "struct":
        parts = [(name, _format(part.type), part.offset) for name, part in ctype.fields]
        return np.dtype(
            {
                "names": [part[0] for part in parts],
                "formats": [part[1] for part in parts],
                "offsets": [part[2] for part in parts],
                "itemsize": ffi.sizeof(ctype),
            }
        )
    if ctype.kind == "array":
        if ctype.item.cname == "char":
            return f"S{ctype.length}"
        return np.dtype((_format(ctype.item), (ctype.length,)))
    signed = int(ffi.cast(ctype, -1)) < 0
    return _INTEGERS[ffi.sizeof(ctype), signed]
