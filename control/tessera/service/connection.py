# SPDX-License-Identifier: Apache-2.0
"""One accepted connection: packets in, packets out, and who is at the other end."""

from __future__ import annotations

import asyncio
import collections
import os
import socket
import struct
from collections.abc import Callable

from tessera import protocol
from tessera.protocol import packets

QUEUE_LIMIT = 1024  # answers that a peer may leave unread
LAST_WORDS = 2.0  # seconds for a peer to read why it is cut off
PACKETS_AT_ONCE = 16  # read before others get their turn


class Connection:
    """Reads and writes without blocking. Closes itself when the peer goes or does not read."""

    def __init__(
        self,
        sock: socket.socket,
        received: Callable[[Connection, packets.Packet], None],
        broken: Callable[[Connection, protocol.ProtocolError], None],
        closed: Callable[[Connection], None],
    ) -> None:
        """`received` owns the packets that it gets; `closed` is called once."""
        self._sock = sock
        self._received = received
        self._broken = broken
        self._closed = closed
        self._queue: collections.deque[tuple[bytes, list[int]]] = collections.deque()
        self._open = True
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self.pid, self.uid = peer_of(sock)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    @property
    def is_open(self) -> bool:
        return self._open and not self._closing

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """Sends now or as soon as the peer reads; the descriptors stay the caller's."""
        if not self.is_open:
            return
        if len(self._queue) >= QUEUE_LIMIT:
            self.close()
            return
        self._queue.append((data, [os.dup(fd) for fd in fds]))
        self._flush()

    def close_after_sending(self) -> None:
        """Closes once what was sent has left."""
        if not self.is_open:
            return
        self._closing = True
        self._loop.remove_reader(self._sock)
        if not self._queue:
            self.close()
        else:
            self._loop.call_later(LAST_WORDS, self.close)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for _, fds in self._queue:
            packets.close_fds(fds)
        self._queue.clear()
        self._closed(self)

    def _readable(self) -> None:
        for _ in range(PACKETS_AT_ONCE):
            if not self.is_open:
                return
            try:
                packet = packets.receive(self._sock)
            except BlockingIOError:
                return
            except protocol.ProtocolError as error:
                self._broken(self, error)
                return
            except OSError:
                packet = None
            if packet is None:
                self.close()
                return
            self._received(self, packet)

    def _flush(self) -> None:
        while self._queue:
            data, fds = self._queue[0]
            try:
                packets.send(self._sock, data, fds)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
                return
            except OSError:
                self.close()
                return
            self._queue.popleft()
            packets.close_fds(fds)
        self._loop.remove_writer(self._sock)
        if self._closing:
            self.close()


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel tells them."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return int(pid), int(uid)
