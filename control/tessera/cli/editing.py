# SPDX-License-Identifier: Apache-2.0
"""The user's editor on the rules: until they are right, or given up."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.common import fail

if TYPE_CHECKING:
    from tessera.cli.placement import Current, Outcome

MARK = "#:"  # starts the lines that explain the file; they are not kept


def edit_rules(before: Current, save: Callable[[str, int], Outcome]) -> None:
    """Ends the command when the rules are given up; what was typed is then kept in a file."""
    from tessera.cli.placement import policy_words, print_findings
    from tessera.service.client import ClientError
    from tessera.store import StoreError

    path = _new_file(before)
    while True:
        _run_editor(path)
        text = _without_marks(_read(path))
        if text == before.text:
            path.unlink()
            print("The rules are unchanged.")
            return
        try:
            outcome = save(text, before.revision)
        except (ClientError, StoreError) as error:
            fail(f"{error}\nnothing was changed; what you typed is in {path}")
        if not outcome.errors:
            break
        print_findings(outcome.errors, "")
        if not _again():
            fail(f"nothing was changed; what you typed is in {path}")
    print_findings(outcome.warnings, "warning: ")
    if outcome.note:
        print(f"note: {outcome.note}", file=sys.stderr)
    path.unlink()
    done = "The rules are in force." if before.running else "The rules are saved."
    print(f"{done}{policy_words(outcome)}")


def _new_file(before: Current) -> Path:
    text = before.text
    if text and not text.endswith("\n"):
        text += "\n"
    if not text:
        text = "\n"
    explained = "".join(f"{MARK} {line}".rstrip() + "\n" for line in _explanation(before))
    handle, name = tempfile.mkstemp(prefix="placement-", suffix=".rules")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + explained)
    return Path(name)


def _explanation(before: Current) -> list[str]:
    from tessera.placement import HELP

    lines = ["", *HELP.splitlines(), ""]
    if before.running:
        lines.append("Devices now: home")
        for worker in before.workers:
            state = "" if worker["up"] else "  (down)"
            lines.append(f"             {worker['index']}  {worker['name']}{state}")
    else:
        lines.append("No controller runs: devices cannot be checked now.")
    return [*lines, f"Lines that start with {MARK} are not kept."]


def _without_marks(text: str) -> str:
    """The text without explanations, and without the blank lines before them."""
    lines = [line for line in text.split("\n") if not line.startswith(MARK)]
    kept = "\n".join(lines).rstrip()
    return f"{kept}\n" if kept else ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        fail(f"nothing was changed: {path} is not UTF-8 text")
    except OSError as error:
        fail(f"nothing was changed: {path}: {error.strerror}")


def _run_editor(path: Path) -> None:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(chosen), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        path.unlink()
        why = error.strerror if isinstance(error, OSError) else str(error)
        fail(f"{chosen}: {why}: set $EDITOR to an editor that there is")
    if code != 0:
        fail(f"nothing was changed: {chosen} ended with {code}; what you typed is in {path}")


def _again() -> bool:
    """Whether to open the editor once more; no when there is nobody to ask."""
    if not sys.stdin.isatty():
        return False
    print("Edit again? [Y/n] ", end="", flush=True, file=sys.stderr)
    return sys.stdin.readline().strip().lower() in {"", "y", "yes"}
