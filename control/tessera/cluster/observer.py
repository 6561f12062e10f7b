# SPDX-License-Identifier: Apache-2.0
"""The controller's view into a worker: its status table, asked for over the worker's socket."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from dataclasses import dataclass
from pathlib import Path

from tessera import protocol
from tessera.protocol import packets
from tessera.protocol.tables import SharedTable

TIMEOUT = 5.0  # seconds for the answer


class ObserverError(Exception):
    """The worker does not answer as a worker of this version does."""


@dataclass(frozen=True)
class WorkerFigures:
    """What a worker has done so far; bytes and nanoseconds."""

    memory_budget: int = 0
    memory_used: int = 0
    sessions: int = 0
    launches: int = 0
    busy_ns: int = 0
    bytes_pulled: int = 0
    bytes_pushed: int = 0
    errors: int = 0
    error: str = ""

    def after(self, earlier: WorkerFigures) -> WorkerFigures:
        """These, with what only grows counted on from an earlier process's."""
        growing = ("launches", "busy_ns", "bytes_pulled", "bytes_pushed", "errors")
        sums = {name: getattr(self, name) + getattr(earlier, name) for name in growing}
        return dataclasses.replace(self, **sums)


class Observer:
    """A worker's status table. The connection stays open for as long as the worker lives."""

    def __init__(self, sock: socket.socket, table: SharedTable) -> None:
        self._sock = sock
        self._table = table

    @classmethod
    async def connect(cls, path: Path) -> Observer:
        """Raises ObserverError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.get_running_loop().sock_connect(sock, str(path))
                packets.send(sock, protocol.pack_plain(protocol.MessageType.OBSERVE, 1))
                return cls(sock, await _receive_table(sock))
        except TimeoutError:
            sock.close()
            raise ObserverError(f"{path}: no answer within {TIMEOUT:g} s") from None
        except (OSError, protocol.ProtocolError) as error:
            sock.close()
            raise ObserverError(f"{path}: {error}") from None
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    @property
    def pid(self) -> int:
        return self._table.get("pid")

    @property
    def failed(self) -> bool:
        """Whether the worker can serve no more, though its process lives."""
        return self._table.get("state") == 2

    @property
    def device_uuid(self) -> str:
        return bytes(self._table.record["device"]["uuid"][0]).hex()

    def figures(self) -> WorkerFigures:
        names = [name for name in WorkerFigures.__dataclass_fields__ if name != "error"]
        values = {name: self._table.get(name) for name in names}
        return WorkerFigures(**values, error=self._table.text("error_text"))


async def _receive_table(sock: socket.socket) -> SharedTable:
    packet = await packets.receive_async(sock)
    if packet is None:
        raise protocol.ProtocolError("the worker closed the connection")
    try:
        header = protocol.read_header(packet.data)
        if header.type != protocol.MessageType.OBSERVED or not packet.fds:
            raise protocol.ProtocolError(f"the worker answered with message {header.type}")
        return SharedTable(packet.fds[0], "ts_worker_status", "TS_CHANNEL_MAGIC")
    finally:
        packet.close()
