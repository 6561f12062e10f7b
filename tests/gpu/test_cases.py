# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/cases on a real GPU: the same output under Tessera as alone.

Launches that may move are thrown on home or a worker on the same GPU. Left out: cases
that fill the device's memory, and those whose kernels fail, which under MPS ends every
program on the GPU. A case that does not pass alone here (it needs a second GPU, say) is skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAMS = Path(__file__).resolve().parents[1] / "cases/programs"
FILES = ("memory", "launches", "order", "coherence", "processes", "batches", "graphs", "mapping")
LEFT_OUT = {"out_of_memory", "one_block_of_all", "out_of_memory_in_order", "leak"}
CASES = [
    (name, case)
    for name in FILES
    for case in re.findall(
        r"^def case_(\w+)\(", (PROGRAMS / f"{name}.py").read_text(), re.MULTILINE
    )
    if case not in LEFT_OUT
]
TIMEOUT = 90  # seconds; the programs end themselves after 60


def run(name: str, case: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), case]
    return subprocess.run(
        command, env=more, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}-{c}" for n, c in CASES])
def test_same_with_the_shim(name: str, case: str, environment: dict[str, str]) -> None:
    alone = run(name, case, environment | {"LD_PRELOAD": ""})
    if alone.returncode != 0:
        pytest.skip(f"alone: {(alone.stderr.strip() or '?').splitlines()[-1]}")
    under = run(name, case, environment | {"TESSERA_SCATTER": "5"})
    assert (under.returncode, under.stdout) == (0, alone.stdout), under.stderr
