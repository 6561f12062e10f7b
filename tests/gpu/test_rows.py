# SPDX-License-Identifier: Apache-2.0
"""Rows of docs/cases.md that need the runtime library: small PyTorch programs, and nvcc's.

The same lines under Tessera as alone, at home and with launches thrown on home or a worker.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TIMEOUT = 120
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
GROWING = """
import torch
kept, x = [], torch.arange(1 << 20, device="cuda")
for turn in range(24):
    x = x * 3 + turn
    kept.append(x.clone())
    if turn % 3 == 2:
        del kept[0]
        torch.cuda.empty_cache()
print([int(t.sum()) for t in kept])
"""
THREADS = """
import torch
from concurrent.futures import ThreadPoolExecutor
def load(seed):
    part = torch.arange(1 << 18, device="cuda", dtype=torch.int64) * seed
    return int((part % 1009).sum())
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(load, range(1, 17))))
"""
CUMSUM = """
import torch
for shape in ((1, 6), (4, 1000), (1, 100_000)):
    x = torch.ones(shape, device="cuda").cumsum(-1) - 1
    print(shape, int(x[0, -1]), int(x.sum(dtype=torch.float64)))
"""
CAPTURE = """
import torch
x = torch.ones(256, 256, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = x @ x + 1
torch.cuda.current_stream().wait_stream(side)
for mode in ("global", "thread_local", "relaxed"):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        z = (x @ x + 1).cumsum(0)
    for value in range(3):
        x.fill_(value)
        graph.replay()
        print(mode, float(z[-1, 0]))
"""
PINNED = """
import torch
host = torch.zeros(1 << 16, dtype=torch.int32).pin_memory()
device = torch.empty(1 << 16, dtype=torch.int32, device="cuda")
done = torch.cuda.Event()
for value in range(8):
    device.fill_(value)
    device += 1
    host.copy_(device, non_blocking=True)
    done.record()
    device.fill_(-1)
    done.synchronize()
    print(int(host[0]), int(host[-1]))
"""
PROGRAMS = {
    "2.1": (THREADS, {ALLOCATOR: "expandable_segments:True"}),
    "2.3": (GROWING, {ALLOCATOR: "backend:cudaMallocAsync"}),
    "2.8": (GROWING, {ALLOCATOR: "expandable_segments:True"}),
    "2.13": (PINNED, {}),
    "3.8": (CAPTURE, {}),
    "3.9": (CUMSUM, {}),
}
WITH_RUNTIME = """
#include <cstdio>
__global__ void add(float* x, float value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += value;
}
int main() {
  constexpr int kCount = 4096, kLaunches = 12;
  float* x = nullptr;
  float host[kCount];
  if (cudaMalloc(&x, sizeof host) != cudaSuccess) return 1;
  if (cudaMemset(x, 0, sizeof host) != cudaSuccess) return 1;
  for (int i = 1; i <= kLaunches; ++i) add<<<kCount / 256, 256>>>(x, static_cast<float>(i), kCount);
  if (cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess) return 2;
  std::printf("%g %g\\n", host[0], host[kCount - 1]);
}
"""


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("row", PROGRAMS)
def test_same_with_pytorch(row: str, environment: dict[str, str]) -> None:
    pytest.importorskip("torch")
    program, settings = PROGRAMS[row]
    command = [sys.executable, "-c", program]
    alone = run(command, environment | settings | {"LD_PRELOAD": ""})
    assert run(command, environment | settings) == alone
    assert run(command, environment | settings | {"TESSERA_SCATTER": "7"}) == alone


@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_launches_of_either_runtime_library_are_seen(
    runtime: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Kind 1.11: nvcc links the runtime library in, and no CUDA library is NEEDED."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    source, program, report = (tmp_path / name for name in ("add.cu", "add", "report.json"))
    source.write_text(WITH_RUNTIME)
    command = ["nvcc", "-cudart", runtime, "-arch=native", str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=TIMEOUT)
    control = [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--report", str(report)]
    plain = environment | {"LD_PRELOAD": ""}
    found = shared_runtime() if runtime == "shared" else ""
    plain["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), found]))
    assert run([str(program)], plain) == "78 78\n"
    assert run([*control, "--", str(program)], plain | {"TESSERA_SCATTER": "7"}) == "78 78\n"
    launches = json.loads(report.read_text())["launches"]
    assert launches["home"] + sum(launches["workers"].values()) == 12


def shared_runtime() -> str:
    """The folder of the toolkit's runtime library."""
    toolkit = Path(shutil.which("nvcc") or "").resolve().parents[1]
    folders = (toolkit / "lib64", toolkit / "lib", Path("/usr/local/cuda/lib64"))
    return next((str(folder) for folder in folders if any(folder.glob("libcudart.so*"))), "")
