# SPDX-License-Identifier: Apache-2.0
"""Soundness and exactness, by the oracle: no byte really touched lies outside of a summary."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from kernel_corpus import corpora, oracle
from kernel_corpus.compiler import CompileError, compile_corpus, compile_source
from kernel_corpus.random_kernels import random_source
from tessera.analysis import analyze_module

# What each corpus reaches at least, in per cent: launches claimed at most 5 % too large, of those
# that data does not decide about, and whole writes that are found, of all launches.
REACHED = {
    "elementwise": (97, 93),
    "loops": (94, 92),
    "pointers": (97, 88),
    "indirect": (77, 90),
    "effects": (99, 91),
}
LONG = int(os.environ.get("TESSERA_ORACLE_LAUNCHES", "0"))
BATCH = 2000  # launches of one simulated process
VARIANTS = {
    "debug": ("sm_80", "--device-debug"),
    "turing": ("sm_75",),
    "fast": ("sm_80", "--use_fast_math", "--extra-device-vectorization", "--maxrregcount=32"),
    "blackwell": ("sm_100",),
}


def check(verdict: oracle.Verdict) -> None:
    print(verdict)
    assert verdict.violations == []


@pytest.mark.parametrize("name", corpora.NAMES)
def test_corpus(name: str, recorded_corpus: Callable[[str], Any]) -> None:
    text, recorded = recorded_corpus(name)
    summaries = analyze_module(text)
    verdict = oracle.judge(summaries, recorded)
    check(verdict)
    certain = [r for r in recorded if r[0]["kernel"] not in corpora.DATA_DECIDES]
    decided = oracle.judge(summaries, certain)
    tight, whole = REACHED[name]
    assert 100 * decided.tight >= tight * decided.judged, str(decided)
    assert 100 * verdict.whole_found >= whole * verdict.whole_writes, str(verdict)
    assert verdict.unknown <= 0.1 * verdict.launches


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", corpora.NAMES)
def test_other_compilations(
    name: str, variant: str, simulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unoptimised code, other optimisations, other generations of the compiler."""
    if variant == "blackwell":
        monkeypatch.setenv("TESSERA_SIM_DEVICES", "B200")
    text = compile_corpus(name, *VARIANTS[variant])
    launches = [(k, seed) for k in corpora.kernels_of(name) for seed in range(100, 104)]
    check(oracle.judge(analyze_module(text), oracle.record(tmp_path, name, text, launches)))


@pytest.mark.parametrize("seed", range(int(os.environ.get("TESSERA_ORACLE_SEEDS", "6"))))
def test_random_kernels(seed: int, simulator: None, tmp_path: Path) -> None:
    """TESSERA_ORACLE_SEEDS=1000 makes the long job of it."""
    try:
        text = compile_source(random_source(seed, 10))
    except CompileError:
        pytest.skip("not a program")
    summaries = analyze_module(text)
    launches = [(k, launch) for k in summaries for launch in range(5)]
    recorded = oracle.record(tmp_path, "random", text, launches)
    assert len(recorded) > len(launches) // 2
    check(oracle.judge(summaries, recorded))


@pytest.mark.skipif(not LONG, reason="TESSERA_ORACLE_LAUNCHES=100000 runs the long job")
@pytest.mark.parametrize("name", corpora.NAMES)
def test_many_launches(name: str, simulator: None, tmp_path: Path) -> None:
    """Its share of all launches of the long job."""
    text = compile_corpus(name)
    summaries = analyze_module(text)
    kernels = corpora.kernels_of(name)
    each = -(-LONG // sum(len(corpora.kernels_of(other)) for other in corpora.NAMES))
    launches = [(kernel, 1000 + seed) for seed in range(each) for kernel in kernels]
    verdict = oracle.Verdict()
    for begin in range(0, len(launches), BATCH):
        recorded = oracle.record(tmp_path, name, text, launches[begin : begin + BATCH])
        verdict.add(oracle.judge(summaries, recorded))
    assert verdict.launches == len(launches)
    check(verdict)
