# SPDX-License-Identifier: Apache-2.0
"""A controller with a worker on a simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redirect.machine import Machine, native_folder, running


@pytest.fixture
def machine() -> Iterator[Machine]:
    with running(native_folder(), "A100,L40S") as machine:
        yield machine
