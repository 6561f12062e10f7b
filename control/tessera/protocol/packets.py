# SPDX-License-Identifier: Apache-2.0
"""Packets with file descriptors over SOCK_SEQPACKET sockets."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessera.protocol.headers import MAX_MESSAGE
from tessera.protocol.messages import ProtocolError

MAX_FDS = 4
_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)


@dataclass
class Packet:
    """One packet. Whoever receives it owns its descriptors; `close` closes those still in it."""

    data: bytes
    fds: list[int]

    def take_fd(self) -> int | None:
        """The first descriptor, which is the caller's from then on."""
        return self.fds.pop(0) if self.fds else None

    def close(self) -> None:
        close_fds(self.fds)
        self.fds.clear()


def close_fds(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def receive(sock: socket.socket, limit: int = MAX_MESSAGE) -> Packet | None:
    """One packet; None at the end of the connection.

    Raises BlockingIOError on a non-blocking socket with nothing to read, ProtocolError for
    what is longer than `limit` or has more than MAX_FDS descriptors, OSError.
    """
    data, ancillary, flags, _ = sock.recvmsg(limit, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    packet = Packet(data, list(_descriptors(ancillary)))
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        packet.close()
        what = "descriptors" if flags & socket.MSG_CTRUNC else f"bytes than {limit}"
        raise ProtocolError(f"a packet with more {what}")
    if not data:
        packet.close()
        return None
    return packet


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
            yield from fds


def send(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Sends one packet; the descriptors stay the caller's. Raises OSError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)


async def receive_async(sock: socket.socket) -> Packet | None:
    """`receive` for a non-blocking socket that nobody else reads from."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return receive(sock)
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(sock)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def memory_file(name: str, data: bytes) -> int:
    """A descriptor of anonymous memory that holds the data. Raises OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_file(fd: int, size: int) -> bytes:
    """`size` bytes from the start of a descriptor.

    Never by mapping it: its owner may cut it off at any time. Raises ValueError when it is
    shorter or no file.
    """
    parts, done = [], 0
    while done < size:
        try:
            part = os.pread(fd, min(size - done, 1 << 24), done)
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from None
        if not part:
            raise ValueError(f"{size} bytes announced, {done} there")
        parts.append(part)
        done += len(part)
    return b"".join(parts)
