# SPDX-License-Identifier: Apache-2.0
"""The order of launches, from a program to the edges of a plan."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tessera.planning.recorded import Measured, scaled
from tessera.protocol import ProtocolError
from tessera.protocol.recording import RecordedLaunch, pack_recorded, unpack_recorded
from tessera.service.client import ClientError, request
from tessera.service.recordings import Recordings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import sim_env
from pipeline_agreement import THREADS

A, B, C = (0x1000, 0x1100), (0x2000, 0x2080), (0x3000, 0x3040)


def pipeline(rounds: int) -> list[RecordedLaunch]:
    """1 writes A, 2 reads it and writes B, 3 reads both."""
    return rounds * [
        RecordedLaunch(1, 0, (), (A,)),
        RecordedLaunch(2, 0, (A,), (B,)),
        RecordedLaunch(3, 0, (A, B), (C,)),
    ]


def test_recordings_come_as_they_were_sent() -> None:
    told = [*pipeline(2), RecordedLaunch(9, 7, (), (), unknown=True)]
    assert unpack_recorded(pack_recorded(told, last=True)) == (told, True)
    assert unpack_recorded(pack_recorded([], last=False)) == ([], False)


@pytest.mark.parametrize("cut", [1, 8, 30, 41])
def test_a_recording_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        unpack_recorded(pack_recorded(pipeline(1), last=True)[:-cut])


def test_a_recording_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(ProtocolError):
        unpack_recorded(pack_recorded(pipeline(1), last=True) + b"more")


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ProtocolError):
        unpack_recorded(pack_recorded([RecordedLaunch(1, 0, ((5, 5),), ())], last=True))


def test_edges_are_the_bytes_that_go_from_kernel_to_kernel() -> None:
    found = Recordings()
    found.begin(["one", "other"])
    found.take("one", pipeline(2)[:3], last=False)
    found.take("one", pipeline(2)[3:], last=True)
    summary = found.summary()
    assert summary["pending"] == 1
    assert summary["launches"] == {"1": 2, "2": 2, "3": 2}
    edges = {(e["source"], e["target"]): (e["bytes"], e["launches"]) for e in summary["edges"]}
    assert edges == {(1, 2): (2 * 0x100, 2), (1, 3): (2 * 0x100, 2), (2, 3): (2 * 0x80, 2)}
    found.gone("other")
    assert found.summary()["pending"] == 0
    found.begin([])
    assert found.summary()["edges"] == []


def test_edges_grow_with_the_launches_of_their_source() -> None:
    """A stretch of two launches stands for the twenty that there were."""
    kernels = [Measured(1, "first", "i", 20, {}, frozenset({0}))]
    edge = {"source": 1, "target": 2, "bytes": 512, "launches": 2}
    assert scaled([edge], {1: 2}, kernels) == [edge | {"bytes": 5120, "launches": 20}]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A controller on two simulated devices: its environment."""
    folder = Path(f"/tmp/tessera-rec-{os.getpid()}")
    try:
        changes = sim_env.changes(os.environ, "A100,L40S")
    except sim_env.NotBuiltError as error:
        pytest.skip(str(error))
    environment = {
        **os.environ, **changes,
        "PYTHONPATH": str(ROOT / "control"),
        "TESSERA_RUNTIME_DIR": str(folder),
        "TESSERA_STORE": str(tmp_path / "store.db"),
    }  # fmt: skip
    control(environment, "up")
    yield environment
    control(environment, "down", "--force")


def control(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tessera.cli.main", *arguments],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask_to_record(folder: Path, launches: int, seconds: float) -> None:
    """As soon as a program is there."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            request(folder, "record", launches=launches)
        except ClientError:
            assert time.monotonic() < deadline, "no program has come"
            time.sleep(0.02)
        else:
            return


@pytest.mark.slow
def test_a_program_tells_what_its_kernels_hand_to_each_other(system: dict[str, str]) -> None:
    """Two kernels in a row, in two streams: each launch of the second reads what one of the
    first wrote.
    """
    folder, size = Path(system["TESSERA_RUNTIME_DIR"]), 4 * THREADS
    program = [sys.executable, str(ROOT / "tools/pipeline_agreement.py"), "--program", "2"]
    command = [sys.executable, "-m", "tessera.cli.main", "run", "--", *program, "--rounds", "150"]
    with subprocess.Popen(
        command, env=system, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        ask_to_record(folder, 100, 60)
        output, _ = running.communicate(timeout=300)
        assert running.returncode == 0, output
    names = {one["id"]: one["name"] for one in request(folder, "kernels", all=False)["kernels"]}
    found = request(folder, "recording")
    launches = {names[int(kernel)]: count for kernel, count in found["launches"].items()}
    edges = {(names[one["source"]], names[one["target"]]): one for one in found["edges"]}
    assert found["pending"] == 0
    assert found["unknown"] == 0
    assert launches == {"arith": 50, "sweep": 50}
    assert set(edges) == {("arith", "sweep")}
    handed = edges["arith", "sweep"]
    assert handed["launches"] in {49, 50}
    assert handed["bytes"] == size * handed["launches"]
    plan = json.loads(control(system, "plan", "--json"))
    assert plan["transfers_known"]


@pytest.mark.slow
def test_there_is_nothing_to_record_without_a_program(system: dict[str, str]) -> None:
    folder = Path(system["TESSERA_RUNTIME_DIR"])
    with pytest.raises(ClientError, match="no program runs"):
        request(folder, "record", launches=10)
    with pytest.raises(ClientError, match="can be recorded"):
        request(folder, "record", launches=0)
