# SPDX-License-Identifier: Apache-2.0
"""A pool of analysing child processes. One that crashes or hangs is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tessera.cluster.environment import python_environment
from tessera.protocol import packets

log = logging.getLogger(__name__)
START_TIMEOUT = 60.0  # seconds: importing on a busy machine


class PoolError(Exception):
    """A job has no result; the message says why."""


@dataclass(eq=False)
class _Child:
    process: asyncio.subprocess.Process
    sock: socket.socket
    version: int


class AnalyzerPool:
    """Runs jobs in at most `size` processes, each started when it is first needed."""

    def __init__(self, size: int, analysis: str, timeout: float) -> None:
        self.version = 0  # of the analysis, known after `start`
        self.queued = 0
        self.running = 0
        self._analysis = analysis
        self._timeout = timeout
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._closed = False

    async def start(self) -> None:
        """Starts the first process, so that the first job need not wait for it.

        Raises PoolError when no process can be started at all.
        """
        child = await self._spawn()
        self.version = child.version
        self._idle.append(child)

    async def run(self, job: Mapping[str, Any], fd: int, timeout: float | None = None) -> Any:
        """The answer to a job; `fd` stays the caller's. Raises PoolError."""
        self.queued += 1
        try:
            await self._slots.acquire()
        finally:
            self.queued -= 1
        self.running += 1
        try:
            return await self._run(job, fd, timeout or self._timeout)
        finally:
            self.running -= 1
            self._slots.release()

    async def close(self) -> None:
        self._closed = True
        for child in list(self._all):
            await self._end(child)

    async def _run(self, job: Mapping[str, Any], fd: int, timeout: float) -> Any:
        if self._closed:
            raise PoolError("the controller is stopping")
        child = self._idle.pop() if self._idle else await self._spawn()
        try:
            async with asyncio.timeout(timeout):
                answer = await _exchange(child, job, fd)
        except TimeoutError:
            await self._end(child)
            raise PoolError(f"it took longer than {timeout:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            code = await self._end(child)
            raise PoolError(f"the analysing process ended ({_ending(code, error)})") from None
        except BaseException:
            await self._end(child)
            raise
        self._idle.append(child)
        return answer

    async def _spawn(self) -> _Child:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        command = [sys.executable, "-P", "-m", "tessera.service.analyzer"]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--analysis",
                self._analysis,
                stdin=theirs.fileno(),
                env=python_environment(),
            )
        except OSError as error:
            mine.close()
            raise PoolError(f"no analysing process can be started: {error.strerror}") from None
        finally:
            theirs.close()
        child = _Child(process, mine, 0)
        self._all.add(child)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                packet = await packets.receive_async(mine)
            if packet is None:
                raise EOFError
            child.version = int(json.loads(packet.data)["version"])
        except (OSError, EOFError, ValueError, TimeoutError):
            await self._end(child)
            raise PoolError("the analysing process does not start: see the log above") from None
        return child

    async def _end(self, child: _Child) -> int | None:
        """Ends a process and says how it ended, None when it had to be killed."""
        self._all.discard(child)
        child.sock.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                return await child.process.wait()
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        await child.process.wait()
        return None


async def _exchange(child: _Child, job: Mapping[str, Any], fd: int) -> Any:
    packets.send(child.sock, json.dumps(job).encode(), [fd])
    packet = await packets.receive_async(child.sock)
    if packet is None or not packet.fds:
        raise EOFError("no answer")
    try:
        return json.loads(packets.read_file(packet.fds[0], json.loads(packet.data)["size"]))
    finally:
        packet.close()


def _ending(code: int | None, error: BaseException) -> str:
    if code is None:
        return str(error) or "no answer"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def pool_size() -> int:
    """One core stays free for the program that waits."""
    return max(1, min(8, len(os.sched_getaffinity(0)) - 1))
