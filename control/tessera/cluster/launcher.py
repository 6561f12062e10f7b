# SPDX-License-Identifier: Apache-2.0
"""The seam behind which workers are started, and the way to do it on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tessera.cluster import worker_log
from tessera.cluster.environment import clean_environment
from tessera.cluster.observer import Observer, ObserverError
from tessera.cluster.processes import ProcessIdentity
from tessera.native import NativeError, library_path
from tessera.native.driver import DeviceInfo

log = logging.getLogger(__name__)
START_TIMEOUT = 60.0  # seconds: making a context on a busy machine
STOP_TIMEOUT = 3.0  # seconds between asking a worker to end and making it


class LaunchError(Exception):
    """A worker could not be started; the message says why."""


@dataclass(frozen=True)
class WorkerSpec:
    """A worker that there should be."""

    index: int  # 1 to 15: its value in the placement table
    device: DeviceInfo


class RunningWorker(Protocol):
    """A worker that has said that it is ready."""

    pid: int
    socket: str
    observer: Observer

    async def ended(self) -> str:
        """Returns when the worker is gone, with words for how it went."""
        ...

    async def stop(self) -> None:
        """Ends the worker; returns when it is gone."""
        ...


class WorkerLauncher(Protocol):
    """Starts workers somewhere."""

    async def adopt(self, spec: WorkerSpec) -> RunningWorker | None:
        """The worker that an earlier controller left behind, if it still serves that device."""
        ...

    async def launch(self, spec: WorkerSpec) -> RunningWorker:
        """Starts a worker and waits until it is ready. Raises LaunchError."""
        ...


class LocalWorker:
    """A worker process on this machine, our child or not."""

    def __init__(
        self,
        identity: ProcessIdentity,
        socket: str,
        observer: Observer,
        process: asyncio.subprocess.Process | None = None,
        log_path: Path | None = None,
    ) -> None:
        """`process`: when it is our child; what it prints goes to `log_path`, then."""
        self.pid = identity.pid
        self.socket = socket
        self.observer = observer
        self._identity = identity
        self._process = process
        self._drain: asyncio.Task[None] | None = None
        if process is not None and log_path is not None:
            self._drain = asyncio.create_task(_to_log(process, log_path))

    async def ended(self) -> str:
        if self._process is not None:
            code = await self._process.wait()
            return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        await _wait_for(self._identity)
        return "ended"

    async def stop(self) -> None:
        self._identity.send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self.ended()
                return
        self._identity.send(signal.SIGKILL)
        await self.ended()


class LocalLauncher:
    """Starts `tessera-worker` processes; their sockets, logs and records lie in `folder`."""

    def __init__(self, folder: Path, command: tuple[str, ...] = ()) -> None:
        """`command` stands in for the native worker, in tests."""
        self._folder = folder
        self._command = command

    async def adopt(self, spec: WorkerSpec) -> RunningWorker | None:
        identity = read_record(self._record(spec.index))
        if identity is None or not identity.alive():
            return None
        try:
            observer = await Observer.connect(self._socket(spec.index))
        except ObserverError as error:
            log.warning("worker %d of an earlier controller is replaced: %s", spec.index, error)
        else:
            if observer.pid == identity.pid and observer.device_uuid == spec.device.uuid:
                return LocalWorker(identity, str(self._socket(spec.index)), observer)
            observer.close()
        await asyncio.to_thread(identity.end, STOP_TIMEOUT)
        return None

    async def launch(self, spec: WorkerSpec) -> RunningWorker:
        path = self._socket(spec.index)
        path.unlink(missing_ok=True)
        process = await self._spawn(spec, path)
        identity = ProcessIdentity.of(process.pid)
        write_record(self._record(spec.index), identity)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self._wait_until_ready(process, spec.index)
                observer = await Observer.connect(path)
        except (TimeoutError, LaunchError, ObserverError) as error:
            await _kill(process)
            raise LaunchError(str(error) or f"not ready within {START_TIMEOUT:g} s") from None
        except BaseException:
            await _kill(process)
            raise
        return LocalWorker(identity, str(path), observer, process, self._log(spec.index))

    async def _spawn(self, spec: WorkerSpec, path: Path) -> asyncio.subprocess.Process:
        arguments = ["--device", str(spec.device.ordinal), "--socket", str(path)]
        arguments += ["--index", str(spec.index)]
        try:
            command = self._command or (str(library_path("tessera-worker")),)
            with worker_log.begin(self._log(spec.index), spec.index, spec.device.name) as output:
                return await asyncio.create_subprocess_exec(
                    *command,
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=output,
                    env=clean_environment(),
                    start_new_session=True,
                )
        except NativeError as error:
            raise LaunchError(str(error)) from None
        except OSError as error:
            raise LaunchError(f"tessera-worker cannot be started: {error.strerror}") from None

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, index: int) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.split()[:1] == [b"ready"]:
                return
        code = await process.wait()
        raise LaunchError(f"it ended with {code}: {self._last_words(index)}")

    def _last_words(self, index: int) -> str:
        """The last line that the worker wrote to its log."""
        path = self._log(index)
        lines = worker_log.Part.last(path).lines()
        return lines[-1] if lines else f"nothing in {path}"

    def _socket(self, index: int) -> Path:
        return self._folder / f"worker-{index}.sock"

    def _log(self, index: int) -> Path:
        return worker_log.path_of(self._folder, index)

    def _record(self, index: int) -> Path:
        return self._folder / f"worker-{index}.json"


def write_record(path: Path, identity: ProcessIdentity) -> None:
    """Notes a worker's identity, for a controller that comes after this one."""
    try:
        path.write_text(json.dumps([identity.pid, identity.start_time]))
    except OSError as error:
        log.warning("%s: %s: a later controller will not find this worker", path, error.strerror)


def read_record(path: Path) -> ProcessIdentity | None:
    """The identity in a record; None when there is none that can be read."""
    try:
        pid, started = json.loads(path.read_text())
        return ProcessIdentity(int(pid), int(started))
    except (OSError, ValueError, TypeError):
        return None


def leftovers_in_use(folder: Path) -> dict[int, int]:
    """Workers that a killed controller left behind and that serve programs: index to process."""
    used = {}
    for path in sorted(folder.glob("worker-*.json")):
        identity, number = read_record(path), path.stem.removeprefix("worker-")
        if identity is None or not identity.alive() or not number.isdigit():
            continue
        try:
            observer = asyncio.run(Observer.connect(path.with_suffix(".sock")))
        except ObserverError:
            continue  # it answers nobody, so it serves nobody
        if observer.figures().sessions:
            used[int(number)] = identity.pid
        observer.close()
    return used


def stop_leftovers(folder: Path, keep: frozenset[int] = frozenset()) -> list[int]:
    """Ends the workers that a killed controller left behind, but for some indices.

    Returns the ids of the processes that were ended.
    """
    ended = []
    for path in sorted(folder.glob("worker-*.json")):
        number = path.stem.removeprefix("worker-")
        if number.isdigit() and int(number) in keep:
            continue
        identity = read_record(path)
        if identity is not None and identity.alive() and identity.end(STOP_TIMEOUT):
            ended.append(identity.pid)
        path.unlink(missing_ok=True)
        path.with_suffix(".sock").unlink(missing_ok=True)
    return ended


async def _to_log(process: asyncio.subprocess.Process, path: Path) -> None:
    """What a worker prints when it is ready: kernels' own words. A full pipe would stop it."""
    assert process.stdout is not None
    room = worker_log.LIMIT
    while text := await process.stdout.read(65536):
        room -= len(text)
        if room > 0:
            with contextlib.suppress(OSError), path.open("ab") as log:  # the disk may be full
                log.write(text)


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _wait_for(identity: ProcessIdentity) -> None:
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return
    gone = asyncio.Event()
    try:
        loop.add_reader(fd, gone.set)
        if identity.alive():
            await gone.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
