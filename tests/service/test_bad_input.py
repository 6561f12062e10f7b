# SPDX-License-Identifier: Apache-2.0
"""What must not take the controller down, nor stop it from serving others."""

import os
import random
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fake_program import FakeMachine, FakeProgram, RunningController, ptx, wait_until
from tessera import protocol
from tessera.protocol import KernelStatus, MessageType, packets
from tessera.service import daemon, runtime
from tessera.store.schema import MIGRATIONS


def raw(folder: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    sock.connect(str(folder / "controller.sock"))
    return sock


def refusal(sock: socket.socket) -> str:
    """The reason for which the controller cuts off; it must then close."""
    packet = packets.receive(sock)
    assert packet is not None
    assert protocol.read_header(packet.data).type == MessageType.REFUSED
    assert packets.receive(sock) is None
    sock.close()
    return protocol.unpack_refused(packet.data)


def with_version(data: bytes, version: int) -> bytes:
    return data[:4] + version.to_bytes(2, "little") + data[6:]


HELLO = protocol.Hello(1, (), "p", "b").pack(1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "starts with"),
        (b"x", "shorter"),
        (with_version(HELLO, 2), "2 came in, this side speaks 1"),
        (HELLO[:-1], "says that it has"),
        (protocol.pack_plain(MessageType.HELLO, 1), "ts_hello has"),
        (HELLO, "without the counters table"),
        (protocol.KernelQuery("0" * 32, 1, False, "k").pack(1), "has to say hello first"),
        (protocol.pack_plain(MessageType(6), 1), "has to say hello first"),
        (b"\0" * protocol.MAX_MESSAGE, "starts with"),
    ],
)
def test_a_bad_first_packet_is_refused_with_the_reason(
    controller: RunningController, data: bytes, reason: str
) -> None:
    sock = raw(controller.folder)
    packets.send(sock, data)
    assert reason in refusal(sock)
    with FakeProgram(controller.folder) as program:
        program.hello()


def test_bad_packets_after_hello_are_refused(controller: RunningController) -> None:
    query = protocol.KernelQuery("0" * 32, 1, True, "k").pack(1)
    for data in (query, HELLO, protocol.pack_plain(MessageType.KERNEL, 1), b"garbage"):
        with FakeProgram(controller.folder) as program:
            program.hello()
            packets.send(program.sock, data)
            refusal(program.sock)


def test_too_many_descriptors_are_refused_and_closed(controller: RunningController) -> None:
    folder = Path(f"/proc/{controller.process.pid}/fd")
    before = len(list(folder.iterdir()))
    null = os.open("/dev/null", os.O_RDONLY)
    for _ in range(20):
        sock = raw(controller.folder)
        packets.send(sock, HELLO, [null] * 20)
        assert "descriptors" in refusal(sock)
    os.close(null)
    wait_until(lambda: len(list(folder.iterdir())) <= before + 1)


@pytest.mark.parametrize("kind", ["pipe", "short", "unsealed", "file"])
def test_counters_that_cannot_be_mapped_safely_are_refused(
    controller: RunningController, kind: str, tmp_path: Path
) -> None:
    size = protocol.sizeof("ts_counters_table")
    if kind == "pipe":
        fd = os.pipe()[0]
    elif kind == "file":
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, size)
    else:
        fd = os.memfd_create("counters", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size if kind == "unsealed" else 64)
    sock = raw(controller.folder)
    packets.send(sock, HELLO, [fd])
    assert "counters_table" in refusal(sock)
    os.close(fd)


def test_an_image_that_is_a_pipe_or_shorter_than_said_fails(program: FakeProgram) -> None:
    read_end, write_end = os.pipe()
    short = packets.memory_file("image", b"abc")
    for number, fd in enumerate((read_end, short)):
        query = protocol.KernelQuery(f"{number:032x}", 1 << 20, True, "k")
        packet = program.ask(query.pack(program.next()), [fd])
        info = protocol.KernelInfo.unpack(packet.data)
        assert info.status == KernelStatus.FAILED
        assert "the image" in info.reason
    huge = protocol.KernelQuery("e" * 32, 1 << 62, True, "k")
    info = protocol.KernelInfo.unpack(program.ask(huge.pack(program.next()), [short]).data)
    assert "more than are analysed" in info.reason
    for fd in (read_end, write_end, short):
        os.close(fd)


def test_a_flood_of_garbage(controller: RunningController) -> None:
    generator = random.Random(7)
    kinds = list(MessageType)
    for number in range(400):
        sock = raw(controller.folder)
        body = generator.randbytes(generator.randrange(2000))
        data = body if number % 2 else protocol.pack_plain(kinds[number % len(kinds)], 1, body)
        if data:
            packets.send(sock, data)
        if number % 3:
            sock.close()
        del sock
    with FakeProgram(controller.folder) as program:
        program.hello()
        assert program.learn(ptx("k"), "k").status == KernelStatus.READY
    assert len(controller.log.read_text().splitlines()) < 100  # the log is not flooded


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"command": 1}', '{"command": "rm"}', '{"command": "show"}', "\xff",
     '{"command": "set_rules", "text": "", "policy": "fast"}', '{"command": ["x"]}'],
)  # fmt: skip
def test_malformed_requests_get_an_error(controller: RunningController, text: str) -> None:
    sock = raw(controller.folder)
    data = protocol.pack_plain(MessageType.STATUS, 9, text.encode("latin-1"))
    packets.send(sock, data)
    packet = packets.receive(sock)
    assert packet is not None
    assert protocol.read_header(packet.data).request == 9
    assert b'"ok": false' in packet.data
    assert b"the controller failed" not in packet.data
    sock.close()


def test_silent_and_vanishing_peers_do_not_block_others(controller: RunningController) -> None:
    silent = [raw(controller.folder) for _ in range(100)]
    for _ in range(50):
        raw(controller.folder).close()
    begin = time.monotonic()
    with FakeProgram(controller.folder) as program:
        program.hello()
    assert time.monotonic() - begin < 1.0
    assert "nothing was said for 5 s" in refusal(silent[0])
    for sock in silent[1:]:
        sock.close()


def connect_at_once(folder: Path, count: int) -> tuple[float, list[int]]:
    """Seconds until that many programs have been welcomed, and their slots."""
    barrier = threading.Barrier(count + 1)
    programs: list[FakeProgram] = []

    def connect() -> None:
        program = FakeProgram(folder)
        barrier.wait()
        program.hello()
        programs.append(program)

    threads = [threading.Thread(target=connect) for _ in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.monotonic()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - begin
    slots = sorted(program.welcome.slot for program in programs if program.welcome)
    for program in programs:
        program.close()
    return taken, slots


def test_thirty_two_connect_at_once(machine: FakeMachine) -> None:
    times = []
    for _ in range(3):  # other work on the machine may slow down one attempt
        with RunningController(machine) as controller:
            taken, slots = connect_at_once(controller.folder, 32)
        assert len(set(slots)) == 32
        times.append(taken)
        if taken < 1.0:
            return
        machine.store.unlink()
    pytest.fail(f"32 programs at once took {times} s")


def test_a_peer_that_never_reads_is_cut_off(controller: RunningController) -> None:
    sock = raw(controller.folder)
    sock.setblocking(False)
    data = protocol.pack_plain(MessageType.STATUS, 1, b'{"command": "status"}')
    for _ in range(5000):
        try:
            packets.send(sock, data)
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            break
    else:
        pytest.fail("the controller queues answers without end")
    sock.close()
    assert controller.status()["schema"] == 1


def test_a_second_controller_says_that_one_runs(controller: RunningController) -> None:
    second = RunningController(controller.machine)
    assert second.answer["ok"] is False
    assert second.answer["running"] == controller.process.pid
    assert second.process.wait(10) == 1
    assert controller.status()["controller"]["pid"] == controller.process.pid


def test_stale_socket_and_lock_do_not_matter(machine: FakeMachine) -> None:
    runtime.prepare(machine.folder)
    (machine.folder / "controller.lock").write_text("999999\n")
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stale.bind(str(machine.folder / "controller.sock"))
    stale.close()
    (machine.folder / "slots.json").write_text("{broken")
    (machine.folder / "worker-1.json").write_text("[1, 2]")  # no such process any more
    assert runtime.running_pid(machine.folder) is None
    with RunningController(machine) as controller:
        controller.wait_for_workers()
        assert controller.stop() == 0
    assert not (machine.folder / "controller.sock").exists()


def test_the_runtime_folder_must_be_ours(machine: FakeMachine, tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o777)
    open_folder.chmod(0o777)
    runtime.prepare(open_folder)
    assert open_folder.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(open_folder)
    with pytest.raises(runtime.RuntimeFolderError, match="not a folder of yours"):
        runtime.prepare(link)
    with pytest.raises(runtime.RuntimeFolderError, match="too long"):
        runtime.prepare(tmp_path / ("x" * 100))
    (tmp_path / "file").write_text("")
    with pytest.raises(runtime.RuntimeFolderError, match="cannot be made"):
        runtime.prepare(tmp_path / "file" / "run")


def start_error(machine: FakeMachine) -> str:
    controller = RunningController(machine)
    assert controller.answer["ok"] is False
    assert controller.process.wait(20) == 1
    return str(controller.answer["error"])


def test_a_damaged_store_is_refused_at_the_start(machine: FakeMachine) -> None:
    machine.store.write_bytes(b"garbage" * 1000)
    assert f"mv {machine.store} {machine.store}.damaged" in start_error(machine)


def test_a_newer_store_is_refused_at_the_start(machine: FakeMachine) -> None:
    with RunningController(machine):
        pass
    with sqlite3.connect(machine.store) as file:
        file.execute("PRAGMA user_version = 9")
    file.close()
    known = f"schema version 9, this Tessera knows versions up to {len(MIGRATIONS)}"
    assert known in start_error(machine)


def test_a_store_that_cannot_be_written_is_kept_in_memory(machine: FakeMachine) -> None:
    machine.environment["TESSERA_STORE"] = "/proc/store.db"
    with RunningController(machine) as controller, FakeProgram(controller.folder) as program:
        program.hello()
        assert program.learn(ptx("k"), "k").status == KernelStatus.READY
        answer = controller.ask("set_rules", text="* -> 1\n")
        assert "/proc/store.db" in answer["in_memory"]
        status = controller.status()
        assert "/proc/store.db" in status["problems"][0]
    log = controller.log.read_text()
    assert log.count("kept in memory") == 1


def test_bad_settings_are_named(machine: FakeMachine) -> None:
    machine.environment["TESSERA_ANALYSIS_WAIT_MS"] = "soon"
    assert "TESSERA_ANALYSIS_WAIT_MS is 'soon'" in start_error(machine)


def test_an_analysis_that_cannot_be_imported_is_an_error(machine: FakeMachine) -> None:
    class Broken(FakeMachine):
        options = ["--analysis", "no_such_module"]  # type: ignore[assignment] # noqa: RUF012

    machine.__class__ = Broken
    assert "analysing process does not start" in start_error(machine)


def test_a_driver_that_is_missing_is_a_problem_and_no_end(machine: FakeMachine) -> None:
    machine.environment["TESSERA_DRIVER"] = "/nowhere/libcuda.so.1"
    with RunningController(machine) as controller:
        status = controller.status()
        assert status["devices"] == []
        assert "no driver" in status["problems"][0]
    controller = RunningController(machine, devices="1")
    assert "there is no device 1" in controller.answer["error"]
    controller.process.wait(10)


def test_the_controller_ends_with_exit_status_0_on_a_signal(
    controller: RunningController,
) -> None:
    assert controller.stop() == 0
    assert not (controller.folder / "controller.sock").exists()


def test_down_with_a_program_connected(controller: RunningController, program: FakeProgram) -> None:
    del program
    with pytest.raises(Exception, match="programs are using the controller"):
        daemon.stop(controller.folder)
    assert controller.process.poll() is None
    assert daemon.stop(controller.folder, force=True) == controller.process.pid
    assert controller.process.wait(10) == 0


def test_down_ends_a_controller_that_hangs(controller: RunningController, monkeypatch: Any) -> None:
    import signal

    monkeypatch.setattr(daemon, "STOP_TIMEOUT", 0.5)
    monkeypatch.setattr("tessera.service.client.Client.__init__.__defaults__", (0.5,))
    controller.process.send_signal(signal.SIGSTOP)
    assert daemon.stop(controller.folder, force=True) == controller.process.pid
    assert controller.process.wait(10) == -signal.SIGKILL
    assert list(controller.folder.glob("worker-*.sock")) == []
