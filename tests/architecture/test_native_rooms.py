# SPDX-License-Identifier: Apache-2.0
"""Who may include and link whom among the native rooms.

A room shows others what stands under its include/tessera/<room>/; the rest is its own.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Room -> the rooms whose headers it may include and whose libraries it may link.
# shim and worker only ever see a libcuda.so.1: that it may be the simulated one
# they cannot know. sim knows PTX and nothing of Tessera.
MAY_USE = {
    "ptx": set[str](),
    "access": set[str](),
    "protocol": set[str](),
    "memory": set[str](),
    "transport": {"protocol"},
    "worker": {"memory", "protocol", "transport"},
    "shim": {"access", "memory", "protocol", "transport"},
    "sim": {"ptx"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
SOURCES = {".c", ".cc", ".cpp", ".h", ".hpp", ".def", ".inc"}


def folder_of(room: str) -> Path:
    """Where a room stands."""
    return ROOT / "shim" if room == "shim" else ROOT / "native" / room


def sources(room: str) -> list[Path]:
    """The C and C++ files of a room, its tests among them."""
    return [path for path in folder_of(room).rglob("*") if path.suffix in SOURCES]


def foreign_includes(room: str) -> list[str]:
    """Includes of `room` that are not allowed, as messages."""
    allowed = MAY_USE[room] | {room}
    found = []
    for path in sources(room):
        for name in INCLUDE.findall(path.read_text()):
            where = f"{path.relative_to(ROOT)} includes {name}"
            if match := re.match(r"tessera/(\w+)/", name):
                if match[1] not in allowed:
                    found.append(where)
            elif name.startswith(("native/", "shim/")):
                found.append(f"{where}: say tessera/<room>/...")
            elif name.startswith("../") and not name.endswith("testing/check.h"):
                inside = (path.parent / name).resolve().is_relative_to(folder_of(room))
                found += [] if inside else [f"{where}: outside its room"]
    return found


def test_every_room_is_listed() -> None:
    """A new room gets its arrows here before it gets a second file."""
    present = {path.name for path in (ROOT / "native").iterdir() if path.is_dir()} - {"testing"}
    assert present <= set(MAY_USE)


def test_arrows_make_no_circle() -> None:
    """Rooms can be built, and understood, one after the other."""
    left = dict(MAY_USE)
    while left:
        free = [room for room, uses in left.items() if not uses & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


@pytest.mark.parametrize("room", sorted(MAY_USE))
def test_a_room_includes_only_what_it_may(room: str) -> None:
    """No include leaves the room but for the headers of the rooms that it may use."""
    assert foreign_includes(room) == []


@pytest.mark.parametrize("room", sorted(MAY_USE))
def test_a_room_links_only_what_it_may(room: str) -> None:
    """The same for the libraries in the room's CMake files."""
    allowed = MAY_USE[room] | {room, "cuda_headers"}
    found = [
        f"{path.relative_to(ROOT)} links tessera::{name}"
        for path in folder_of(room).rglob("CMakeLists.txt")
        for name in re.findall(r"\btessera::(\w+)", path.read_text())
        if name.split("_")[0] not in {one.split("_")[0] for one in allowed}
    ]
    assert found == []


def test_only_tests_use_the_test_vocabulary() -> None:
    """native/testing stays out of what is shipped."""
    found = [
        str(path.relative_to(ROOT))
        for room in MAY_USE
        for path in sources(room)
        if any(name.endswith("testing/check.h") for name in INCLUDE.findall(path.read_text()))
        and not {"tests", "testing"} & set(path.relative_to(ROOT).parts)
    ]
    assert found == []
