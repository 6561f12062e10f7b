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

from tessera.sass.syntax import Instruction, parse_instruction

SECONDS = 600  # no cubin takes as long
LARGEST = 256 << 20  # bytes of a cubin


class DisassemblyError(Exception):
    """No disassembly is to be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Disassembly:
    """`architecture`: 90. `sections`: the code of each function section, by its function's
    name. `exact_architecture`: built for that one alone (sm_90a)."""

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


def disassemble(data: bytes, symbols: Sequence[int] = ()) -> Disassembly:
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
        return _read(json.loads(done.stdout), data)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DisassemblyError(f"the output of nvdisasm was not understood: {error}") from None


def _read(document: list[object], data: bytes) -> Disassembly:
    header, functions = document[0], document[1]
    assert isinstance(header, dict) and isinstance(functions, list)
    version = header["SM"]["version"]
    number = int(version["major"]) * 10 + int(version["minor"])
    sections = {}
    for function in functions:
        listed = function["sass-instructions"]
        start = int(function["start"])
        if start != 0 or int(function["length"]) != 16 * len(listed):
            raise ValueError(f"{function['function-name']} does not fill its section")
        sections[function["function-name"]] = [
            parse_instruction(16 * index, fields) for index, fields in enumerate(listed)
        ]
    return Disassembly(number, _is_exact(document[0], data), sections)


def _is_exact(header: object, data: bytes) -> bool:
    """Whether the cubin is for one architecture alone: its assembler's options, or a name of
    its target, end in `a` or `f`. Where they do not tell, code of sm_90 and newer may be."""
    text = json.dumps(header)
    match = re.search(r"-arch[ =]*sm_(\d+)([af]?)", text) or re.search(rb"sm_(\d+)([af]?)\b", data)
    return match is None or bool(match[2])
