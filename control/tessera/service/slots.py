# SPDX-License-Identifier: Apache-2.0
"""Slots of device addresses: each program has its own, so that one worker can mirror many."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tessera.cluster.processes import ProcessIdentity

log = logging.getLogger(__name__)

# Where drivers grant reservations as wanted, above what sanitizers use, and below 0x540000000000,
# near which the kernel puts position-independent programs and their heaps.
FIRST_BASE = 0x140000000000
SLOT_SIZE = 1 << 41  # eight devices of 128 GiB, each with twice the addresses
SLOTS = 32


class SlotsExhaustedError(Exception):
    """Every slot belongs to a program that is alive."""

    def __init__(self) -> None:
        super().__init__(f"{SLOTS} programs already use this controller, and no more can")


def base_of(slot: int) -> int:
    """The first address of a slot."""
    return FIRST_BASE + slot * SLOT_SIZE


class Slots:
    """Who has which slot, kept in a file: programs outlive a controller that is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owners: dict[int, ProcessIdentity] = {}
        # Slots are given out in turn: workers may still be clearing up the one given back last.
        self._next = 0
        self._load()

    def acquire(self, owner: ProcessIdentity, taken: frozenset[int] = frozenset()) -> int:
        """A slot: the owner's own of before, unless it is among `taken`; else a free one.

        Raises SlotsExhaustedError.
        """
        for slot, other in self._owners.items():
            if other == owner and slot not in taken:
                return slot
        for step in range(SLOTS):
            slot = (self._next + step) % SLOTS
            if slot not in taken and not self._held(slot):
                self._next = (slot + 1) % SLOTS
                self._owners[slot] = owner
                self._save()
                return slot
        raise SlotsExhaustedError

    def release(self, slot: int) -> None:
        """The slot's program has ended."""
        if self._owners.pop(slot, None) is not None:
            self._save()

    def _held(self, slot: int) -> bool:
        owner = self._owners.get(slot)
        return owner is not None and owner.alive()

    def _load(self) -> None:
        try:
            for slot, pid, started in json.loads(self._path.read_text()):
                owner = ProcessIdentity(int(pid), int(started))
                if 0 <= int(slot) < SLOTS and owner.alive():
                    self._owners[int(slot)] = owner
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s is ignored: %s", self._path, error)

    def _save(self) -> None:
        rows = [[slot, owner.pid, owner.start_time] for slot, owner in self._owners.items()]
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(rows))
            temporary.replace(self._path)
        except OSError as error:
            log.warning("%s: %s: a killed controller would forget it", self._path, error.strerror)
