# SPDX-License-Identifier: Apache-2.0
"""Random programs under random placements end with the same memory, byte for byte.

The invariants of docs/design.md that this holds: transparent, coherent, ordered.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redirect.machine import Machine

PROGRAM = Path(__file__).with_name("program.py")
# `sum` and its like read other elements than they write: source and target differ.
KINDS = ["fill", "combine", "every_other", "gather", "sum", "struct", "pointers"]
KINDS += ["memset", "copy", "upload", "download", "synchronize", "replace"]
RUNS = int(os.environ.get("TESSERA_TEST_RANDOM_PROGRAMS", "12"))

regions = st.tuples(st.integers(0, 3), st.integers(0, 1))
pairs = st.tuples(regions, regions).filter(lambda pair: pair[0] != pair[1])


@st.composite
def operations(draw: st.DrawFn) -> list[dict[str, Any]]:
    drawn = []
    for _ in range(draw(st.integers(5, 60))):
        to, source = draw(pairs)
        drawn.append(
            {
                "kind": draw(st.sampled_from(KINDS)),
                "stream": draw(st.integers(0, 3)),
                "to": to,
                "from": source,
                "value": draw(st.integers(1, 2**31 - 1)),
            }
        )
    return drawn


@pytest.mark.timeout(60 + 15 * RUNS)
def test_random_programs_give_the_same_memory(machine: Machine, tmp_path: Path) -> None:
    @settings(
        max_examples=RUNS,
        deadline=None,
        derandomize="TESSERA_TEST_RANDOM_PROGRAMS" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(program=operations(), seed=st.integers(1, 2**31 - 1))
    def same_memory(program: list[dict[str, Any]], seed: int) -> None:
        listing, alone, moved = (tmp_path / name for name in ("program.json", "alone", "moved"))
        listing.write_text(json.dumps(program))
        run = (sys.executable, str(PROGRAM), str(listing))
        machine.native_run(*run, str(alone))
        machine.run(*run, str(moved), TESSERA_SCATTER=str(seed))
        assert alone.read_bytes() == moved.read_bytes()

    same_memory()
    # Memory that stays the same because everything stayed at home would show nothing.
    workers = json.loads(machine.control("status", "--json"))["workers"]
    assert len(workers) == 2
    assert all(worker["launches"] > 0 for worker in workers), workers
