# SPDX-License-Identifier: Apache-2.0
"""Tables in memory that is shared between processes, as NumPy sees them."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.protocol.headers import MAX_KERNELS, VERSION, constant, dtype, sizeof
from tessera.protocol.messages import ProtocolError

_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class SharedTable:
    """A table of another process, mapped for reading.

    Its owner writes at any time: read a value once, and check it after reading.
    """

    def __init__(self, fd: int, type_name: str, magic: str) -> None:
        """Maps it; the descriptor stays the caller's.

        Raises ProtocolError when it is no such table, or could be cut off while it is read.
        """
        size = sizeof(type_name)
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            actual = os.fstat(fd).st_size
        except OSError:
            raise ProtocolError(f"the {type_name} is no shared memory that can be sealed") from None
        if not seals & fcntl.F_SEAL_SHRINK:
            raise ProtocolError(f"the {type_name} is not sealed against shrinking")
        if actual < size:
            raise ProtocolError(f"the {type_name} has {actual} bytes, {size} are needed")
        try:
            memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            raise ProtocolError(f"the {type_name} cannot be mapped: {error.strerror}") from None
        self.record: npt.NDArray[Any] = np.frombuffer(memory, dtype(type_name), 1)
        if self.get("magic") != constant(magic) or self.get("version") != VERSION:
            raise ProtocolError(
                f"the {type_name} has magic {self.get('magic'):#x} and version "
                f"{self.get('version')}, wanted {constant(magic):#x} and {VERSION}"
            )

    def get(self, member: str) -> int:
        """A member that is one number."""
        return int(self.record[member][0])

    def text(self, member: str) -> str:
        raw: bytes = self.record[member][0]
        return bytes(raw).split(b"\0")[0].decode("utf-8", "replace")


class PlacementTable:
    """The controller's own table: a device for each kernel id."""

    def __init__(self) -> None:
        """Raises OSError when there is no memory for it."""
        size = sizeof("ts_placement_table")
        self.fd = os.memfd_create("tessera-placement", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SIZE_SEALS | fcntl.F_SEAL_SEAL)
        self._record: npt.NDArray[Any] = np.frombuffer(
            mmap.mmap(self.fd, size, mmap.MAP_SHARED), dtype("ts_placement_table"), 1
        )
        self._record["magic"] = constant("TS_PLACEMENT_MAGIC")
        self._record["version"] = VERSION
        self._record["capacity"] = MAX_KERNELS
        self._device: npt.NDArray[np.uint8] = self._record["device"][0]

    @property
    def generation(self) -> int:
        return int(self._record["generation"][0])

    def device(self, kernel_id: int) -> int:
        return int(self._device[kernel_id])

    def write(self, devices: dict[int, int]) -> None:
        """Changes entries, kernel id to device, then raises the generation if any did change.

        Single bytes and an aligned 64-bit word are written by single stores; on machines that
        reorder stores, a reader that sees the new generation early reads a device late, once.
        """
        changed = {i: device for i, device in devices.items() if self.device(i) != device}
        for kernel_id, device in changed.items():
            self._device[kernel_id] = device
        if changed:
            self._record["generation"] += 1

    def close(self) -> None:
        os.close(self.fd)
