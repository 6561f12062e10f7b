# SPDX-License-Identifier: Apache-2.0
"""PyTorch's calls of cuBLAS and cuBLASLt, made by a worker on a like GPU: the same bits.

As in test_frameworks.py, the worker is on the same GPU, under MPS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = Path(__file__).with_name("programs") / "library_calls.py"
CONTROL = [sys.executable, "-m", "tessera.cli.main"]
TIMEOUT = 280


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Of programs under a controller with one worker on the first GPU."""
    pytest.importorskip("torch")
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        alone = os.environ | {"TESSERA_RUNTIME_DIR": folder, "TESSERA_STORE": f"{folder}/store.db"}
        subprocess.run([*CONTROL, "up", "--device", "0"], env=alone, check=True, timeout=60)
        try:
            yield alone
        finally:
            subprocess.run([*CONTROL, "down"], env=alone, check=True, timeout=60)


@pytest.fixture(scope="module")
def expected(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What two runs without Tessera agree upon."""
    outs = [tmp_path_factory.mktemp("alone") / f"{i}" for i in range(2)]
    for out in outs:
        subprocess.run([sys.executable, str(PROGRAM), str(out)], check=True, timeout=TIMEOUT)
    assert outs[0].read_text() == outs[1].read_text(), "the library itself is not deterministic"
    return outs[0].read_text()


@pytest.mark.parametrize("policy", ["off", "same"])
@pytest.mark.parametrize("seed", ["0", "17", "18", "19"])
def test_same_bits(
    environment: dict[str, str], expected: str, tmp_path: Path, policy: str, seed: str
) -> None:
    """Seed 0: everything at home."""
    out, report = tmp_path / "out", tmp_path / "report.json"
    done = subprocess.run(
        [
            *CONTROL,
            "run",
            "-q",
            "--report",
            str(report),
            "--",
            sys.executable,
            str(PROGRAM),
            str(out),
        ],
        env=environment | {"TESSERA_LIBRARY_CALLS": policy, "TESSERA_SCATTER": seed},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    differing = set(out.read_text().splitlines()) ^ set(expected.splitlines())
    assert not differing, sorted(differing)
    listed = subprocess.run(
        [*CONTROL, "kernels"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    figures = json.loads(report.read_text())
    print(policy, seed, figures["launches"], figures["stayed"], done.stderr)
    if policy == "same":
        assert "cublas" in listed.stdout
    if policy == "same" and seed != "0":
        assert sum(figures["launches"]["workers"].values()) > 0, figures["stayed"]
        assert "cannot make them" not in done.stderr
