# SPDX-License-Identifier: Apache-2.0
"""up and down, and what happens beside another controller."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.command import Cli
from fake_program import FakeMachine


def test_up_status_down(cli: Cli) -> None:
    out = cli("up").ok()
    assert re.search(r"device 1 +NVIDIA L40S +worker 1, up", out)
    assert "device 0  NVIDIA A100  home" in out
    again = cli("up").ok()
    assert "was running already" in again
    assert cli("up", "-d", "1").code == 0  # the same devices, said otherwise
    other = cli("up", "--device", "0")
    assert other.code == 1
    assert "it has workers on device 1; asked for are device 0" in other.err
    assert "tessera-ctl down ends it" in other.err
    status = cli("status").ok()
    assert "No program is using the controller." in status
    assert json.loads(cli("status", "--json").ok())["workers"][0]["state"] == "up"
    assert "has stopped" in cli("down").ok()
    gone = cli("down")
    assert (gone.code, gone.out) == (3, "")
    assert gone.err.startswith("tessera-ctl: no controller runs in ")


def test_up_beside_a_controller_that_is_not_the_one_asked_for(running: Cli, tmp_path: Path) -> None:
    """What differs is said, nothing is changed, and the exit status tells."""
    one_gpu = str(FakeMachine(tmp_path, 1).environment["TESSERA_DRIVER"])
    driver = running("up", TESSERA_DRIVER=one_gpu)
    assert (driver.code, driver.out) == (1, "")
    assert "not as asked" in driver.err
    assert (
        "its GPUs are 0 NVIDIA A100, 1 NVIDIA L40S; those of this shell are 0 NVIDIA A100\n"
        in driver.err
    )
    assert re.search(rf"TESSERA_DRIVER is '\S+' there, '{one_gpu}' here", driver.err)
    missing = running("up", TESSERA_DRIVER="/nowhere/libcuda.so.1")
    assert missing.code == 1
    assert "those of this shell are not known (no driver: " in missing.err
    store = running("up", TESSERA_STORE=str(tmp_path / "other.db"))
    assert store.code == 1
    assert f"its store is {running.machine.store}, here it is {tmp_path}/other.db" in store.err
    setting = running("up", TESSERA_WORKER_MEMORY_MIB="64")
    assert setting.code == 1
    assert "TESSERA_WORKER_MEMORY_MIB is not set there, '64' here" in setting.err
    none = running("up", "--no-workers")
    assert none.code == 1
    assert "it has workers on device 1; asked for are no device" in none.err
    # The same driver by another name is the same.
    copy = tmp_path / "link.so"
    copy.symlink_to(running.environment["TESSERA_DRIVER"])
    assert "was running already" in running("up", LD_LIBRARY_PATH=str(tmp_path)).ok()
    note = running("run", "-q", "--", "/bin/true", TESSERA_DRIVER=one_gpu)
    assert note.code == 0
    assert "the controller was started otherwise: its GPUs are" in note.err


def test_up_alone_asks_for_all_devices(cli: Cli) -> None:
    cli("up", "--no-workers").ok()
    result = cli("up")
    assert result.code == 1
    assert "it has workers on no device; asked for are device 1, all but the first" in result.err
    assert cli("run", "-q", "--", "/bin/true").code == 0  # takes the controller that there is


@pytest.mark.parametrize(
    "words", [("status",), ("status", "--json"), ("status", "--watch"), ("down",)]
)
def test_without_a_controller_the_exit_status_is_3(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (3, "")
    assert 1 <= len(result.err.splitlines()) <= 2


def test_up_on_one_gpu_says_how_to_try_a_worker(machine: FakeMachine) -> None:
    machine.environment["TESSERA_DRIVER"] = str(
        FakeMachine(machine.folder.parent, 1).environment["TESSERA_DRIVER"]
    )
    cli = Cli(machine)
    try:
        out = cli("up").ok()
        assert "tessera-ctl up --device 0" in out
        assert "nvidia-cuda-mps-control -d" in out
        cli("down").ok()
        assert "home; worker 1, up" in cli("up", "--device", "0").ok()
    finally:
        cli("down", "--force")


def test_up_with_a_device_that_is_not_there(cli: Cli) -> None:
    result = cli("up", "-d", "7")
    assert result.code == 1
    assert "there is no device 7: the driver shows 2, numbered from 0" in result.err


def test_up_with_workers_that_fail(cli: Cli) -> None:
    result = cli("up", FAKE_WORKER="dies")
    assert result.code == 1
    assert "worker 1 is failed: it does not start: it ended with 1: no device" in result.err


def test_up_in_the_foreground_logs_to_stderr_and_ends_with_ctrl_c(cli: Cli) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "up", "--foreground"],
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "worker 1: NVIDIA L40S" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert "controller stopped" in process.stderr.read()
    process.stderr.close()


def test_two_ups_at_once_start_one_controller(cli: Cli) -> None:
    command = [sys.executable, "-m", "tessera.cli.main", "up"]
    both = [
        subprocess.Popen(command, env=cli.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0, 0]
    pids = {re.search(r"process (\d+)", output)[1] for output in outputs}  # type: ignore[index]
    assert len(pids) == 1


def test_a_full_disk_is_named(cli: Cli, tmp_path: Path) -> None:
    """A limit on the size of files stands in for it: no file grows beyond nothing."""
    limited = f"ulimit -f 0; exec {sys.executable} -m tessera.cli.main up"
    result = subprocess.run(
        ["sh", "-c", f"trap '' XFSZ; {limited}"], env=cli.environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "controller.lock cannot be written (File too large)" in result.stderr
    assert "TESSERA_RUNTIME_DIR" in result.stderr
    cli("up").ok()


def test_down_waits_for_programs_unless_forced(running: Cli) -> None:
    script = running.program("0")
    script[2] = script[2].replace("sys.exit(", "time.sleep(60)\nsys.exit(")
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--", *script],
        env=running.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "output of the program\n"
    refused = running("down")
    assert refused.code == 1
    assert "nothing was stopped: 1 program on this controller" in refused.err
    pid, named = re.search(r"^  process (\d+): (.*)$", refused.err, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert named == "python train.py"
    assert "tessera-ctl down --wait" in refused.err
    assert running("down", "--wait", "--force").code == 2
    waiting = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "down", "--wait"],
        env=running.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "waiting for:\n"
    assert waiting.stderr.readline() == f"  process {pid}: python train.py\n"
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) == 130
    assert "the controller goes on" in waiting.communicate()[1]
    last = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "down", "--wait"],
        env=running.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(0.5)
    assert last.poll() is None
    os.kill(int(pid), signal.SIGTERM)
    assert "has stopped" in last.communicate(timeout=30)[0]
    assert last.returncode == 0
    process.wait(20)
    process.stdout.close()
