# SPDX-License-Identifier: Apache-2.0
"""The slow job: every PTX text of real libraries, which are not part of this project.

    pip install --no-deps --target libs nvidia-cublas
    export TESSERA_ANALYSIS_LIBRARIES=libs/nvidia/cu13/lib/libcublasLt.so.13
    pytest tests/analysis -k libraries

Paths are separated by colons. Nothing there can be run on the simulated device: what is checked
is that every kernel gets a summary that the evaluator accepts, or a reason why it is unknown.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tessera.analysis import Flag, Property, analyze_module
from tessera.native import access, ptx

LIBRARIES = [p for p in os.environ.get("TESSERA_ANALYSIS_LIBRARIES", "").split(":") if p]


@cache
def texts_of(path: str) -> tuple[ptx.Entry, ...]:
    entries = ptx.open_image(Path(path).read_bytes()).entries
    return tuple(e for e in entries if e.kind is ptx.EntryKind.PTX)


def analyze(place: tuple[str, int]) -> dict[str, Any]:
    """One text: counts, and what is wrong with it."""
    path, index = place
    text = texts_of(path)[index].read()
    begin = time.process_time()
    ptx.parse(text)
    parsed = time.process_time()
    summaries = analyze_module(text)
    out: Counter[str] = Counter(bytes=len(text), kernels=len(summaries))
    out["parse_us"] = int(1e6 * (parsed - begin))
    out["analysis_us"] = int(1e6 * (time.process_time() - parsed))
    wrong = []
    for name, summary in summaries.items():
        out["unknown"] += summary.is_unknown
        out["may_move"] += summary.may_move
        out["accesses"] += len(summary.accesses)
        out["unbounded"] += sum(bool(a.flags & Flag.UNBOUNDED) for a in summary.accesses)
        if not access.validate(summary.to_blob()):
            wrong.append(f"{name}: no valid summary")
        if summary.is_unknown and not summary.reasons[str(Property.UNKNOWN.name)]:
            wrong.append(f"{name}: unknown without a reason")
    return {"counts": out, "wrong": wrong}


@pytest.mark.skipif(not LIBRARIES, reason="TESSERA_ANALYSIS_LIBRARIES names no library")
@pytest.mark.parametrize("path", LIBRARIES)
def test_libraries(path: str) -> None:
    places = [(path, index) for index in range(len(texts_of(path)))]
    assert places, "no PTX in this library"
    total: Counter[str] = Counter()
    wrong: list[str] = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for found in pool.map(analyze, places):
            total += found["counts"]
            wrong += found["wrong"]
    print(f"{Path(path).name}: {len(places)} texts, {dict(total)}")
    assert wrong == []
    assert total["kernels"] > 0
