# SPDX-License-Identifier: Apache-2.0
"""One machine with a controller for all cases of a module."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redirect.machine import Machine


@pytest.fixture(scope="session")
def native() -> Path:
    folder = os.environ.get("TESSERA_NATIVE_DIR")
    assert folder, "the native artefacts are not built: see CONTRIBUTING.md"
    return Path(folder)


@pytest.fixture(scope="module")
def machine(native: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    devices = getattr(request.module, "DEVICES", "H200,L40S,L40S")
    # Not tmp_path: a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        machine = Machine(native, Path(folder), devices)
        machine.control("up")
        try:
            yield machine
        finally:
            machine.control("down")
