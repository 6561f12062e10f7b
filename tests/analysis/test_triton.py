# SPDX-License-Identifier: Apache-2.0
"""Triton kernels: what tutorials and models use, checked against the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernel_corpus import corpora, oracle
from kernel_corpus.triton_support import compile_variant, variants
from tessera.analysis import Flag, KernelSummary, analyze_module

VARIANTS = variants()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def summary_of(text: str) -> KernelSummary:
    (summary,) = analyze_module(text).values()
    return summary


@pytest.mark.parametrize("name", VARIANTS)
def test_against_the_oracle(name: str, simulator: None, tmp_path: Path) -> None:
    text, shared = compile_variant(name)
    summary = summary_of(text)
    assert not summary.is_unknown
    launches = [(name, seed) for seed in range(8)]
    recorded = oracle.record(tmp_path, "triton", text, launches, entry=summary.name, shared=shared)
    verdict = oracle.judge({summary.name: summary}, recorded)
    print(verdict)
    assert verdict.violations == []
    assert verdict.launches == len(launches)
    if name not in corpora.DATA_DECIDES:
        assert verdict.claimed <= 1.1 * verdict.touched


@pytest.mark.parametrize("architecture", [90, 100])
@pytest.mark.parametrize("name", VARIANTS)
def test_newer_architectures(name: str, architecture: int) -> None:
    """What the simulator cannot run is known all the same."""
    summary = summary_of(compile_variant(name, architecture)[0])
    assert not summary.is_unknown, summary.explain()
    assert summary.only_architecture == architecture
    bounded = [a for a in summary.accesses if not a.flags & Flag.UNBOUNDED]
    assert bounded or name in corpora.DATA_DECIDES


def test_matmul_claims_no_more_than_its_operands() -> None:
    """The kernel on one half of a tensor does not claim the other half."""
    summary = summary_of(compile_variant("matmul")[0])
    assert len({a.parameter_offset for a in summary.accesses}) == 3
    assert all(a.levels for a in summary.accesses)
    assert not any(a.flags & Flag.UNBOUNDED for a in summary.accesses)
