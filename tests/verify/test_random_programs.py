# SPDX-License-Identifier: Apache-2.0
"""Random programs under trial: the same memory at the end, and no summary shown wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from redirect.machine import Machine
from redirect.test_random_programs import PROGRAM, operations
from verify.trials import verify

RUNS = int(os.environ.get("TESSERA_TEST_RANDOM_PROGRAMS", "6"))


@pytest.mark.timeout(60 + 30 * RUNS)
@settings(
    max_examples=RUNS,
    deadline=None,
    derandomize="TESSERA_TEST_RANDOM_PROGRAMS" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=operations())
def test_none_is_shown_wrong(
    machine: Machine, tmp_path: Path, program: list[dict[str, Any]]
) -> None:
    listing, alone, tried = (tmp_path / name for name in ("program.json", "alone", "tried"))
    listing.write_text(json.dumps(program))
    machine.native_run(sys.executable, str(PROGRAM), str(listing), str(alone))
    found = verify(machine, tmp_path, [sys.executable, str(PROGRAM), str(listing), str(tried)])
    assert found.status == 0, found.stderr
    assert alone.read_bytes() == tried.read_bytes()
    for trial in found.trials:
        assert trial["verdict"] in ("passed", "failed"), trial
        # The only one of these kernels that follows a pointer loaded from memory.
        assert trial["verdict"] == "passed" or trial["name"] == "through_pointers", trial
