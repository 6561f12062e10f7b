# SPDX-License-Identifier: Apache-2.0
"""One machine with a controller for all cases of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redirect.machine import Machine, native_folder, running


@pytest.fixture(scope="session")
def native() -> Path:
    return native_folder()


@pytest.fixture(scope="module")
def machine(native: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with running(native, getattr(request.module, "DEVICES", "H200,L40S,L40S")) as machine:
        yield machine
