# SPDX-License-Identifier: Apache-2.0
"""Who may import whom in the control plane, and how it reaches native code."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "control" / "tessera"

# Room (a sub-package, or a module of the package itself) -> the rooms that it may import.
# cli uses everything and is used by nobody.
FOUNDATION = {"settings", "native", "protocol"}
MAY_IMPORT = {
    "settings": set[str](),
    "native": {"settings"},
    "protocol": {"settings", "native"},
    "analysis": FOUNDATION,
    "sass": FOUNDATION | {"analysis"},
    "store": FOUNDATION | {"analysis"},
    "planning": FOUNDATION | {"store"},
    "placement": FOUNDATION | {"analysis", "store", "planning"},
    "cluster": FOUNDATION,
    "service": FOUNDATION | {"analysis", "sass", "store", "planning", "placement", "cluster"},
    "cli": FOUNDATION | {"analysis", "store", "planning", "placement", "cluster", "service"},
}


def room_of(path: Path) -> str:
    """The room that a file of the package belongs to; "" for the package's own __init__."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").replace("__init__", "").replace("__main__", "cli")


def imported(path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a file imports, late imports too."""
    names = []
    package = ["tessera", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names += [(node.lineno, f"{stem}.{alias.name}") for alias in node.names]
    return names


FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def test_there_is_a_package() -> None:
    """The rest of this file would pass on nothing."""
    assert PACKAGE / "__init__.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    """The arrows of MAY_IMPORT, and none beside them."""
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room} if room else set()
    found = []
    for line, name in imported(path):
        parts = name.split(".")
        ours = parts[0] == "tessera" and len(parts) > 1 and parts[1] in MAY_IMPORT
        if ours and parts[1] not in allowed:
            found.append(f"line {line}: {room or 'tessera'} imports {name}")
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_native_code_is_reached_through_the_binding(path: Path) -> None:
    """cffi and ctypes stand in tessera.native, and in the protocol made from the same headers."""
    if room_of(path) in {"native", "protocol"}:
        return
    found = [
        f"line {line}: {name}"
        for line, name in imported(path)
        if name.split(".")[0] in {"cffi", "ctypes", "_cffi_backend"}
    ]
    assert found == []


def test_examples_know_nothing_of_tessera() -> None:
    """They are programs as people write them."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in (ROOT / "examples").rglob("*.py")
        for word in ("tessera", "simulated")
        if word in path.read_text().lower()
    ]
    assert found == []
