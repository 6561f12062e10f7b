# SPDX-License-Identifier: Apache-2.0
"""Tables in memory that is shared between processes, as NumPy sees them."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


PLACED_BY_CLASS = constant("TS_PLACED_BY_CLASS")
MAX_CHOICES = constant("TS_MAX_CHOICES")
MAX_TERMS = constant("TS_MAX_TERMS")


@dataclass(frozen=True)
class Choice:
    """ts_choice: a device for those launches of a kernel whose quantities are in bounds."""

    device: int
    terms: tuple[tuple[int, int, int], ...]  # quantity, least, most


class PlacementTable:
    """The controller's own table: a device for each kernel id, and for some of its launches."""

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
        self._choices: npt.NDArray[Any] = self._record["choices"][0]
        self._barrier = threading.Lock()

    @property
    def generation(self) -> int:
        return int(self._record["generation"][0])

    def device(self, kernel_id: int) -> int:
        """For launches that no choice fits."""
        return int(self._device[kernel_id]) & ~PLACED_BY_CLASS

    def write(
        self, devices: Mapping[int, int], choices: Mapping[int, Sequence[Choice]] | None = None
    ) -> tuple[int, ...]:
        """Changes entries, kernel id to device, then raises the generation if anything did change.

        `choices`: those of all kernels that have any; of each the first that fits decides.
        None: they stay. Returns the kernels whose choices found no room: all their launches go
        where their entry says.

        Single bytes and aligned 64-bit words are written by single stores. A program that looks
        while the sequence is odd looks again.
        """
        packed, left_out = self._packed(choices) if choices is not None else (None, ())
        entries = {i: self._entry(i, device, choices, left_out) for i, device in devices.items()}
        if choices is not None:
            for kernel_id in {*self._apart(), *choices} - set(devices):
                device = self.device(kernel_id)
                entries[kernel_id] = self._entry(kernel_id, device, choices, left_out)
        changed = {i: entry for i, entry in entries.items() if self._device[i] != entry}
        if packed is not None and packed.tobytes() == self._used().tobytes():
            packed = None
        if changed or packed is not None:
            self._change(changed, packed)
        return left_out

    def _entry(
        self,
        kernel_id: int,
        device: int,
        choices: Mapping[int, Sequence[Choice]] | None,
        left_out: Sequence[int],
    ) -> int:
        if choices is None:
            return device | (int(self._device[kernel_id]) & PLACED_BY_CLASS)
        apart = bool(choices.get(kernel_id)) and kernel_id not in left_out
        return device | (PLACED_BY_CLASS if apart else 0)

    def _used(self) -> npt.NDArray[Any]:
        return self._choices[: int(self._record["n_choices"][0])]

    def _apart(self) -> list[int]:
        return [int(kernel_id) for kernel_id in np.unique(self._used()["kernel_id"])]

    def _packed(
        self, choices: Mapping[int, Sequence[Choice]]
    ) -> tuple[npt.NDArray[Any], tuple[int, ...]]:
        rows: list[tuple[int, Choice]] = []
        left_out = []
        for kernel_id, of_kernel in sorted(choices.items()):
            if len(rows) + len(of_kernel) > MAX_CHOICES:
                left_out.append(kernel_id)
                continue
            rows += [(kernel_id, choice) for choice in of_kernel]
        packed = np.zeros(len(rows), dtype("ts_choice"))
        for row, (kernel_id, choice) in zip(packed, rows, strict=True):
            row["kernel_id"], row["device"] = kernel_id, choice.device
            row["n_terms"] = len(choice.terms)
            for place, (quantity, least, most) in zip(row["terms"], choice.terms, strict=False):
                place["quantity"], place["least"], place["most"] = quantity, least, most
        return packed, tuple(left_out)

    def _change(self, entries: Mapping[int, int], packed: npt.NDArray[Any] | None) -> None:
        self._record["sequence"] += 1
        self._order_stores()
        if packed is not None:
            self._choices[: len(packed)] = packed
            self._record["n_choices"] = len(packed)
        for kernel_id, entry in entries.items():
            self._device[kernel_id] = entry
        self._record["generation"] += 1
        self._order_stores()
        self._record["sequence"] += 1

    def _order_stores(self) -> None:
        """What is stored before is seen before what is stored after: a lock is handed over."""
        with self._barrier:
            pass
        with self._barrier:
            pass

    def close(self) -> None:
        os.close(self.fd)
