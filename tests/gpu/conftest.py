# SPDX-License-Identifier: Apache-2.0
"""A controller on the real GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Of programs under a controller with one worker on the first GPU."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        alone = os.environ | {"TESSERA_RUNTIME_DIR": folder, "TESSERA_STORE": f"{folder}/store.db"}
        control = [sys.executable, "-m", "tessera.cli.main"]
        library = Path(os.environ["TESSERA_NATIVE_DIR"]) / "libtessera.so"
        try:
            subprocess.run([*control, "up", "--device", "0"], env=alone, check=True, timeout=60)
            yield alone | {"LD_PRELOAD": str(library)}
        finally:
            status = subprocess.run(
                [*control, "status", "--json"],
                env=alone,
                capture_output=True,
                text=True,
                check=False,
            )
            Path(os.environ.get("OUT", folder), "status.json").write_text(status.stdout)
            subprocess.run([*control, "down", "--force"], env=alone, check=True, timeout=60)
