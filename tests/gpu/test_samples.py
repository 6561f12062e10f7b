# SPDX-License-Identifier: Apache-2.0
"""cuda-samples of NVIDIA do the same under Tessera as alone; CUDA_SAMPLES leads to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).with_name("samples.py")


@pytest.mark.timeout(620)
def test_samples(tmp_path: Path) -> None:
    for command in ("nvcc", "cmake"):
        if not shutil.which(command):
            pytest.skip(f"{command} is not installed")
    if not os.environ.get("CUDA_SAMPLES"):
        pytest.skip("CUDA_SAMPLES does not name a copy of NVIDIA's cuda-samples")
    out = Path(os.environ.get("OUT", tmp_path)) / "samples.md"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
