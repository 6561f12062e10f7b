# SPDX-License-Identifier: Apache-2.0
"""The Python side of summary.h says what the header says; blobs and data keep everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tessera.analysis import (
    HOME_ONLY,
    Flag,
    KernelSummary,
    Mode,
    Property,
    analyze_module,
    blob,
    pipeline,
)
from tessera.analysis.launch import Op
from tessera.analysis.model import FORMAT, MAX_ACCESSES, MAX_LEVELS, MAX_NODES, NO_NODE
from tessera.native import access


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [("TS_OP_", Op), ("TS_KERNEL_", Property), ("TS_ACCESS_", Flag)],
)
def test_enumerators(prefix: str, kind: Any) -> None:
    native = {
        k.removeprefix(prefix): v for k, v in access.constants().items() if k.startswith(prefix)
    }
    if kind is Property:
        assert native.pop("HOME_ONLY") == HOME_ONLY
    if kind is Flag:
        native = {k: v for k, v in native.items() if k not in ("READ", "WRITE")}
    assert native == {member.name: int(member) for member in kind}


def test_modes_and_limits() -> None:
    native = access.constants()
    assert (native["TS_ACCESS_READ"], native["TS_ACCESS_WRITE"]) == (Mode.READ, Mode.WRITE)
    assert native["TS_NO_NODE"] == NO_NODE
    assert native["TS_SUMMARY_MAX_NODES"] == MAX_NODES
    assert native["TS_SUMMARY_MAX_ACCESSES"] == MAX_ACCESSES
    assert native["TS_SUMMARY_MAX_LEVELS"] == MAX_LEVELS
    assert native["TS_SUMMARY_MAGIC"] == blob.MAGIC
    assert native["TS_SUMMARY_VERSION"] == blob.VERSION


def test_layout() -> None:
    sizes = access.sizes()
    assert sizes["ts_summary"] == blob.HEADER.size
    assert sizes["ts_node"] == blob.NODE.size
    assert sizes["ts_access"] == blob.ACCESS.size


@pytest.fixture(params=["elementwise", "loops", "pointers", "indirect", "effects"])
def summaries(request: pytest.FixtureRequest) -> dict[str, KernelSummary]:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernel_corpus.compiler import compile_corpus

    return analyze_module(compile_corpus(request.param))


def test_blobs_are_valid_and_come_back(summaries: dict[str, KernelSummary]) -> None:
    for name, summary in summaries.items():
        data = summary.to_blob()
        assert access.validate(data), name
        again = KernelSummary.from_blob(data, name)
        assert again.to_blob() == data
        assert again.nodes == summary.nodes
        assert [a.flags for a in again.accesses] == [a.flags for a in summary.accesses]


def test_plain_data_comes_back_through_json(summaries: dict[str, KernelSummary]) -> None:
    for summary in summaries.values():
        data = json.loads(json.dumps(summary.to_dict()))
        assert KernelSummary.from_dict(data) == summary


def test_every_summary_can_be_explained(summaries: dict[str, KernelSummary]) -> None:
    for name, summary in summaries.items():
        text = summary.explain()
        assert text.startswith(f"{name}(")
        assert len(text.splitlines()) > 1
        for access_ in summary.accesses:
            assert str(access_.line) in text


def test_foreign_data_is_refused() -> None:
    with pytest.raises(ValueError, match="cut short"):
        KernelSummary.from_blob(b"TSSM")
    with pytest.raises(ValueError, match="no access summary"):
        KernelSummary.from_blob(b"\0" * 40)
    with pytest.raises(ValueError, match="format"):
        KernelSummary.from_dict({"format": 99})
    with pytest.raises(ValueError, match="parts missing"):
        KernelSummary.from_dict({"format": FORMAT})
    with pytest.raises(ValueError, match="not an access summary"):
        access.evaluate(b"\0" * 64, (1, 1, 1), (1, 1, 1), b"")


def test_equal_text_gives_equal_blobs() -> None:
    """The store keys summaries by their image: analysis must not depend on chance."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernel_corpus.compiler import compile_corpus

    text = compile_corpus("loops")
    first, second = analyze_module(text), analyze_module(text)
    assert {k: s.to_blob() for k, s in first.items()} == {k: s.to_blob() for k, s in second.items()}


def test_a_kernel_that_is_too_deep_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernel_corpus.compiler import compile_corpus

    def too_deep(_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(pipeline._Passes, "run", too_deep)
    summaries = analyze_module(compile_corpus("loops"))
    assert summaries
    assert all(s.is_unknown and "deeply" in s.reasons["UNKNOWN"] for s in summaries.values())
