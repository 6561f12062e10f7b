# SPDX-License-Identifier: Apache-2.0
"""The fatbins of whatever NVIDIA libraries are installed, as large and as odd as they come."""

from __future__ import annotations

import importlib.util
import mmap
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tessera.native import image, ptx

ENOUGH = 200 << 20  # bytes of PTX that one library is asked for


def installed_folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def installed_libraries() -> list[Path]:
    found = (path for folder in installed_folders() for path in folder.glob("*/lib/*.so*"))
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def find_cuobjdump() -> str | None:
    inside = (folder / "cu13" / "bin" / "cuobjdump" for folder in installed_folders())
    return next((str(path) for path in inside if path.is_file()), shutil.which("cuobjdump"))


def open_library(path: Path) -> image.Image:
    with path.open("rb") as file:
        return image.open_image(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@pytest.mark.slow
@pytest.mark.parametrize("path", installed_libraries(), ids=lambda path: path.name)
def test_all_ptx_parses(path: Path) -> None:
    opened = open_library(path)
    assert opened.kind is image.ImageKind.ELF
    assert not opened.errors
    size = 0
    for entry in opened.entries:
        if entry.kind is not image.EntryKind.PTX or size > ENOUGH:
            continue
        text = entry.read()
        size += len(text)
        module = ptx.parse(text)
        assert not module.errors
        assert module.target.startswith(f"sm_{entry.architecture}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["libcurand.so.10", "libcublas.so.13", "libcudnn_ops.so.9"])
def test_cuobjdump_sees_the_same_entries(name: str) -> None:
    tool = find_cuobjdump()
    library = next((path for path in installed_libraries() if path.name == name), None)
    if tool is None or library is None:
        pytest.skip(f"needs cuobjdump and {name}")
    command = [tool, "-lelf", "-lptx", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = Counter(entry.kind for entry in open_library(library).entries)
    assert counts[image.EntryKind.ELF] == listing.count("ELF file")
    assert counts[image.EntryKind.PTX] == listing.count("PTX file")
