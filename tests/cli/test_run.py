# SPDX-License-Identifier: Apache-2.0
"""run and env."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.command import Cli


def test_run_reports_on_stderr_and_passes_on_the_exit_status(running: Cli) -> None:
    result = running("run", "--", *running.program("5"))
    assert result.code == 5
    assert result.out == "output of the program\n"
    assert re.search(r"launches +home 4, worker 1 30", result.err)
    assert re.search(r"moved +3 MiB to workers, 0 B back home", result.err)
    assert re.search(r"^softmax +home +4 .* there are no rules$", result.err, re.MULTILINE)
    assert "exit status 5" in result.err
    kernels = running("kernels").ok()
    assert re.search(r"0 +matmul +[0-9a-f]{8} .* home +there are no rules", kernels)


def test_run_writes_its_report_as_json(running: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = running("run", "--quiet", "--report", str(file), "--", *running.program("5"))
    assert (result.code, result.err) == (5, "")
    report = json.loads(file.read_text())
    assert report["exit_status"] == 5
    assert report["launches"] == {"home": 4, "workers": {"1": 30}}
    assert report["bytes_to_workers"] == 3 << 20
    assert {kernel["name"] for kernel in report["kernels"]} >= {"matmul", "softmax"}
    nowhere = running(
        "run", "--report", str(tmp_path / "no" / "where"), "--", *running.program("0")
    )
    assert nowhere.code != 0
    assert "the report cannot be written" in nowhere.err


def test_run_starts_a_controller_for_itself_and_stops_it(cli: Cli) -> None:
    result = cli("run", *cli.program("0"))
    assert (result.code, result.out) == (0, "output of the program\n")
    assert "launches" in result.err
    assert cli("status").code == 3
    quiet = cli("run", "--quiet", "--", *cli.program("0"))
    assert (quiet.code, quiet.err) == (0, "")


def test_run_of_a_program_without_cuda(running: Cli) -> None:
    result = running("run", "--", "/bin/true")
    assert result.code == 0
    assert "No process of it used CUDA" in result.err


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["/nowhere/program"], 127, "there is no such program"),
        (["/dev/null"], 126, "Permission denied"),
        (["sh", "-c", "kill -9 $$"], 137, "exit status 137"),
        (["sh", "-c", "exit 3"], 3, "exit status 3"),
    ],
)
def test_run_exit_statuses(running: Cli, command: list[str], code: int, message: str) -> None:
    result = running("run", "--", *command)
    assert result.code == code
    assert message in result.err


def test_run_passes_signals_on(running: Cli) -> None:
    script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "run", "--", "sh", "-c", script],
        env=running.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == "got it\n"
    assert process.wait(20) == 9
    process.stdout.close()


def test_env_prints_what_a_shell_can_evaluate(cli: Cli) -> None:
    out = cli("env", LD_PRELOAD="/usr/lib/other.so").ok()
    native = cli.environment["TESSERA_NATIVE_DIR"]
    assert f"export LD_PRELOAD={native}/libtessera.so:/usr/lib/other.so\n" in out
    shell = subprocess.run(
        ["sh", "-c", f"{out}\necho $TESSERA_RUNTIME_DIR"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == f"{cli.machine.folder}\n"
    (Path(native) / "libtessera.so").unlink()
    missing = cli("env")
    assert missing.code == 1
    assert "libtessera.so does not exist" in missing.err
