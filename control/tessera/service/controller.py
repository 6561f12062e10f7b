# SPDX-License-Identifier: Apache-2.0
"""The controller: ties sockets, knowledge, placement, programs and workers together."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import tessera
from tessera import protocol
from tessera.cluster import worker_log
from tessera.cluster.devices import DevicesError, Machine, find_devices
from tessera.cluster.fleet import Fleet, State
from tessera.cluster.launcher import LocalLauncher, WorkerSpec, stop_leftovers
from tessera.cluster.worker_log import Part
from tessera.placement import Worker
from tessera.protocol import MessageType, packets
from tessera.protocol.classes import LaunchClass
from tessera.protocol.recording import pack_record, unpack_recorded
from tessera.service import commands, planned, runtime, slots, trials
from tessera.service.config import TRUSTS_TRIALS, Config
from tessera.service.connection import Connection
from tessera.service.knowledge import Knowledge
from tessera.service.past import Past
from tessera.service.placer import Placer
from tessera.service.pool import AnalyzerPool, PoolError, pool_size
from tessera.service.programs import Loss, Program, Programs
from tessera.service.recordings import Recordings
from tessera.service.server import Server
from tessera.service.store_thread import StoreThread
from tessera.store import ProgramRecord, StoreError

log = logging.getLogger(__name__)
MOST_LOSSES = 8  # of one program that are kept: a worker may come and go


class StartError(Exception):
    """The controller cannot start; the message says what to do."""


class Controller:
    """One controller. `start` and `stop` are called once each, in one event loop."""

    def __init__(self, config: Config) -> None:
        """Raises StoreError."""
        self.config = config
        self.started = time.time()
        self.machine: Machine | None = None
        self.machine_error, self.machine_remedy = "", ""
        self.store = StoreThread(config.store)
        self.placer = Placer()
        self.pool = AnalyzerPool(pool_size(), config.analysis, config.analysis_timeout)
        self.knowledge = Knowledge(
            self.store, self.pool, config.analysis_wait, self.placer.set_kernels
        )
        self.programs = Programs(slots.Slots(config.folder / "slots.json"), self._program_ended)
        self.fleet = Fleet([], LocalLauncher(config.folder), self._workers_changed)
        self.server = Server(runtime.socket_path(config.folder), self, config.hello_timeout)
        self.past = Past()
        self.recordings = Recordings()
        self.faults: collections.deque[tuple[float, Program, Loss]] = collections.deque(maxlen=8)
        self.stopping = asyncio.Event()
        self._members: dict[Connection, Program] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Everything up to accepting programs. Raises StartError, StoreError."""
        try:
            await asyncio.gather(self.pool.start(), self._find_devices())
        except PoolError as error:
            raise StartError(str(error)) from None
        await self._load_placement()
        await self._start_workers()
        try:
            self.server.start()
        except OSError as error:
            raise StartError(f"{self.config.folder}: {error.strerror}") from None
        self._spawn(planned.adapt(self))
        log.info("controller %s serves in %s", tessera.__version__, self.config.folder)

    async def stop(self) -> None:
        """Ends workers and analyses, and closes the store."""
        self.stopping.set()
        self.server.stop()
        await self.fleet.stop()
        await self.knowledge.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pool.close()
        for program in self.programs.all():
            await self._remember(program)
        self.programs.close()
        self.store.close()
        log.info("controller stopped")

    # Starting

    async def _find_devices(self) -> None:
        try:
            self.machine = await asyncio.to_thread(find_devices)
        except DevicesError as error:
            self.machine_error, self.machine_remedy = error.problem, error.remedy
            log.warning("the devices cannot be listed: %s", error)

    async def _load_placement(self) -> None:
        kernels = await self.store.run(lambda store: store.kernels(launched_only=True))
        self.placer.set_kernels(kernels)
        rules = await self.store.run(lambda store: store.rules())
        policy = await self.store.run(lambda store: store.setting("policy", "home"))
        try:
            self.placer.set_rules(rules, policy)
        except ValueError as error:
            log.warning("%s: everything stays home", error)
        self.placer.set_plans(await self.store.run(planned.load))
        if self.config.trust == TRUSTS_TRIALS:
            self.placer.set_verified(await self.store.run(trials.verified_kernels))
        await self.store.run(lambda store: store.prune())

    async def _start_workers(self) -> None:
        specs = self._worker_specs()
        kept = frozenset(spec.index for spec in specs)
        for pid in await asyncio.to_thread(stop_leftovers, self.config.folder, kept):
            log.info("ended process %d, a worker of an earlier controller", pid)
        launcher = LocalLauncher(self.config.folder, self.config.worker_command)
        self.fleet = Fleet(specs, launcher, self._workers_changed, self.config.patience)
        self._workers_changed()
        self.fleet.start()

    def _worker_specs(self) -> list[WorkerSpec]:
        present = {d.ordinal: d for d in self.machine.devices} if self.machine else {}
        chosen = self.config.devices
        if chosen is None:
            chosen = tuple(sorted(present))[1:]
        missing = [ordinal for ordinal in chosen if ordinal not in present]
        if missing:
            seen = self.machine_error or f"the driver shows {len(present)}, numbered from 0"
            raise StartError(f"there is no device {missing[0]}: {seen}")
        if len(chosen) >= protocol.MAX_DEVICES:
            raise StartError(f"{len(chosen)} workers: {protocol.MAX_DEVICES - 1} at most")
        return [WorkerSpec(i, present[ordinal]) for i, ordinal in enumerate(chosen, start=1)]

    # Messages

    def message(
        self, connection: Connection, header: protocol.Header, packet: packets.Packet
    ) -> None:
        if header.type == MessageType.STATUS:
            self.server.identified(connection)
            packet.close()
            self._spawn(self._command(connection, header, packet.data))
        elif connection not in self._members:
            if header.type != MessageType.HELLO:
                raise protocol.ProtocolError(
                    f"the first message has type {header.type}: a program has to say hello first"
                )
            self._hello(connection, header, packet)
        elif header.type == MessageType.KERNEL:
            query = protocol.KernelQuery.unpack(packet.data)
            fd = packet.take_fd()
            packet.close()
            if query.has_image != (fd is not None):
                packets.close_fds([fd] if fd is not None else [])
                raise protocol.ProtocolError("a kernel query whose image is not with it")
            self._spawn(self._kernel(connection, header, query, fd))
        elif header.type == MessageType.TRIED:
            tried = protocol.Tried.unpack(packet.data)
            packet.close()
            self._spawn(self._tried(self._members[connection].run, tried))
        elif header.type == MessageType.WORKER_LOST:
            packet.close()
            self._worker_lost(connection, protocol.WorkerLost.unpack(packet.data))
        elif header.type == MessageType.ALL_HOME:
            packet.close()
            self._all_home(connection, protocol.AllHome.unpack(packet.data))
        elif header.type == MessageType.CLASS:
            packet.close()
            self._members[connection].learn_class(LaunchClass.unpack(packet.data))
        elif header.type == MessageType.RECORDED:
            packet.close()
            classes = self._members[connection].classes
            self.recordings.take(connection, *unpack_recorded(packet.data), classes)
        else:
            raise protocol.ProtocolError(f"a message of type {header.type} is not expected here")

    def gone(self, connection: Connection) -> None:
        self.recordings.gone(connection)
        program = self._members.pop(connection, None)
        if program is not None and program not in self._members.values():
            self.programs.disconnect(program)

    def record(self, launches: int) -> int:
        """Asks all programs to tell the order of their next launches. How many were asked."""
        self.recordings.begin(self._members)
        for connection in self._members:
            connection.send(pack_record(launches))
        return len(self._members)

    def _hello(
        self, connection: Connection, header: protocol.Header, packet: packets.Packet
    ) -> None:
        hello = protocol.Hello.unpack(packet.data)
        fd = packet.take_fd()
        packet.close()
        if fd is None:
            raise protocol.ProtocolError("a hello without the counters table")
        try:
            program = self.programs.welcome(connection.pid, hello, fd)
        except slots.SlotsExhaustedError as error:
            raise protocol.ProtocolError(str(error)) from None
        finally:
            packets.close_fds([fd])
        self._members[connection] = program
        self.server.identified(connection)
        if hello.build != tessera.__version__:
            log.warning(
                "process %d has Tessera %s, this is %s",
                connection.pid, hello.build, tessera.__version__,
            )  # fmt: skip
        welcome = protocol.Welcome(
            slots.base_of(program.slot), slots.SLOT_SIZE, program.slot, tuple(self.fleet.infos())
        )
        connection.send(welcome.pack(header.request), (self.placer.table.fd,))
        log.info("process %d: %s", connection.pid, hello.program)

    async def _kernel(
        self,
        connection: Connection,
        header: protocol.Header,
        query: protocol.KernelQuery,
        fd: int | None,
    ) -> None:
        try:
            capabilities = self._capabilities(connection)
            info = await self.knowledge.answer(query, fd, capabilities, connection.pid)
        except Exception as error:  # the program waits for an answer, and gets one
            log.exception("kernel %s", query.name)
            reason = f"the controller failed: {error}"
            info = protocol.KernelInfo(
                protocol.KernelStatus.FAILED, protocol.MAX_KERNELS, reason=reason
            )
        finally:
            packets.close_fds([fd] if fd is not None else [])
        connection.send(info.pack(header.request))

    async def _tried(self, run: str, tried: protocol.Tried) -> None:
        record = trials.record_of(tried, run)
        try:
            await self.knowledge.take_trial(record)
            if self.config.trust == TRUSTS_TRIALS and record.basis == "words":
                self.placer.set_verified(await self.store.run(trials.verified_kernels))
        except StoreError as error:
            log.warning("a trial of %s is lost: %s", tried.name, error)

    def _capabilities(self, connection: Connection) -> list[int]:
        """Of every device that could run a kernel of this program."""
        program = self._members.get(connection)
        home = program.hello.devices if program is not None else ()
        found = {device.compute_capability for device in home}
        found |= {keeper.spec.device.compute_capability for keeper in self.fleet.keepers}
        return sorted(found - {0})

    def _worker_lost(self, connection: Connection, lost: protocol.WorkerLost) -> None:
        program = self._members[connection]
        part = Part.last(worker_log.path_of(self.config.folder, lost.index))
        loss = Loss(lost.index, lost.reason, part)
        program.losses = [*program.losses, loss][-MOST_LOSSES:]
        self.faults.append((time.time(), program, loss))
        log.warning("process %d has lost worker %d: %s", connection.pid, lost.index, lost.reason)

    def _all_home(self, connection: Connection, told: protocol.AllHome) -> None:
        self._members[connection].all_home = told.reason
        log.warning("process %d: everything stays home: %s", connection.pid, told.reason)

    async def _command(self, connection: Connection, header: protocol.Header, data: bytes) -> None:
        answer = await commands.execute(self, protocol.plain_tail(data))
        if len(answer) + protocol.sizeof("ts_message") <= protocol.MAX_MESSAGE:
            connection.send(protocol.pack_plain(MessageType.STATUS, header.request, answer))
            return
        fd = packets.memory_file("tessera-status", answer)
        note = commands.long_answer(len(answer))
        connection.send(protocol.pack_plain(MessageType.STATUS, header.request, note), (fd,))
        packets.close_fds([fd])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What changes

    def _workers_changed(self) -> None:
        """A worker has come or gone: programs hear of it, and placements follow."""
        keepers = self.fleet.keepers
        self.placer.set_workers(
            [
                Worker(
                    keeper.spec.index,
                    keeper.spec.device.name,
                    keeper.spec.device.compute_capability,
                    keeper.up,
                )
                for keeper in keepers
            ]
        )
        if all(keeper.state == State.STARTING for keeper in keepers):
            return
        message = protocol.pack_workers(self.fleet.infos())
        for connection in list(self._members):
            connection.send(message)

    def _program_ended(self, program: Program) -> None:
        log.info("process %d has ended", program.identity.pid)
        self.past.add(program)
        for connection, member in list(self._members.items()):
            if member is program:
                del self._members[connection]
                connection.close()  # a child process may still hold the other end
        self._spawn(self._remember(program))

    async def _remember(self, program: Program) -> None:
        record = ProgramRecord(
            pid=program.identity.pid,
            program=program.hello.program,
            started=program.started,
            ended=time.time(),
            run=program.run,
            build=program.hello.build,
            state=program.state,
            counters=program.counters(),
        )
        await self.store.run(lambda store: store.add_program(record))


async def run(config: Config, ready: Callable[[Controller], None] | None = None) -> None:
    """Serves until `stopping` is set or a signal comes. `ready` is called once it accepts."""
    controller = Controller(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, controller.stopping.set)
    with contextlib.suppress(ValueError, OSError):
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
    try:
        await controller.start()
        if ready is not None:
            ready(controller)
        await controller.stopping.wait()
    finally:
        await controller.stop()
