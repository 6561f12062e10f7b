# SPDX-License-Identifier: Apache-2.0
"""Time eager PyTorch inference alone and at home under Tessera, turn by turn.

    python tools/bench/bench_decode.py [--pairs 6]

A 12-layer Llama-like model with random weights: one token a step (bound by the host's launches)
and a prefill of 4 x 512 tokens (bound by the GPU). Needs an NVIDIA GPU, torch and transformers.

A pair is two processes, one alone and one under Tessera, alive at the same time, whose launching
threads are pinned to the same processor. They take turns of a few steps, one of them waiting while
the other computes, so that whatever drifts on the machine meets both. The first steps of a turn
warm the GPU up and do not count. Each turn of one is compared with the turn of the other beside it.
Printed: of each pair the medians, and over all pairs the median of what Tessera adds, with its
quartiles and the interval that holds it with 95 % (bootstrap over the pairs of turns).
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
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "control"))
PHASES = ("decode", "prefill")
MODES = ("alone", "tessera")
UNCOUNTED = 2  # steps at the begin of a turn
RESAMPLES = 2000

Times = dict[str, list[float]]  # ms of each step, by phase


class Model:
    """The model and its two kinds of step, in the process that computes."""

    def __init__(self) -> None:
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
            self.model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
        self.prompt = torch.randint(0, 8000, (1, 64), device="cuda")
        self.many = torch.randint(0, 8000, (4, 512), device="cuda")
        self.synchronize = torch.cuda.synchronize

    def turn(self, steps: int) -> Times:
        """Decode from a fresh prompt, then prefill a quarter as often."""
        cache = self.model(self.prompt, use_cache=True).past_key_values
        times: Times = {phase: [] for phase in PHASES}
        for step in range(steps + UNCOUNTED):
            token = self.prompt[:, step % 64 : step % 64 + 1]
            times["decode"].append(self.timed(token, cache))
        for _ in range(steps // 4 + UNCOUNTED):
            times["prefill"].append(self.timed(self.many, None))
        return {phase: values[UNCOUNTED:] for phase, values in times.items()}

    def timed(self, tokens: Any, cache: Any) -> float:
        self.synchronize()
        began = time.perf_counter()
        self.model(tokens, past_key_values=cache, use_cache=True)
        self.synchronize()
        return (time.perf_counter() - began) * 1e3


def child(steps: int, processors: int) -> None:
    """Computes a turn for each line that comes in, and answers with its times."""
    import torch

    with torch.no_grad():
        model = Model()
        pin(processors)
        model.turn(UNCOUNTED)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(model.turn(steps)), flush=True)


class Player:
    """One of the two processes of a pair."""

    def __init__(self, environment: dict[str, str], steps: int, processors: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", str(steps), "--processors", str(processors)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            sys.exit(f"the program failed with exit status {self.process.wait()}")
        return line

    def turn(self) -> Times:
        assert self.process.stdin is not None
        self.process.stdin.write("turn\n")
        self.process.stdin.flush()
        times: Times = json.loads(self.answer())
        return times

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


Turns = list[dict[str, Times]]  # what both measured in turns side by side, by mode


def play(environments: dict[str, dict[str, str]], turns: int, options: Any) -> Turns:
    """One pair."""
    players = {
        mode: Player(environments[mode], options.steps, options.processors) for mode in MODES
    }
    for player in players.values():
        player.answer()
    times: Turns = []
    for turn in range(turns):
        order = MODES if turn % 2 == 0 else MODES[::-1]
        times.append({mode: players[mode].turn() for mode in order})
    for player in players.values():
        player.end()
    return times


def await_analyses(folder: Path) -> None:
    """What is analysed in the background would take the processors from the runs."""
    from tessera.service.client import Client

    with Client(folder) as client:
        while True:
            analysis = client.request("status")["status"]["controller"]["analysis"]
            if not analysis["queued"] and not analysis["running"]:
                return
            time.sleep(0.5)


def added(turns: Turns, phase: str) -> list[float]:
    """Percent that Tessera adds to the median step, turn by turn."""
    medians = [[statistics.median(turn[mode][phase]) for mode in MODES] for turn in turns]
    return [100 * (tessera / alone - 1) for alone, tessera in medians]


def show_pair(number: int, turns: Turns) -> None:
    words = []
    for phase in PHASES:
        alone, tessera = (
            statistics.median(ms for turn in turns for ms in turn[mode][phase]) for mode in MODES
        )
        middle = statistics.median(added(turns, phase))
        words.append(f"{phase} {alone:.3f} and {tessera:.3f} ms ({middle:+.2f} %)")
    print(f"pair {number}: alone and under Tessera: {', '.join(words)}", flush=True)


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, with 95 %."""
    random = Random(7)
    medians = sorted(
        statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def show_all(turns: Turns) -> None:
    for phase in PHASES:
        values = added(turns, phase)
        first, middle, third = statistics.quantiles(values, n=4)
        low, high = interval(values)
        least = [min(min(turn[mode][phase]) for turn in turns) for mode in MODES]
        print(
            f"{phase:8} added: {middle:+.2f} % (95 %: {low:+.2f} to {high:+.2f}; quartiles"
            f" {first:+.2f} and {third:+.2f}; {len(turns)} pairs of turns); least step"
            f" {least[0]:.3f} alone, {least[1]:.3f} ms under Tessera"
        )


def pin(processors: int) -> None:
    """Keeps this thread, and those it starts from now on, on as many processors."""
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, mine[-processors:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--turns", type=int, default=24, help="of each process of a pair")
    parser.add_argument("--steps", type=int, default=12, help="of decode in a turn")
    parser.add_argument(
        "--processors", type=int, default=1, help="that the launching threads run on"
    )
    parser.add_argument("--store", type=Path, help="what was analysed before (default: nothing)")
    parser.add_argument("--native", type=Path, default=os.environ.get("TESSERA_NATIVE_DIR"))
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.processors)
        return
    from tessera.service import daemon
    from tessera.service.client import Client

    native = options.native or ROOT / "build/native/native_out"
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        alone = os.environ | {
            "TESSERA_NATIVE_DIR": str(native),
            "TESSERA_RUNTIME_DIR": folder,
            "TESSERA_STORE": str(options.store or f"{folder}/store.db"),
        }
        os.environ.update(alone)
        daemon.start(Path(folder), None)
        environments = {
            "alone": alone,
            "tessera": alone | {"LD_PRELOAD": str(Path(native) / "libtessera.so")},
        }
        play(environments, 1, options)  # analyses what the model loads, and fills the file cache
        await_analyses(Path(folder))
        turns: Turns = []
        for number in range(options.pairs):
            turns += (pair := play(environments, options.turns, options))
            show_pair(number + 1, pair)
        show_all(turns)
        with Client(Path(folder)) as client:
            client.request("shutdown", force=True)


if __name__ == "__main__":
    main()
