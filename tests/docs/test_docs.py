# SPDX-License-Identifier: Apache-2.0
"""What the documentation says can be typed exists, and what it points to is there."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\bTESSERA_[A-Z][A-Z0-9_]*\b")
ASSIGNMENT = re.compile(r"\w+=.*")
SIMPLE_COMMANDS = {"env", "eval", "export", "kill", "pip", "sudo", "source", "sqlite3"}


def shell_lines(page: Path) -> Iterator[str]:
    """The commands in a page's `sh` blocks, continued lines joined; in `console` blocks after $."""
    for _, language, body in FENCE.findall(page.read_text()):
        text = body.replace("\\\n", " ")
        for line in text.splitlines():
            if language == "sh" and line.strip() and not line.strip().startswith("#"):
                yield line.strip()
            elif language == "console" and line.lstrip().startswith("$ "):
                yield line.lstrip()[2:]


def commands() -> list[tuple[str, str]]:
    """(page, command line) of the whole documentation."""
    return [(page.name, line) for page in PAGES for line in shell_lines(page)]


def words_of(line: str) -> list[str]:
    """The words of a command line without comments, assignments and wrappers before the program."""
    words = shlex.split(line, comments=True)
    while words:
        if ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        elif words[0].endswith("with-simulated-gpus") and "--export" not in words:
            check_path(words[0])
            rest = words[1:]
            if rest[:1] == ["--devices"]:
                rest = rest[2:]
            words = rest[1:] if rest[:1] == ["--"] else rest
        else:
            return words
    return words


def check_path(word: str) -> None:
    """A path of this tree exists."""
    assert (ROOT / word).exists(), f"{word} does not exist"


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def check_tessera_ctl(words: list[str]) -> None:
    """Sub-commands and options exist in tessera-ctl; what follows `--` is the user's own."""
    import typer
    from tessera.cli.main import app

    command = typer.main.get_command(app)
    mine = words[: words.index("--")] if "--" in words else words
    for word in mine:
        if word.startswith("-"):
            known = {name for parameter in command.params for name in parameter.opts}
            known |= {name for parameter in command.params for name in parameter.secondary_opts}
            assert word.split("=")[0] in known | {"--help"}, f"no option {word}"
        elif children := getattr(command, "commands", None):
            assert word in children, f"no command {word}"
            command = children[word]


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_exist(page: str, line: str) -> None:
    """Each command line of the documentation names programs, targets and options that there are."""
    for part in re.split(r"\s+(?:\||&&|;)\s+", line):
        words = words_of(part)
        if not words or words[0] in SIMPLE_COMMANDS:
            continue
        program, rest = words[0], words[1:]
        name = Path(program).name
        if program == "make":
            targets = [word for word in rest if not ASSIGNMENT.fullmatch(word)]
            assert set(targets) <= make_targets(), f"{page}: {line}"
        elif name == "tessera-ctl":
            check_tessera_ctl(rest)
        elif name in {"python", "python3"}:
            for word in rest:
                if word.endswith(".py") and "/" in word:
                    check_path(word)
        elif "/" in program and not program.startswith(("/", "~", ".venv")):
            check_path(program)
        elif name in {"cmake", "ctest", "ninja", "git", "cd"}:
            continue
        else:
            pytest.fail(f"{page}: unknown program in {line!r}")


def test_there_are_commands() -> None:
    """The test above would pass on nothing."""
    assert len(commands()) > 10


def known_variables() -> set[str]:
    """Every TESSERA_ variable that a source file names."""
    found: set[str] = set()
    for folder in ("native", "shim", "control", "tools"):
        for path in (ROOT / folder).rglob("*"):
            source = path.suffix in {".cc", ".h", ".def", ".py"} or path.parent.name == "tools"
            if source and path.is_file():
                found |= set(VARIABLE.findall(path.read_text(errors="replace")))
    for path in (ROOT / "CMakeLists.txt", ROOT / "Makefile"):
        found |= set(VARIABLE.findall(path.read_text()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_exist(page: Path) -> None:
    """A page names no variable that nothing reads."""
    assert set(VARIABLE.findall(page.read_text())) - known_variables() == set()


def test_every_variable_of_the_simulator_is_explained() -> None:
    """What native/sim reads from the environment stands in docs/simulator.md."""
    read = {
        name
        for path in (ROOT / "native" / "sim").rglob("*.cc")
        if "tests" not in path.parts
        for name in re.findall(r'getenv\("(TESSERA_\w+)"\)', path.read_text())
    }
    assert read - set(VARIABLE.findall((ROOT / "docs" / "simulator.md").read_text())) == set()


def test_settings_page_is_up_to_date() -> None:
    """docs/settings.md is what settings.def says."""
    script = ROOT / "tools" / "document_settings.py"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links, and paths of the tree in code spans, exist."""
    text = page.read_text()
    broken = [
        target
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    code = re.findall(r"`((?:native|shim|control|tests|tools|examples|docs)/[\w./-]+)`", text)
    broken += [path for path in code if not (ROOT / path).exists()]
    assert broken == []


def test_the_file_tree_of_the_design_page_exists() -> None:
    """Each room in the annotated tree is a folder, and each folder is in it."""
    text = (ROOT / "docs" / "design.md").read_text()
    tree = next(body for _, _, body in FENCE.findall(text) if body.startswith("shim/"))
    named, parent = set(), ""
    for line in tree.splitlines():
        name = line.split()[0]
        if line.startswith("  "):
            named.add(parent + name)
        else:
            parent = name
            named.add(name)
    assert [name for name in sorted(named) if not (ROOT / name).is_dir()] == []
    for folder in ("native", "control/tessera"):
        present = {
            f"{folder}/{entry.name}/"
            for entry in (ROOT / folder).iterdir()
            if entry.is_dir() and entry.name not in {"__pycache__", "_native"}
            if any(entry.iterdir())
        }
        assert present <= named
