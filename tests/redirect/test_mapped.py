# SPDX-License-Identifier: Apache-2.0
"""Random orders of mapping, unmapping, launching and copying end with the same memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from redirect.machine import Machine
from redirect.random_runs import ASKED, compare_scattered

PROGRAM = Path(__file__).with_name("mapped.py")
MEMORY = ["map", "unmap", "move", "move", "alias", "alias", "export"]
WORK = ["fill", "combine", "every_other", "gather", "memset", "copy", "upload", "download"]
RUNS = int(ASKED or 10)

places = st.tuples(st.integers(0, 1), st.integers(0, 3))


@st.composite
def operations(draw: st.DrawFn) -> list[dict[str, Any]]:
    # A few pieces to begin with: else most of the program would have nothing to work on.
    kinds = ["map"] * 4 + draw(st.lists(st.sampled_from(MEMORY + WORK), min_size=25, max_size=70))
    drawn = []
    for index, kind in enumerate(kinds):
        to = (index // 2, index % 2) if index < 4 else draw(places)
        drawn.append(
            {
                "kind": kind,
                "stream": draw(st.integers(0, 1)),
                "to": to,
                "from": draw(places),
                "value": draw(st.integers(1, 2**31 - 1)),
            }
        )
    return drawn


@pytest.mark.timeout(60 + 15 * RUNS)
def test_random_mappings_give_the_same_memory(machine: Machine, tmp_path: Path) -> None:
    compare_scattered(machine, tmp_path, PROGRAM, operations(), RUNS)
