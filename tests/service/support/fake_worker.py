# SPDX-License-Identifier: Apache-2.0
"""Stands in for tessera-worker: says that it is ready, answers TS_OBSERVE, and no more.

FAKE_WORKER says how it fails: `silent` never gets ready, `dies` ends at once with a message,
`short` ends soon after it is ready, `broken` reports that it has failed. FAKE_SESSIONS is
the number of programs that it says it serves.
"""

import argparse
import fcntl
import mmap
import os
import signal
import socket
import sys
import time
from typing import Any

import numpy as np
from tessera import protocol
from tessera.protocol import MessageType, packets


def status_table(uuid: str) -> tuple[int, Any]:
    size = protocol.sizeof("ts_worker_status")
    fd = os.memfd_create("status", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    record: Any = np.frombuffer(mmap.mmap(fd, size), protocol.dtype("ts_worker_status"), 1)
    record["magic"], record["version"] = (
        protocol.constant("TS_CHANNEL_MAGIC"),
        protocol.constant("TS_PROTOCOL_VERSION"),
    )
    record["pid"], record["state"] = os.getpid(), 1
    record["device"]["uuid"][0] = list(bytes.fromhex(uuid))
    record["memory_budget"], record["launches"] = 1 << 30, 7
    record["sessions"] = int(os.environ.get("FAKE_SESSIONS", "0"))
    return fd, record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=int)
    parser.add_argument("--socket")
    parser.add_argument("--index", type=int)
    options = parser.parse_args()
    how = os.environ.get("FAKE_WORKER", "")
    if os.environ.get("LD_PRELOAD"):
        sys.exit("a worker must not be interposed")
    if how == "dies":
        sys.exit("no device of that number")
    if how == "silent":
        time.sleep(600)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(options.socket)
    sock.listen()
    fd, record = status_table(f"{options.device + 1:032x}")
    print("ready", flush=True)
    kept = []
    while True:
        connection, _ = sock.accept()
        kept.append(connection)
        packet = packets.receive(connection)
        if packet is None:
            continue
        header = protocol.read_header(packet.data)
        if header.type == MessageType.OBSERVE:
            answer = protocol.pack_plain(MessageType.OBSERVED, header.request)
            packets.send(connection, answer, [fd])
        if how == "short":
            time.sleep(0.05)
            sys.exit(3)
        if how == "broken":
            time.sleep(0.05)
            record["error_text"], record["state"] = b"the context is lost", 2


if __name__ == "__main__":
    main()
