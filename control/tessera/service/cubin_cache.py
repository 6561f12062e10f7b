# SPDX-License-Identifier: Apache-2.0
"""Finding the file of a cubin that a program handed over as bytes.

Triton compiles to a cubin, keeps it in its cache with the PTX beside it, and loads the
bytes. Equal bytes in the cache are the same compilation, so the PTX beside them is its text.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

# What a search may look at before it gives up: caches grow without bound.
_MOST_FILES = 100_000


def cache_folders(environment: Mapping[str, str], uid: int) -> list[Path]:
    """Where a program of this environment and user keeps compiled kernels."""
    folders = []
    try:
        home = environment.get("TRITON_HOME") or environment.get("HOME") or pwd.getpwuid(uid).pw_dir
        folders.append(Path(home) / ".triton" / "cache")
    except KeyError:
        pass  # a user without an entry and a program without HOME has no such folder
    if given := environment.get("TRITON_CACHE_DIR"):
        folders.insert(0, Path(given))
    if given := environment.get("TORCHINDUCTOR_CACHE_DIR"):
        folders.append(Path(given) / "triton")
    return folders


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it cannot be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def find_cubin(data: bytes, folders: Iterable[Path]) -> Path | None:
    """A `.cubin` below one of the folders that holds exactly these bytes."""
    seen = 0
    for folder in folders:
        for parent, _, files in os.walk(folder):
            for name in files:
                seen += 1
                if seen > _MOST_FILES:
                    return None
                path = Path(parent) / name
                if name.endswith(".cubin") and _holds(path, data):
                    return path
    return None


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False  # removed meanwhile, or not ours to read
