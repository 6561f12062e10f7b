# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the gpu marker, and where the native artefacts are."""

import os
import re
from pathlib import Path

import pytest

GPU_COUNT = pytest.StashKey[int]()
ASKS_FOR_GPU = re.compile(r"(?<!not )\bgpu\b")


def pytest_configure() -> None:
    """Tests, and the processes that they start, use the same native artefacts."""
    if (folder := find_native_dir()) is not None:
        os.environ["TESSERA_NATIVE_DIR"] = str(folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked gpu, unless -m asks for them by name."""
    if ASKS_FOR_GPU.search(str(config.getoption("markexpr", ""))):
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=left_out)
    config.stash[GPU_COUNT] = len(left_out)
    if hasattr(config, "workeroutput"):  # under xdist: this is a worker, the summary is elsewhere
        config.workeroutput["gpu_count"] = len(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Under xdist each worker has collected everything: take any one's count."""
    config = getattr(node, "config", None)
    count = getattr(node, "workeroutput", {}).get("gpu_count")
    if config is not None and count is not None:
        config.stash[GPU_COUNT] = count


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say that GPU tests exist and did not run: a deselection alone is easily overlooked."""
    if count := config.stash.get(GPU_COUNT, 0):
        terminalreporter.write_line(f"{count} GPU tests not run (make test-gpu runs them)")


def find_native_dir() -> Path | None:
    """The folder of the native artefacts: $TESSERA_NATIVE_DIR, else the installed package's."""
    if given := os.environ.get("TESSERA_NATIVE_DIR"):
        return Path(given)
    try:
        import tessera
    except ImportError:
        return None
    found = [Path(part) / "_native" for part in tessera.__path__]
    return next((folder for folder in found if folder.is_dir()), None)
