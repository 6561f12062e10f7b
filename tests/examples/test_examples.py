# SPDX-License-Identifier: Apache-2.0
"""Each example runs, unmodified, on simulated GPUs and is content with its result.

The examples compare with NumPy themselves and exit with an error when they differ.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_example(*arguments: str, devices: str = "A100,L40S") -> str:
    """What an example prints; fails the test with all of its output when it exits with an error."""
    command = [str(ROOT / "tools" / "with-simulated-gpus"), "--devices", devices, "--"]
    result = subprocess.run(
        [sys.executable, *command, sys.executable, *arguments],
        cwd=ROOT / "examples",
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("size", "steps"), [(33, 7), (128, 60)], ids=["one odd size", "the default"]
)
def test_heat_equation(size: int, steps: int) -> None:
    """cuda.core and NVRTC: bit for bit what NumPy computes."""
    printed = run_example("heat_core.py", "--size", str(size), "--steps", str(steps))
    assert "equal to NumPy bit for bit" in printed


@pytest.mark.parametrize("bodies", [100, 256])
def test_n_body(bodies: int) -> None:
    """numba-cuda, with a last tile that is full or not."""
    assert "agrees with NumPy" in run_example("nbody_numba.py", "--bodies", str(bodies))


@pytest.mark.parametrize("tokens", [40, 96])
def test_transformer_block(tokens: int) -> None:
    """Triton with tensor-core instructions; rows that fill their blocks or do not."""
    printed = run_example("transformer_block.py", "--tokens", str(tokens))
    assert "agree with NumPy" in printed


def test_embedding_is_right_and_the_same_each_time(tmp_path: Path) -> None:
    """The pretrained model: right, deterministic to the byte, and sensible."""
    first, second = tmp_path / "first.npy", tmp_path / "second.npy"
    printed = run_example("embed.py", "--out", str(first), "--repeat", "2")
    run_example("embed.py", "--out", str(second), "--no-check")
    assert "agrees with NumPy" in printed
    assert first.read_bytes() == second.read_bytes()
    assert "'A man is eating food.' ~ 'Someone is having a meal.'" in printed


def test_embedding_notices_a_wrong_result(tmp_path: Path) -> None:
    """The check in the example can fail: one changed weight makes it do so."""
    program = tmp_path / "broken.py"
    program.write_text(
        "import sys, runpy\n"
        f"sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        "from support import minilm_numpy\n"
        "right = minilm_numpy.gelu\n"
        "minilm_numpy.gelu = lambda x: right(x) * 1.2\n"
        f"sys.argv[0] = {str(ROOT / 'examples' / 'embed.py')!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    with pytest.raises(AssertionError, match="WRONG"):
        run_example(str(program), "a cat", "a dog")
