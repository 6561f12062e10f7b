# SPDX-License-Identifier: Apache-2.0
"""How tessera-ctl talks to the controller."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from tessera import protocol
from tessera.protocol import MessageType, packets
from tessera.service.connection import peer_of
from tessera.service.runtime import running_pid, socket_path


class NotRunningError(Exception):
    """No controller answers in the folder."""


class ClientError(Exception):
    """The controller refused; the message says what to do."""

    def __init__(self, message: str, answer: dict[str, Any] | None = None) -> None:
        self.answer = answer or {}
        super().__init__(message)


class Client:
    """One connection for one or more requests."""

    def __init__(self, folder: Path, timeout: float = 10.0) -> None:
        """Raises NotRunningError, ClientError."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(timeout)
        try:
            self._sock.connect(str(socket_path(folder)))
        except OSError as error:
            self._sock.close()
            raise NotRunningError(f"no controller runs in {folder} ({error.strerror})") from None
        _, uid = peer_of(self._sock)
        if uid != os.getuid():
            self._sock.close()
            raise ClientError(f"the controller in {folder} belongs to user {uid}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The answer. Raises ClientError, NotRunningError when the controller goes meanwhile."""
        text = json.dumps({"command": command, **arguments}, ensure_ascii=False)
        message = protocol.pack_plain(MessageType.STATUS, 1, text.encode("utf-8", "replace"))
        if len(message) > protocol.MAX_MESSAGE:
            raise ClientError(f"the request has {len(message)} bytes, too many for one message")
        try:
            packets.send(self._sock, message)
            packet = packets.receive(self._sock)
        except TimeoutError:
            raise ClientError("the controller does not answer: its log may say why") from None
        except OSError as error:
            raise NotRunningError(f"the controller has gone ({error.strerror})") from None
        if packet is None:
            raise NotRunningError("the controller has gone")
        try:
            answer = _answer(packet)
        finally:
            packet.close()
        if not answer.get("ok"):
            raise ClientError(str(answer.get("error", "no reason given")), answer)
        return answer


def _answer(packet: packets.Packet) -> dict[str, Any]:
    try:
        header = protocol.read_header(packet.data)
        if header.type == MessageType.REFUSED:
            raise ClientError(protocol.unpack_refused(packet.data))
        answer: dict[str, Any] = json.loads(protocol.plain_tail(packet.data))
        if "attached" in answer:
            answer = json.loads(packets.read_file(packet.fds[0], answer["attached"]))
    except (protocol.ProtocolError, ValueError, IndexError) as error:
        raise ClientError(f"the controller gave an answer that is none: {error}") from None
    return answer


def request(folder: Path, command: str, **arguments: Any) -> dict[str, Any]:
    """One request on a connection of its own. Raises as Client does."""
    with Client(folder) as client:
        return client.request(command, **arguments)


def wait_until_gone(folder: Path, timeout: float) -> bool:
    """Whether the controller lets go of the folder within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while running_pid(folder) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
