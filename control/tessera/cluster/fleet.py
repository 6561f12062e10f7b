# SPDX-License-Identifier: Apache-2.0
"""The workers of a controller: started, watched, started again when they die."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera import protocol
from tessera.cluster.launcher import LaunchError, RunningWorker, WorkerLauncher, WorkerSpec
from tessera.cluster.observer import WorkerFigures

log = logging.getLogger(__name__)


class State(enum.StrEnum):
    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"
    FAILED = "failed"  # given up
    STOPPED = "stopped"


@dataclass(frozen=True)
class Patience:
    """How often and how fast a worker that dies is started again; seconds."""

    attempts: int = 5
    first_delay: float = 0.25
    longest_delay: float = 8.0
    healthy_after: float = 60.0  # having lived that long, a worker has all attempts again
    poll: float = 0.5  # how often its own word for its state is read


class WorkerKeeper:
    """Keeps one worker alive."""

    def __init__(
        self,
        spec: WorkerSpec,
        launcher: WorkerLauncher,
        changed: Callable[[], None],
        patience: Patience,
    ) -> None:
        self.spec = spec
        self.state = State.STARTING
        self.restarts = 0
        self.error = ""  # how it last failed
        self.pid = 0
        self._launcher = launcher
        self._changed = changed
        self._patience = patience
        self._worker: RunningWorker | None = None
        self._last_figures = WorkerFigures()
        self._earlier = WorkerFigures()  # of the processes that are no more

    @property
    def up(self) -> bool:
        return self.state == State.UP

    def info(self) -> protocol.WorkerInfo:
        """What programs are told."""
        device = self.spec.device
        described = protocol.Device(
            device.uuid, device.compute_capability, device.memory_bytes, device.name
        )
        socket = self._worker.socket if self._worker is not None else ""
        return protocol.WorkerInfo(self.spec.index, self.up, described, socket)

    def figures(self) -> WorkerFigures:
        """What the worker says of itself now, or said last; the sums are over all its processes."""
        if self._worker is not None:
            self._last_figures = self._worker.observer.figures().after(self._earlier)
        return self._last_figures

    async def run(self) -> None:
        """Starts the worker and starts it again, until cancelled or out of attempts."""
        failures = 0
        worker = await self._launcher.adopt(self.spec)
        if worker is not None:
            log.info("worker %d: process %d of an earlier controller", self.spec.index, worker.pid)
        while True:
            begin = time.monotonic()
            try:
                worker = worker or await self._launcher.launch(self.spec)
                self.error = await self._watch(worker)
            except (LaunchError, OSError) as error:
                self.error = f"it does not start: {error}"
            worker = None
            if time.monotonic() - begin > self._patience.healthy_after:
                failures = 0
            failures += 1
            log.warning("worker %d (%s): %s", self.spec.index, self.spec.device.name, self.error)
            if failures > self._patience.attempts:
                log.error("worker %d is given up after %d failures", self.spec.index, failures)
                self._set(State.FAILED)
                return
            self._set(State.RESTARTING)
            delay = self._patience.first_delay * 2 ** (failures - 1)
            await asyncio.sleep(min(delay, self._patience.longest_delay))
            self.restarts += 1

    async def _watch(self, worker: RunningWorker) -> str:
        """Returns how the worker failed. Stops it when that, or a cancellation, leaves it alive."""
        self._worker, self.pid = worker, worker.pid
        self._set(State.UP)
        log.info("worker %d: %s, process %d", self.spec.index, self.spec.device.name, worker.pid)
        ended = asyncio.ensure_future(worker.ended())
        try:
            while not ended.done():
                if worker.observer.failed:
                    return f"it reports: {worker.observer.figures().error}"
                await asyncio.wait([ended], timeout=self._patience.poll)
            return ended.result()
        finally:
            self._earlier = self.figures()
            ended.cancel()
            self._worker, self.pid = None, 0
            worker.observer.close()
            await worker.stop()

    def _set(self, state: State) -> None:
        self.state = state
        self._changed()


class Fleet:
    """All workers of a controller."""

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        launcher: WorkerLauncher,
        changed: Callable[[], None],
        patience: Patience | None = None,
    ) -> None:
        """`changed` is called whenever a worker comes or goes."""
        chosen = patience or Patience()
        self.keepers = [WorkerKeeper(spec, launcher, changed, chosen) for spec in specs]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(keeper.run(), name=f"worker {keeper.spec.index}")
            for keeper in self.keepers
        ]

    async def settled(self, timeout: float) -> None:
        """Returns when no worker is starting for the first time any more, or after `timeout` s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(keeper.state == State.STARTING for keeper in self.keepers):
                    await asyncio.sleep(0.02)

    def infos(self) -> list[protocol.WorkerInfo]:
        return [keeper.info() for keeper in self.keepers]

    async def stop(self) -> None:
        """Stops all workers."""
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for keeper, result in zip(self.keepers, results, strict=False):
            keeper.state = State.STOPPED
            if isinstance(result, Exception):
                log.error("worker %d: %s: %s", keeper.spec.index, type(result).__name__, result)
