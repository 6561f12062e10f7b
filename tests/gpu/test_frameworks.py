# SPDX-License-Identifier: Apache-2.0
"""Frameworks on a real GPU under Tessera give what they give alone, to the bit.

Two ways: everything at home, and every kernel that may move thrown at random
between home and a worker on the same GPU. The worker needs MPS: without it two
processes take turns on the device, which is slow but right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAMS = Path(__file__).with_name("programs")
NAMES = [
    "llama", "mixture", "state_space", "vision_language", "diffusion", "compiled", "resnet",
    "train", "graph", "triton_torch", "nvrtc_ptx", "jax_jit", "cupy_arrays",
]  # fmt: skip
MODULES = {
    "jax_jit": "jax",
    "cupy_arrays": "cupy",
    "resnet": "torchvision",
    **dict.fromkeys(["llama", "mixture", "state_space", "vision_language"], "transformers"),
}
TIMEOUT = 280
# Programs with kernels that Tessera has PTX of: some of their launches have to run on the worker.
MOVE = {"compiled", "triton_torch", "nvrtc_ptx"}


def run(name: str, out: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), str(out)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return out.read_text()


@pytest.fixture(scope="module")
def natively(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {}


def expected(name: str, natively: dict[str, str], folder: Path) -> str:
    if module := MODULES.get(name, "torch"):
        pytest.importorskip(module)
    if name not in natively:
        natively[name] = run(name, folder / "alone", dict(os.environ))
    return natively[name]


@pytest.mark.parametrize("name", NAMES)
def test_at_home(
    name: str, environment: dict[str, str], natively: dict[str, str], tmp_path: Path
) -> None:
    alone = expected(name, natively, tmp_path)
    assert run(name, tmp_path / "home", environment) == alone


@pytest.mark.parametrize("name", NAMES)
def test_scattered(
    name: str, environment: dict[str, str], natively: dict[str, str], tmp_path: Path
) -> None:
    alone = expected(name, natively, tmp_path)
    report, out = tmp_path / "report.json", tmp_path / "moved"
    control = [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--report", str(report), "--"]
    done = subprocess.run(
        [*control, sys.executable, str(PROGRAMS / f"{name}.py"), str(out)],
        env=environment | {"LD_PRELOAD": "", "TESSERA_SCATTER": "17"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    figures = json.loads(report.read_text())
    print(name, figures["launches"], figures["stayed"], figures["bytes_to_workers"])
    assert out.read_text() == alone
    assert figures["launches"]["home"] + figures["graph_launches"] > 0
    if name in MOVE:
        assert sum(figures["launches"]["workers"].values()) > 0, figures["stayed"]
