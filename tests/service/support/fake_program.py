# SPDX-License-Identifier: Apache-2.0
"""A program as the controller sees one, and a controller that can be used without a GPU."""

import fcntl
import hashlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tessera import protocol
from tessera.protocol import MessageType, packets
from tessera.service.client import request

SUPPORT = Path(__file__).resolve().parent
CONTROL = SUPPORT.parents[2] / "control"


def ptx(*names: str, prefix: str = "") -> bytes:
    """A module with kernels of those names."""
    head = ".version 7.8\n.target sm_80\n.address_size 64\n"
    bodies = [f".visible .entry {name}(.param .u64 {name}_p)\n{{\n  ret;\n}}\n" for name in names]
    return (head + prefix + "".join(bodies)).encode()


def image_hash(data: bytes) -> str:
    """32 digits that stand for the image; the controller takes any."""
    return hashlib.sha256(data).hexdigest()[:32]


class Counters:
    """A program's counters table."""

    def __init__(self) -> None:
        size = protocol.sizeof("ts_counters_table")
        self.fd = os.memfd_create("counters", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        memory = mmap.mmap(self.fd, size)
        self.record: Any = np.frombuffer(memory, protocol.dtype("ts_counters_table"), 1)[0]
        self.record["magic"] = protocol.constant("TS_COUNTERS_MAGIC")
        self.record["version"] = protocol.constant("TS_PROTOCOL_VERSION")
        self.record["pid"], self.record["state"] = os.getpid(), 1
        self.record["capacity"] = len(self.record["kernels"])

    def count(self, kernel_id: int, device: int, launches: int, *, stayed: int = 0) -> None:
        """Adds launches of a kernel; at home, for the reason `stayed`."""
        used = int(self.record["n_kernels"])
        entries = self.record["kernels"]
        slot = next((i for i in range(used) if entries[i]["kernel_id"] == kernel_id), used)
        if slot == used:
            self.record["n_kernels"] = used + 1
        entry = entries[slot]
        entry["kernel_id"], entry["used"] = kernel_id, 1
        entry["launches"][device] += launches
        if device == 0:
            entry["stayed"][stayed] += launches
        else:
            entry["bytes_in"][device] += 1024 * launches
        entry["time_ns"][device] += 1500 * launches
        entry["timed"][device] += launches


class FakeProgram:
    """Speaks the protocol from this process."""

    def __init__(self, folder: Path, timeout: float = 20.0) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        self.sock.connect(str(folder / "controller.sock"))
        self.counters = Counters()
        self.welcome: protocol.Welcome | None = None
        self.placement: Any = None
        self._request = 0
        self.pushed: list[tuple[protocol.WorkerInfo, ...]] = []

    def __enter__(self) -> "FakeProgram":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def hello(self, build: str = "", capability: int = 80) -> protocol.Welcome:
        from tessera import __version__

        device = protocol.Device("f" * 32, capability, 1 << 34, "Home GPU")
        hello = protocol.Hello(os.getpid(), (device,), "python train.py", build or __version__)
        packet = self.ask(hello.pack(self.next()), [self.counters.fd])
        self.welcome = protocol.Welcome.unpack(packet.data)
        size = protocol.sizeof("ts_placement_table")
        memory = mmap.mmap(packet.fds[0], size, mmap.MAP_SHARED, mmap.PROT_READ)
        self.placement = np.frombuffer(memory, protocol.dtype("ts_placement_table"), 1)[0]
        packet.close()
        return self.welcome

    def next(self) -> int:
        self._request += 1
        return self._request

    def ask(self, message: bytes, fds: list[int] | None = None) -> packets.Packet:
        """Sends a request and returns its answer; keeps what came unasked in between."""
        packets.send(self.sock, message, fds or [])
        wanted = protocol.read_header(message).request
        while True:
            packet = self.receive()
            header = protocol.read_header(packet.data)
            if header.type == MessageType.REFUSED:
                raise RefusedError(protocol.unpack_refused(packet.data))
            if header.request == wanted and header.type != MessageType.WORKERS:
                return packet

    def receive(self) -> packets.Packet:
        packet = packets.receive(self.sock)
        if packet is None:
            raise ConnectionResetError("the controller closed the connection")
        if protocol.read_header(packet.data).type == MessageType.WORKERS:
            self.pushed.append(protocol.unpack_workers(packet.data))
        return packet

    def query(
        self, image: bytes, name: str, *, send: bool = False, path: str = "", hash_: str = ""
    ) -> protocol.KernelInfo:
        """One kernel query, with the image when `send`."""
        query = protocol.KernelQuery(hash_ or image_hash(image), len(image), send, name, path)
        fds = [packets.memory_file("image", image)] if send else []
        packet = self.ask(query.pack(self.next()), fds)
        packets.close_fds(fds)
        return protocol.KernelInfo.unpack(packet.data)

    def learn(self, image: bytes, name: str, path: str = "") -> protocol.KernelInfo:
        """Asks as the shim does: first without the image, then with it when that is wanted."""
        info = self.query(image, name, path=path)
        if info.status == protocol.KernelStatus.NEED_IMAGE:
            info = self.query(image, name, send=True, path=path)
        return info

    def wait_for_device(self, kernel_id: int, device: int, timeout: float = 5.0) -> float:
        """Waits until the placement table says so; returns how long that took, seconds."""
        begin = time.monotonic()
        while self.placement["device"][kernel_id] != device:
            if time.monotonic() - begin > timeout:
                raise TimeoutError(
                    f"kernel {kernel_id} is on {self.placement['device'][kernel_id]}"
                )
            time.sleep(0.002)
        return time.monotonic() - begin


class RefusedError(Exception):
    """The controller refused the program."""


class FakeMachine:
    """Environment of a machine with devices that exist only in a file of names."""

    def __init__(self, folder: Path, devices: int = 2) -> None:
        self.folder = folder / "run"
        self.store = folder / "store.db"
        self.environment: dict[str, str] = {
            **{k: v for k, v in os.environ.items() if k not in {"LD_PRELOAD", "XDG_RUNTIME_DIR"}},
            "TESSERA_RUNTIME_DIR": str(self.folder),
            "TESSERA_STORE": str(self.store),
            "TESSERA_DRIVER": str(fake_driver(folder, devices)),
            "PYTHONPATH": f"{CONTROL}{os.pathsep}{SUPPORT}",
        }

    @property
    def options(self) -> list[str]:
        """Options of `python -m tessera.service` for the fakes."""
        worker = f"{sys.executable} {SUPPORT / 'fake_worker.py'}"
        return ["--analysis", "fake_analysis", "--worker-command", worker]


def fake_driver(folder: Path, devices: int) -> Path:
    """Compiles a libcuda.so.1 that lists devices and does nothing else."""
    source, library = folder / "driver.c", folder / f"libcuda-{devices}.so.1"
    if not library.exists():
        source.write_text((SUPPORT / "fake_driver.c").read_text())
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, f"-DDEVICES={devices}", "-shared", "-fPIC", "-o", library, source],
            check=True,
        )
    return library


class RunningController:
    """`python -m tessera.service` in the foreground."""

    def __init__(self, machine: FakeMachine, devices: str = "all", **environment: str) -> None:
        self.machine = machine
        self.folder = machine.folder
        self.log = machine.folder.parent / "controller.log"
        read_end, write_end = os.pipe()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tessera.service", "--devices", devices),
                    *("--ready-fd", str(write_end), *machine.options),
                ],
                env=machine.environment | environment,
                pass_fds=[write_end],
                stdout=output,
                stderr=output,
            )
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            line = pipe.readline()
        self.answer: dict[str, Any] = json.loads(line) if line else {"ok": False, "error": "died"}

    def __enter__(self) -> "RunningController":
        assert self.answer["ok"], self.answer
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return request(self.folder, command, **arguments)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.ask("status")["status"]
        return status

    def wait_for_workers(self, state: str = "up", timeout: float = 30.0) -> list[dict[str, Any]]:
        """Waits until all workers have that state."""
        deadline = time.monotonic() + timeout
        while True:
            workers: list[dict[str, Any]] = self.status()["workers"]
            if all(worker["state"] == state for worker in workers):
                return workers
            assert time.monotonic() < deadline, workers
            time.sleep(0.02)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_until(condition: Any, timeout: float = 10.0) -> None:
    """Waits until a function returns something true."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def native_folder(folder: Path) -> Path:
    """A folder of native artefacts with a fake worker and an empty shim, for tessera-ctl."""
    native = folder / "native"
    native.mkdir()
    worker = native / "tessera-worker"
    worker.write_text(f'#!/bin/sh\nexec {sys.executable} {SUPPORT / "fake_worker.py"} "$@"\n')
    worker.chmod(0o755)
    source = folder / "empty.c"
    source.write_text("int tessera_is_here;\n")
    shim = native / "libtessera.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", shim, source], check=True)
    given = os.environ.get("TESSERA_NATIVE_DIR")
    for name in ("libtessera_ptx.so", "libtessera_access.so"):
        real = Path(given) / name if given else CONTROL / "tessera" / "_native" / name
        (native / name).symlink_to(real)
    return native
