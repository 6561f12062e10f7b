# SPDX-License-Identifier: Apache-2.0
"""A controller with two workers on simulated GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redirect.machine import Machine, native_folder, running


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with running(native_folder()) as machine:
        yield machine
