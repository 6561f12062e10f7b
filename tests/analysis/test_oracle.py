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

# What each corpus reaches at least: launches claimed at most 5 % too large, and whole writes
# that are found, in per cent. They hold kernels that cannot be exact (data decides).
REACHED = {
    "elementwise": (80, 97),
    "loops": (75, 90),
    "pointers": (60, 95),
    "indirect": (45, 80),
    "effects": (90, 80),
}
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
    verdict = oracle.judge(analyze_module(text), recorded)
    check(verdict)
    tight, whole = REACHED[name]
    assert 100 * verdict.tight >= tight * verdict.judged, str(verdict)
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
