# SPDX-License-Identifier: Apache-2.0
"""Random programs, run at home and elsewhere: all memory is the same at their end."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redirect.machine import Machine

ASKED = os.environ.get("TESSERA_TEST_RANDOM_PROGRAMS")  # how many, for a longer search

Program = list[dict[str, Any]]


def random_settings(runs: int) -> settings:
    """The same programs each time, unless a search was asked for."""
    return settings(
        max_examples=runs,
        deadline=None,
        derandomize=ASKED is None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def compare(
    machine: Machine,
    folder: Path,
    script: Path,
    program: Program,
    meanwhile: AbstractContextManager[None] | None = None,
    **variables: str,
) -> None:
    """Runs what a script makes of a program at home, and under Tessera with environment
    variables and while something else goes on."""
    listing, alone, moved = (folder / name for name in ("program.json", "alone", "moved"))
    listing.write_text(json.dumps(program))
    run = (sys.executable, str(script), str(listing))
    machine.native_run(*run, str(alone))
    with meanwhile or nullcontext():
        machine.run(*run, str(moved), **variables)
    assert alone.read_bytes() == moved.read_bytes()


def compare_scattered(
    machine: Machine, folder: Path, script: Path, programs: st.SearchStrategy[Program], runs: int
) -> None:
    """Random programs whose launches are thrown on home and two workers."""

    @random_settings(runs)
    @given(program=programs, seed=st.integers(1, 2**31 - 1))
    def same_memory(program: Program, seed: int) -> None:
        compare(machine, folder, script, program, TESSERA_SCATTER=str(seed))

    same_memory()
    # Memory that stays the same because everything stayed at home would show nothing.
    workers = json.loads(machine.control("status", "--json"))["workers"]
    assert len(workers) == 2
    assert all(worker["launches"] > 0 for worker in workers), workers
