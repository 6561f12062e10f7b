# SPDX-License-Identifier: Apache-2.0
"""The programs that use the controller, from their first message to their end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera import protocol
from tessera.cluster.processes import ProcessIdentity, variable_of
from tessera.cluster.worker_log import Part
from tessera.placement import class_name
from tessera.protocol.classes import LaunchClass
from tessera.protocol.tables import SharedTable
from tessera.service.counts import OF_KERNELS, add_row
from tessera.service.slots import Slots

log = logging.getLogger(__name__)

RUN_VARIABLE = "TESSERA_RUN"
"""Names the `tessera-ctl run` that a program belongs to; the controller reads it in /proc."""

STATES = {0: "starting", 1: "active", 2: "passing through", 3: "failed"}


@dataclass(frozen=True)
class Loss:
    """A worker that a program has lost."""

    index: int
    reason: str  # as the program told it: the error, and which kernels were running
    part: Part  # of the worker's log

    def as_dict(self) -> dict[str, Any]:
        """`said`: what the device printed, such as a failed assertion."""
        said = self.part.device_said()
        reason = self.reason.removeprefix(f"worker {self.index}: ")
        return {"worker": self.index, "reason": reason, "said": said, "log": str(self.part.path)}


@dataclass(eq=False)
class Program:
    """One process that has said hello."""

    identity: ProcessIdentity
    slot: int
    hello: protocol.Hello
    table: SharedTable
    memory: tuple[int, int]  # device and inode of the table: the same after a reconnection
    run: str = ""
    started: float = field(default_factory=time.time)
    connected: bool = True
    losses: list[Loss] = field(default_factory=list)
    all_home: str = ""  # not empty: why none of its kernels moves, whatever the rules say
    classes: dict[int, str] = field(default_factory=dict)  # names of launch classes, by row

    @property
    def state(self) -> str:
        return STATES.get(self.table.get("state"), "unknown")

    def learn_class(self, told: LaunchClass) -> None:
        """What the launches have in common that a row of its counters counts."""
        self.classes[told.counter_slot] = class_name(told.values)

    def counters(self) -> dict[str, Any]:
        """With what it has told beside them: `all_home` and `losses`."""
        told = {"all_home": self.all_home, "losses": [loss.as_dict() for loss in self.losses]}
        return read_counters(self.table, self.classes) | told


class Programs:
    """All live programs. Each has a slot of addresses until its process is gone."""

    def __init__(self, slots: Slots, ended: Callable[[Program], None]) -> None:
        """`ended` is called once for each program, after its process has gone."""
        self._slots = slots
        self._ended = ended
        self._programs: dict[int, Program] = {}  # by slot
        self._watches: dict[int, int] = {}  # slot: pidfd

    def all(self) -> list[Program]:
        return list(self._programs.values())

    def welcome(self, pid: int, hello: protocol.Hello, counters_fd: int) -> Program:
        """Takes a program in, or back in after it was cut off; the descriptor stays the caller's.

        Raises ProtocolError, SlotsExhaustedError.
        """
        table = SharedTable(counters_fd, "ts_counters_table", "TS_COUNTERS_MAGIC")
        # A process of another PID space has no id here: it is known by its connection alone.
        identity = ProcessIdentity.of(pid) if pid else ProcessIdentity(hello.pid, 0)
        info = os.fstat(counters_fd)
        memory = (info.st_dev, info.st_ino)
        for old in [p for p in self.all() if p.identity == identity and not p.connected]:
            if old.memory == memory:
                old.connected, old.table = True, table
                return old
            self._end(old)  # the process has become another program
        taken = frozenset(self._programs)
        slot = self._slots.acquire(identity, taken)
        run = variable_of(identity.pid, RUN_VARIABLE)
        program = Program(identity, slot, hello, table, memory, run)
        self._programs[slot] = program
        self._watch(program)
        return program

    def disconnect(self, program: Program) -> None:
        """The connection is gone. The slot stays until the process is gone too."""
        program.connected = False
        if program.slot not in self._watches or not program.identity.alive():
            self._end(program)

    def close(self) -> None:
        """Ends the watching; the slots stay with the programs that are still alive."""
        for slot in list(self._watches):
            self._unwatch(slot)

    def _watch(self, program: Program) -> None:
        """Learns of the process's end from the kernel; in another PID space, from the socket."""
        if not program.identity.start_time:
            return
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(program.identity.pid)
            self._watches[program.slot] = fd
            asyncio.get_running_loop().add_reader(fd, self._end, program)

    def _unwatch(self, slot: int) -> None:
        fd = self._watches.pop(slot, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def _end(self, program: Program) -> None:
        if self._programs.get(program.slot) is not program:
            return
        del self._programs[program.slot]
        self._unwatch(program.slot)
        self._slots.release(program.slot)
        program.connected = False
        self._ended(program)


def read_counters(table: SharedTable, classes: Mapping[int, str] | None = None) -> dict[str, Any]:
    """A snapshot of a program's counters, with nothing in it that is zero by device or reason.

    `classes`: names of the launch classes that have rows to themselves. They count for their
    kernels, and are there by name as `classes` of those.
    """
    record = table.record
    used = min(table.get("n_kernels"), record["kernels"].shape[1])
    kernels = record["kernels"][0][:used].copy()
    workers = record["workers"][0].copy()
    names = protocol.members("ts_worker_counters")
    sums: dict[int, dict[str, Any]] = {}
    for row, kernel in enumerate(kernels):
        if kernel["used"]:
            of_kernel = sums.setdefault(int(kernel["kernel_id"]), {})
            add_row(of_kernel, _row_counters(kernel), (classes or {}).get(row))
    plain = ("calls", "launches_untracked", "arena_mapped", "arena_used", "graph_launches")
    return {
        **{name: table.get(name) for name in plain},
        "workers": {
            str(index): {name: int(worker[name]) for name in names}
            for index, worker in enumerate(workers)
            if any(int(worker[name]) for name in names)
        },
        "kernels": [{"id": number, **counts} for number, counts in sums.items()],
    }


def _row_counters(kernel: Any) -> dict[str, dict[str, int]]:
    counts = {
        name: {str(i): int(value) for i, value in enumerate(kernel[name]) if value}
        for name in OF_KERNELS
    }
    if at_home := sum(counts["stayed"].values()):
        counts["launches"] = {"0": at_home, **counts["launches"]}
    return counts
