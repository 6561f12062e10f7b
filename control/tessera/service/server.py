# SPDX-License-Identifier: Apache-2.0
"""The listening socket: accepts, checks who comes, and passes messages on."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from pathlib import Path
from typing import Protocol

from tessera import protocol
from tessera.protocol import packets
from tessera.service.connection import Connection

log = logging.getLogger(__name__)
BACKLOG = 512
ACCEPTED_AT_ONCE = 64
PAUSE = 0.2  # seconds without accepting when descriptors have run out
LOGGED_A_MINUTE = 10


class Handler(Protocol):
    """What the controller does with connections. No method may block."""

    def message(
        self, connection: Connection, header: protocol.Header, packet: packets.Packet
    ) -> None:
        """A message with a valid header; the packet is the handler's to close.

        Raises ProtocolError: the peer is refused and cut off.
        """
        ...

    def gone(self, connection: Connection) -> None:
        """The connection has closed."""
        ...


class Server:
    """Listens on a path that exists only while somebody listens."""

    def __init__(self, path: Path, handler: Handler, hello_timeout: float) -> None:
        self._path = path
        self._handler = handler
        self._hello_timeout = hello_timeout
        self._connections: dict[Connection, asyncio.TimerHandle | None] = {}
        self._sock: socket.socket | None = None
        self._inode = 0
        self.refused = 0
        self._minute, self._logged = 0, 0

    def start(self) -> None:
        """Raises OSError. A socket that an earlier controller left is replaced."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fresh = self._path.with_suffix(f".{os.getpid()}")
        try:
            fresh.unlink(missing_ok=True)
            sock.bind(str(fresh))
            fresh.chmod(0o600)
            sock.listen(BACKLOG)
            sock.setblocking(False)
            self._inode = fresh.stat().st_ino
            fresh.replace(self._path)  # from here on connecting works, and not before
        except OSError:
            sock.close()
            fresh.unlink(missing_ok=True)
            raise
        self._sock = sock
        asyncio.get_running_loop().add_reader(sock, self._accept)

    def stop(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None
            self._remove_path()
        for connection in list(self._connections):
            connection.close()

    def identified(self, connection: Connection) -> None:
        """The peer has said what it is: it may now be silent for as long as it likes."""
        timer = self._connections.get(connection)
        if timer is not None:
            timer.cancel()
            self._connections[connection] = None

    def refuse(self, connection: Connection, reason: str, request: int = 0) -> None:
        """Says why, and closes."""
        self.refused += 1
        self._log_refusal(connection, reason)
        connection.send(protocol.pack_refused(reason, request))
        connection.close_after_sending()

    def _remove_path(self) -> None:
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except OSError:
            pass  # somebody has cleaned up already

    def _accept(self) -> None:
        assert self._sock is not None
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}:
                    self._pause(error)
                return
            self._admit(sock)

    def _pause(self, error: OSError) -> None:
        log.warning("cannot accept connections for now: %s", error.strerror)
        loop, sock = asyncio.get_running_loop(), self._sock
        assert sock is not None
        loop.remove_reader(sock)

        def again() -> None:
            if self._sock is sock:
                loop.add_reader(sock, self._accept)

        loop.call_later(PAUSE, again)

    def _admit(self, sock: socket.socket) -> None:
        connection = Connection(sock, self._received, self._broken, self._gone)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._hello_timeout, self._too_silent, connection)
        self._connections[connection] = timer
        if connection.uid != os.getuid():
            self.refuse(connection, f"this controller belongs to user {os.getuid()}")

    def _received(self, connection: Connection, packet: packets.Packet) -> None:
        try:
            header = protocol.read_header(packet.data)
        except protocol.ProtocolError as error:
            packet.close()
            self.refuse(connection, str(error))
            return
        try:
            self._handler.message(connection, header, packet)
        except protocol.ProtocolError as error:
            packet.close()
            self.refuse(connection, str(error), header.request)
        except Exception:  # one message must never end the service of all others
            packet.close()
            log.exception("message %d of process %d", header.type, connection.pid)
            self.refuse(connection, "the controller failed: its log says how", header.request)

    def _broken(self, connection: Connection, error: protocol.ProtocolError) -> None:
        self.refuse(connection, str(error))

    def _too_silent(self, connection: Connection) -> None:
        self.refuse(connection, f"nothing was said for {self._hello_timeout:g} s")

    def _gone(self, connection: Connection) -> None:
        timer = self._connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._handler.gone(connection)

    def _log_refusal(self, connection: Connection, reason: str) -> None:
        """Somebody who sends garbage without end must not fill the disk."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._logged = minute, 0
        self._logged += 1
        if self._logged <= LOGGED_A_MINUTE:
            log.warning("process %d is refused: %s", connection.pid, reason)
        elif self._logged == LOGGED_A_MINUTE + 1:
            log.warning("more refusals in this minute are only counted")
