# SPDX-License-Identifier: Apache-2.0
"""The Python view of the C headers: layouts, messages, settings."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tessera import protocol
from tessera.protocol import MessageType, ProtocolError, VersionMismatchError
from tessera.protocol.classes import ARGUMENT, LaunchClass, Quantity
from tessera.protocol.tables import (
    MAX_CHOICES,
    PLACED_BY_CLASS,
    Choice,
    PlacementTable,
    SharedTable,
)
from tessera.settings import Settings, SettingsError, definitions, header_path, parse_definitions

STRUCTS = [
    "ts_message", "ts_device", "ts_hello", "ts_worker_info", "ts_welcome", "ts_workers",
    "ts_refused", "ts_kernel_query", "ts_kernel_info", "ts_worker_lost", "ts_all_home",
    "ts_placement_table", "ts_term", "ts_choice", "ts_class_value", "ts_class",
    "ts_kernel_counters", "ts_worker_counters", "ts_counters_table", "ts_channel_header",
    "ts_worker_status", "ts_summary",
]  # fmt: skip


@pytest.mark.parametrize("name", STRUCTS)
def test_numpy_types_have_the_layout_of_the_structs(name: str) -> None:
    dtype = protocol.dtype(name)
    assert dtype.itemsize == protocol.sizeof(name)
    assert dtype.names is not None
    assert dtype.fields is not None
    assert list(dtype.names) == protocol.members(name)
    for member in dtype.names:
        assert dtype.fields[member][1] == protocol.offsetof(name, member)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Sizes, offsets and constants as the C compiler has them."""
    folder = tmp_path_factory.mktemp("layout")
    headers = ["tessera/protocol/channel.h", "tessera/access/summary.h"]
    includes = [flag for h in headers for flag in ("-I", str(header_path(h).parents[2]))]
    wanted = [f"sizeof({name})" for name in STRUCTS]
    wanted += [f"offsetof({name}, {m})" for name in STRUCTS for m in protocol.members(name)]
    wanted += ["TS_MAX_MESSAGE", "TS_KERNEL_HOME_ONLY", "TS_OBSERVED", "TS_STAY_WORKER"]
    lines = [f'printf("%s=%llu\\n", "{w}", (unsigned long long){w});' for w in wanted]
    body = "\n".join([*[f'#include "{h}"' for h in headers], "#include <stdio.h>"])
    (folder / "layout.c").write_text(f"{body}\nint main(void) {{\n{chr(10).join(lines)}\n}}\n")
    program = folder / "layout"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *includes, "-o", program, folder / "layout.c"], check=True)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {key: int(value) for key, value in (line.split("=") for line in out.splitlines())}


@pytest.mark.parametrize("name", STRUCTS)
def test_cffi_and_the_compiler_agree(name: str, compiled: dict[str, int]) -> None:
    assert protocol.sizeof(name) == compiled[f"sizeof({name})"]
    for member in protocol.members(name):
        assert protocol.offsetof(name, member) == compiled[f"offsetof({name}, {member})"]


def test_constants_agree(compiled: dict[str, int]) -> None:
    assert compiled["TS_MAX_MESSAGE"] == protocol.MAX_MESSAGE
    assert compiled["TS_KERNEL_HOME_ONLY"] == protocol.HOME_ONLY
    assert compiled["TS_OBSERVED"] == MessageType.OBSERVED
    assert compiled["TS_STAY_WORKER"] in protocol.STAY_REASONS


def test_every_reason_and_property_has_words() -> None:
    assert sorted(protocol.STAY_REASONS) == list(range(protocol.constant("TS_STAY_REASONS")))
    held = [bit for bit in range(16) if protocol.HOME_ONLY >> bit & 1]
    assert all(len(protocol.property_words(1 << bit)) == 1 for bit in held)
    assert protocol.property_words(3) == ["unknown accesses", "prints"]


text = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
word = st.integers(0, (1 << 64) - 1)
device = st.builds(
    protocol.Device,
    uuid=st.binary(min_size=16, max_size=16).map(bytes.hex),
    compute_capability=st.integers(0, 999),
    memory_bytes=word,
    name=st.text(alphabet="abc XYZ09", max_size=20),
)
worker = st.builds(
    protocol.WorkerInfo, st.integers(1, 15), st.booleans(), device, st.text("/abc.1", max_size=90)
)


@given(st.integers(1, 1 << 30), st.lists(device, max_size=16), st.text("ab c", max_size=200), word)
def test_hello_comes_back(pid: int, devices: list[Any], program: str, request_: int) -> None:
    hello = protocol.Hello(pid, tuple(devices), program, "0.1.0")
    data = hello.pack(request_ % (1 << 32))
    assert protocol.Hello.unpack(data) == hello
    assert protocol.read_header(data).request == request_ % (1 << 32)


@given(st.lists(worker, max_size=15))
def test_welcome_and_workers_come_back(workers: list[protocol.WorkerInfo]) -> None:
    welcome = protocol.Welcome(0x200000000000, 1 << 40, 3, tuple(workers))
    assert protocol.Welcome.unpack(welcome.pack(1)) == welcome
    assert protocol.unpack_workers(protocol.pack_workers(workers)) == tuple(workers)


@given(
    st.binary(min_size=16, max_size=16).map(bytes.hex),
    word,
    st.booleans(),
    text.filter(bool),
    st.binary(max_size=40).filter(lambda raw: b"\0" not in raw),
)
def test_kernel_query_comes_back(
    image: str, size: int, has_image: bool, name: str, path: bytes
) -> None:
    query = protocol.KernelQuery(image, size, has_image, name, os.fsdecode(path))
    assert protocol.KernelQuery.unpack(query.pack(5)) == query


@given(st.sampled_from(protocol.KernelStatus), st.binary(max_size=99), text)
def test_kernel_info_comes_back(status: protocol.KernelStatus, summary: bytes, reason: str) -> None:
    info = protocol.KernelInfo(status, 7, summary, reason)
    assert protocol.KernelInfo.unpack(info.pack(5)) == info


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9), text)
def test_passed_classes_come_back(passed: list[int], reason: str) -> None:
    ready = protocol.KernelStatus.READY
    info = protocol.KernelInfo(ready, 7, b"blob", reason, tuple(passed))
    assert protocol.KernelInfo.unpack(info.pack(5)) == info


@given(
    st.binary(min_size=16, max_size=16).map(bytes.hex),
    text.filter(bool),
    st.integers(0, 2**64 - 1),
    st.sampled_from(protocol.Verdict),
    st.booleans(),
    text,
)
def test_a_trial_comes_back(
    image: str, name: str, number: int, verdict: protocol.Verdict, by_words: bool, reason: str
) -> None:
    shape = ((4, 2, 1), (128, 1, 1), 48)
    tried = protocol.Tried(image, name, number, verdict, by_words, *shape, reason)
    assert protocol.Tried.unpack(tried.pack(5)) == tried


def test_text_is_cut_between_characters() -> None:
    refused = protocol.unpack_refused(protocol.pack_refused("ü" * 1000))
    assert refused == "ü" * 255


@given(st.binary(max_size=400))
def test_garbage_is_an_error_and_no_crash(data: bytes) -> None:
    header = protocol.pack_plain(MessageType.HELLO, 1, data)
    with pytest.raises(ProtocolError):
        protocol.read_header(data)
    for unpack in (
        protocol.Hello.unpack,
        protocol.KernelQuery.unpack,
        protocol.WorkerLost.unpack,
        protocol.Tried.unpack,
        protocol.AllHome.unpack,
        protocol.read_summary_header,
        protocol.unpack_workers,
    ):
        try:
            unpack(header)
        except ProtocolError:
            continue


def changed(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


def test_headers_are_checked() -> None:
    data = protocol.pack_plain(MessageType.STATUS, 1, b"{}")
    with pytest.raises(VersionMismatchError, match=r"41 came in, this side speaks 1"):
        protocol.read_header(changed(data, 4, b"\x29\0"))
    with pytest.raises(ProtocolError, match="starts with"):
        protocol.read_header(changed(data, 0, b"GET "))
    with pytest.raises(ProtocolError, match="says that it has"):
        protocol.read_header(data + b"x")
    with pytest.raises(ProtocolError, match="shorter"):
        protocol.read_header(data[:7])


def test_lying_counts_are_refused() -> None:
    hello = protocol.Hello(1, (), "p", "b").pack(1)
    at = protocol.offsetof("ts_hello", "n_devices")
    with pytest.raises(ProtocolError, match="17 devices"):
        protocol.Hello.unpack(changed(hello, at, b"\x11\0\0\0"))
    query = protocol.KernelQuery("0" * 32, 1, False, "kernel").pack(1)
    at = protocol.offsetof("ts_kernel_query", "name_size")
    for lie in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x05\0\0\0"):
        with pytest.raises(ProtocolError):
            protocol.KernelQuery.unpack(changed(query, at, lie))


def test_a_placement_table_as_a_program_sees_it() -> None:
    table = PlacementTable()
    try:
        seen = SharedTable(table.fd, "ts_placement_table", "TS_PLACEMENT_MAGIC")
        assert seen.get("capacity") == protocol.MAX_KERNELS
        table.write({3: 1, 65535: 2})
        assert (seen.get("generation"), seen.record["device"][0][[2, 3, 65535]].tolist()) == (
            1,
            [0, 1, 2],
        )
        table.write({3: 1})
        assert seen.get("generation") == 1  # nothing changed
        table.write({3: 0, 4: 0})
        assert (seen.get("generation"), table.device(3)) == (2, 0)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(table.fd, 0)
    finally:
        table.close()


def test_choices_as_a_program_sees_them() -> None:
    table = PlacementTable()
    try:
        seen = SharedTable(table.fd, "ts_placement_table", "TS_PLACEMENT_MAGIC")
        large = Choice(1, ((Quantity.BLOCKS, 64, (1 << 64) - 1), (Quantity.THREADS, 0, 256)))
        assert table.write({7: 2, 3: 0}, {7: (large,), 3: (large, Choice(2, ()))}) == ()
        assert seen.record["device"][0][[3, 7]].tolist() == [PLACED_BY_CLASS, 2 | PLACED_BY_CLASS]
        assert (table.device(3), table.device(7)) == (0, 2)
        used = seen.record["choices"][0][: seen.get("n_choices")]
        assert used["kernel_id"].tolist() == [3, 3, 7]
        assert used["device"].tolist() == [1, 2, 1]
        assert used["n_terms"].tolist() == [2, 0, 2]
        assert used["terms"][2][1].tolist() == (Quantity.THREADS, 0, 0, 256)
        table.write({3: 1})  # where none fits; the choices stay
        assert seen.record["device"][0][3] == 1 | PLACED_BY_CLASS
        table.write({}, {3: (large,)})
        assert seen.record["device"][0][[3, 7]].tolist() == [1 | PLACED_BY_CLASS, 2]
        assert (seen.get("generation"), seen.get("sequence")) == (3, 6)
        many = dict.fromkeys(range(3), (large,) * (MAX_CHOICES // 2))
        assert table.write({}, many) == (2,)
        assert seen.record["device"][0][:4].tolist() == [PLACED_BY_CLASS, PLACED_BY_CLASS, 0, 1]
    finally:
        table.close()


def test_a_launch_class_comes_back() -> None:
    told = LaunchClass(17, 3, ((Quantity.GRID_X, 64), (ARGUMENT + 2, (1 << 64) - 1)))
    assert LaunchClass.unpack(told.pack()) == told
    for wrong in (
        LaunchClass(4096, 3, ()),
        LaunchClass(17, 3, ((13, 0),)),
        LaunchClass(17, 3, ((64, 0),)),
    ):
        with pytest.raises(ProtocolError):
            LaunchClass.unpack(wrong.pack())
    with pytest.raises(ProtocolError):
        LaunchClass.unpack(told.pack()[:-1])
    at = protocol.offsetof("ts_class", "n_values")
    with pytest.raises(ProtocolError):
        LaunchClass.unpack(changed(told.pack(), at, b"\x0d\0\0\0"))


def test_tables_that_could_hurt_their_reader_are_refused(tmp_path: Path) -> None:
    size = protocol.sizeof("ts_counters_table")
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, size)
    short = PlacementTable()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    pipe = os.pipe()
    cases = [
        (unsealed, "not sealed"),
        (short.fd, f"{protocol.sizeof('ts_placement_table')} bytes"),
        (file, "no shared memory"),
        (pipe[0], "no shared memory"),
    ]
    for fd, message in cases:
        with pytest.raises(ProtocolError, match=message):
            SharedTable(fd, "ts_counters_table", "TS_COUNTERS_MAGIC")
    with pytest.raises(ProtocolError, match="magic"):
        SharedTable(short.fd, "ts_placement_table", "TS_COUNTERS_MAGIC")
    short.close()
    for fd in (unsealed, file, *pipe):
        os.close(fd)


def test_settings_are_those_of_the_one_list() -> None:
    names = [setting.environment for setting in definitions()]
    assert "TESSERA_RUNTIME_DIR" in names
    assert len(names) == len(set(names)) >= 10
    with pytest.raises(ValueError, match=r"settings\.def:1: not a setting"):
        parse_definitions('TESSERA_SETTING(a, "A", number, "", "help")')


def test_settings_have_defaults_and_an_environment() -> None:
    settings = Settings.from_environment({"TESSERA_TIMEOUT_MS": "7", "HOME": "/h"})
    assert settings.integer("timeout_ms") == 7
    assert settings.integer("analysis_wait_ms") == 2000
    assert not settings.flag("disable")
    assert settings.store_path() == Path("/h/.local/share/tessera/store.db")
    assert settings.runtime_folder() == Path(f"/tmp/tessera-{os.getuid()}")
    other = Settings.from_environment(
        {"TESSERA_DISABLE": "1", "XDG_RUNTIME_DIR": "/r", "XDG_DATA_HOME": "/d", "TESSERA_LOG": ""}
    )
    assert other.flag("disable")
    assert other.text("log") == "warn"
    assert other.runtime_folder() == Path("/r/tessera")
    assert other.store_path() == Path("/d/tessera/store.db")
    bad = Settings.from_environment({"TESSERA_TIMEOUT_MS": "soon"})
    with pytest.raises(SettingsError, match="TESSERA_TIMEOUT_MS is 'soon'"):
        bad.integer("timeout_ms")


def test_counters_hold_what_a_program_writes() -> None:
    record = np.zeros(1, protocol.dtype("ts_counters_table"))[0]
    record["kernels"][4095]["launches"][15] = (1 << 64) - 1
    assert int(record["kernels"][4095]["launches"][15]) == (1 << 64) - 1
