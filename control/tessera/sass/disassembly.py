# SPDX-License-Identifier: Apache-2.0
"""Runs nvdisasm and reads what it says."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.sass.elf import Cubin
from tessera.sass.syntax import Instruction, parse_instruction

SECONDS = 600  # no cubin takes as long
LARGEST = 256 << 20  # bytes of a cubin
OLDEST = 13  # release whose way of writing instructions is known


class DisassemblyError(Exception):
    """No disassembly is to be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Disassembly:
    """`architecture`: 90. `sections`: the code of each function section, by the section's name
    without `.text.`; one that was not understood is left out. `exact_architecture`: built for
    that one alone (sm_90a)."""

    architecture: int
    exact_architecture: bool
    sections: dict[str, list[Instruction]]


@functools.cache
def nvdisasm() -> str:
    """The path of nvdisasm. Raises DisassemblyError."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for place in ("cu13/bin", "cuda_nvdisasm/bin", "cu12/bin"):
            path = Path(folder) / place / "nvdisasm"
            if path.is_file():
                return str(path)
    found = shutil.which("nvdisasm")
    if found is None:
        raise DisassemblyError(
            "nvdisasm is not installed: pip install 'tessera[sass]' (nvidia-cuda-nvdisasm)"
        )
    return found


def nvdisasm_version() -> str:
    """What tells one installed nvdisasm from another; "" where there is none."""
    try:
        path = Path(nvdisasm())
        return f"{path} {path.stat().st_size}"
    except (DisassemblyError, OSError):
        return ""


def disassemble(data: bytes, cubin: Cubin, symbols: Sequence[int] = ()) -> Disassembly:
    """The code of a cubin; with `symbols`, of those functions' sections alone.

    Raises DisassemblyError.
    """
    if len(data) > LARGEST:
        raise DisassemblyError(f"the cubin has {len(data)} bytes, more than are disassembled")
    with tempfile.NamedTemporaryFile(prefix="tessera-", suffix=".cubin") as file:
        file.write(data)
        file.flush()
        chosen = ["-fun", ",".join(map(str, symbols))] if symbols else []
        command = [nvdisasm(), "-json", *chosen, file.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise DisassemblyError(f"nvdisasm took more than {SECONDS} seconds") from None
        except OSError as error:
            raise DisassemblyError(f"nvdisasm cannot be run: {error}") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise DisassemblyError(f"nvdisasm failed: {words[-1] if words else done.returncode}")
    try:
        return _read(json.loads(done.stdout), data, cubin)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise DisassemblyError(f"the output of nvdisasm was not understood: {error}") from None


def _read(document: list[Any], data: bytes, cubin: Cubin) -> Disassembly:
    if int(document[0]["SchemaVersion"]["major"]) < OLDEST:
        raise DisassemblyError(f"{document[0]['Producer']} is older than release {OLDEST}")
    version = document[0]["SM"]["version"]
    number = int(version["major"]) * 10 + int(version["minor"])
    starts: dict[tuple[str, int], list[int]] = {}
    for symbol in cubin.symbols:
        if symbol.is_function and symbol.section:
            starts.setdefault((symbol.name, symbol.value), []).append(symbol.section)
    parts: dict[int, dict[int, list[Any]]] = {}
    spoiled: set[int] = set()
    last = 0
    for function in document[1]:
        start, listed = int(function["start"]), function["sass-instructions"]
        sections = starts.get((function["function-name"], start), [])
        if len(sections) != 1:  # a local name that several sections have: it follows its own
            sections = [section for section in sections if section == last and start]
        if not sections:
            spoiled.add(last)
            continue
        last = sections[0]
        if start in parts.setdefault(last, {}):
            spoiled.add(last)
        parts[last][start] = listed
    whole = {section: _joined(pieces) for section, pieces in parts.items()}
    return Disassembly(
        number,
        _is_exact(document[0], data),
        {
            cubin.section_names[section].removeprefix(".text."): code
            for section, code in whole.items()
            if code and section not in spoiled
        },
    )


def _joined(pieces: dict[int, list[Any]]) -> list[Instruction]:
    """One section's code. Releases up to 13.4 list the functions of a section apart, and give
    the first one the size of all of them. Nothing where they leave gaps or overlap."""
    code: list[Instruction] = []
    for start, listed in sorted(pieces.items()):
        if start != 16 * len(code):
            return []
        code += [parse_instruction(start + 16 * at, fields) for at, fields in enumerate(listed)]
    return code


def _is_exact(header: object, data: bytes) -> bool:
    """Whether the cubin is for one architecture alone: its assembler's options, or a name of
    its target, end in `a` or `f`. Where they do not tell, code of sm_90 and newer may be."""
    text = json.dumps(header)
    match = re.search(r"-arch[ =]*sm_(\d+)([af]?)", text) or re.search(rb"sm_(\d+)([af]?)\b", data)
    return match is None or bool(match[2])
