# SPDX-License-Identifier: Apache-2.0
"""Memory that a program maps itself: the same sums alone, at home and with launches that move."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TIMEOUT = 300
PROGRAM = Path(__file__).resolve().parent / "programs" / "vmm_blocks.py"


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("mebibytes", ["1024", "32768"])
def test_same_sums(environment: dict[str, str], tmp_path: Path, mebibytes: str) -> None:
    command = [sys.executable, str(PROGRAM), mebibytes]
    plain = environment | {"LD_PRELOAD": ""}
    alone = run(plain, *command)
    assert run(environment, *command) == alone
    for seed in ("3", "5"):
        report = tmp_path / f"report-{seed}.json"
        control = [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--report", str(report)]
        moved = run(plain | {"TESSERA_SCATTER": seed}, *control, "--", *command)
        assert moved == alone
        launches = json.loads(report.read_text())["launches"]
        assert sum(launches["workers"].values()) > 20, launches
