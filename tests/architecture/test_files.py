# SPDX-License-Identifier: Apache-2.0
"""What holds for every file of the tree."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = {".c", ".cc", ".cpp", ".h", ".hpp", ".def", ".py", ".cmake", ".toml", ".ptx"}
CODE_NAMES = {"CMakeLists.txt", "Makefile"}
LONGEST = 500
# Data in a file's clothes, and lists that are one item a line.
MAY_BE_LONG = re.compile(r"/golden/|/corpus/|/data/|\.def$|\.json$|\.md$|\.txt$")


def tracked() -> list[Path]:
    """The files that git knows or would take; all files where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = (
        listed.stdout.splitlines()
        if listed.returncode == 0
        else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    )
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def is_script(path: Path) -> bool:
    """Whether a file without an ending starts with #!."""
    return not path.suffix and path.open("rb").read(2) == b"#!"


def test_source_files_name_their_licence() -> None:
    """An SPDX line stands in the first three lines of each source file."""
    wanted = "SPDX-License-Identifier: Apache-2.0"
    found = []
    for path in tracked():
        relative = path.relative_to(ROOT)
        if re.search(r"/(golden|corpus|data)/", f"/{relative}") or not path.stat().st_size:
            continue
        if path.suffix in CODE - {".ptx"} or path.name in CODE_NAMES or is_script(path):
            head = "".join(path.read_text().splitlines(keepends=True)[:3])
            if wanted not in head:
                found.append(str(relative))
    assert found == []


def test_few_files_are_long() -> None:
    """A long file is rare; this names them, and fails when they become a habit."""
    lengths = {
        str(path.relative_to(ROOT)): path.read_bytes().count(b"\n")
        for path in tracked()
        if path.suffix in CODE and not MAY_BE_LONG.search(f"/{path.relative_to(ROOT)}")
    }
    long = {name: lines for name, lines in lengths.items() if lines > LONGEST}
    report = ", ".join(f"{name} ({lines})" for name, lines in sorted(long.items()))
    print(f"{len(long)} of {len(lengths)} files are longer than {LONGEST} lines: {report}")
    assert len(long) <= max(2, len(lengths) // 20), report
    assert all(lines <= 2 * LONGEST for lines in long.values()), report


def test_nothing_is_left_to_do() -> None:
    """Work that is not done stands in an issue, not in a comment."""
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix in CODE and mark.search(path.read_text(errors="replace"))
    ]
    assert found == []


def test_versions_agree() -> None:
    """The package and the change log speak of the same version."""
    text = (ROOT / "control" / "tessera" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
