# SPDX-License-Identifier: Apache-2.0
"""Time eager PyTorch inference alone and at home under Tessera, in alternating runs.

    python tools/bench/bench_decode.py [--rounds 20]

A 12-layer Llama-like model with random weights: one token a step (bound by the host's launches)
and a prefill of 4 x 512 tokens (bound by the GPU). Needs an NVIDIA GPU, torch and transformers.
Each run is a process of its own, alone and under Tessera in turn; a run's figure is the least and
the median of its steps. Printed: least and median over all runs, the spread of the runs' medians,
and the difference, to be compared with the spread before it is believed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "control"))
PHASES = ("decode", "prefill")


def child(steps: int) -> None:
    """One run: prints {phase: [ms of each step]}."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8000,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, 8000, (1, 64), device="cuda")
    many = torch.randint(0, 8000, (4, 512), device="cuda")
    times: dict[str, list[float]] = {phase: [] for phase in PHASES}

    def timed(phase: str, tokens: Any, cache: Any) -> Any:
        torch.cuda.synchronize()
        began = time.perf_counter()
        out = model(tokens, past_key_values=cache, use_cache=True)
        torch.cuda.synchronize()
        times[phase].append((time.perf_counter() - began) * 1e3)
        return out

    with torch.no_grad():
        for _ in range(5):
            model(many, use_cache=True)
        cache = model(prompt, use_cache=True).past_key_values
        for step in range(steps):
            out = timed("decode", prompt[:, step % 64 : step % 64 + 1], cache)
            cache = out.past_key_values
        for _ in range(max(steps // 4, 1)):
            timed("prefill", many, None)
    print(json.dumps({phase: values[len(values) // 10 :] for phase, values in times.items()}))


def measure(environment: dict[str, str], steps: int) -> dict[str, list[float]]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(steps)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"the program failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def await_analyses(folder: Path) -> None:
    """What is analysed in the background would take the processors from the runs."""
    from tessera.service.client import Client

    with Client(folder) as client:
        while True:
            analysis = client.request("status")["controller"]["analysis"]
            if not analysis["queued"] and not analysis["running"]:
                return
            time.sleep(0.5)


def show(phase: str, mode: str, runs: list[dict[str, list[float]]]) -> tuple[float, float]:
    least = min(min(run[phase]) for run in runs)
    medians = [statistics.median(run[phase]) for run in runs]
    middle = statistics.median(medians)
    print(
        f"{phase:8} {mode:8} least {least:8.3f} ms   median {middle:8.3f} ms"
        f"   (medians {min(medians):.3f} to {max(medians):.3f})"
    )
    return least, middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--native", type=Path, default=os.environ.get("TESSERA_NATIVE_DIR"))
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    from tessera.service import daemon
    from tessera.service.client import Client

    native = options.native or ROOT / "build/native/native_out"
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        alone = os.environ | {
            "TESSERA_NATIVE_DIR": str(native),
            "TESSERA_RUNTIME_DIR": folder,
            "TESSERA_STORE": f"{folder}/store.db",
        }
        os.environ.update(alone)
        daemon.start(Path(folder), None)
        preloaded = alone | {"LD_PRELOAD": str(Path(native) / "libtessera.so")}
        runs: dict[str, list[dict[str, list[float]]]] = {"alone": [], "tessera": []}
        measure(preloaded, 4)  # the first of all analyses what it loads, and fills the file cache
        for _ in range(options.rounds):
            await_analyses(Path(folder))
            for mode, environment in (("alone", alone), ("tessera", preloaded)):
                runs[mode].append(measure(environment, options.steps))
                middle = {name: statistics.median(ms) for name, ms in runs[mode][-1].items()}
                print(mode, *(f"{name} {ms:.3f} ms" for name, ms in middle.items()), flush=True)
        with Client(Path(folder)) as client:
            client.request("shutdown", force=True)
    for phase in PHASES:
        before, after = (show(phase, mode, runs[mode]) for mode in runs)
        least, middle = (100 * (b / a - 1) for a, b in zip(before, after, strict=True))
        print(f"{phase:8} added    least {least:+8.2f} %    median {middle:+8.2f} %")


if __name__ == "__main__":
    main()
