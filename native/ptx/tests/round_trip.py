# SPDX-License-Identifier: Apache-2.0
"""Assembles PTX and what ptx_print makes of it, and compares the machine code.

usage: round_trip.py PTX_PRINT FILE...
Each file is compared by the first ptxas that accepts it. Exits with 77, which ctest counts as
skipped, where no file could be compared: no ptxas, or none for these targets and versions.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
# The one thing that the IR drops: where a pragma stands.
PRAGMA = re.compile(r'^\s*\.pragma\s+"nounroll"\s*;', re.MULTILINE)


IN_PACKAGES = (
    ("nvidia", "cu13/bin/ptxas"),
    ("triton", "backends/nvidia/bin/ptxas-blackwell"),
    ("triton", "backends/nvidia/bin/ptxas"),
)


class RefusedError(Exception):
    """ptxas did not take the text; the message is its own."""


def find_assemblers() -> list[str]:
    """Every ptxas of the installed packages and of PATH."""
    found = []
    for package, relative in IN_PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder) / relative).is_file():
                found.append(str(path))
    if on_path := shutil.which("ptxas"):
        found.append(on_path)
    return found


def sections(cubin: bytes) -> dict[str, bytes]:
    """Code and initialised data of a cubin by section name."""
    table, count, names_index = (
        struct.unpack_from("<Q", cubin, 40)[0],
        struct.unpack_from("<H", cubin, 60)[0],
        struct.unpack_from("<H", cubin, 62)[0],
    )
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + 64 * i) for i in range(count)]
    names = headers[names_index][4]
    out = {}
    for name, kind, _, _, offset, size, *_ in headers:
        text = cubin[names + name : cubin.index(b"\0", names + name)].decode()
        if kind == 1 and text.startswith((".text.", ".nv.global", ".nv.constant")):
            out[text] = cubin[offset : offset + size]
    return out


def assemble(ptxas: str, text: str, folder: Path) -> dict[str, bytes]:
    source, cubin = folder / "input.ptx", folder / "output.cubin"
    source.write_text(PRAGMA.sub("", text).replace(", debug", ""))
    found = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    architecture = found[1] if found else "none"
    command = [ptxas, "-arch", architecture, "-o", str(cubin), str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RefusedError(run.stderr.strip()[:400])
    return sections(cubin.read_bytes())


def compare(ptxas: str, ptx_print: str, path: Path, folder: Path) -> str:
    """What is wrong with one file; empty when nothing is. RefusedError: not with this ptxas."""
    expected = assemble(ptxas, path.read_text(), folder)
    printed = subprocess.run([ptx_print, str(path)], capture_output=True, text=True, check=False)
    if printed.returncode != 0:
        return f"ptx_print: {printed.stderr.strip()[:400]}"
    try:
        actual = assemble(ptxas, printed.stdout, folder)
    except RefusedError as error:
        return f"ptxas refuses what ptx_print wrote: {error}"
    differing = [name for name in expected if actual.get(name) != expected[name]]
    return f"{len(differing)} sections differ: {', '.join(differing[:5])}" if differing else ""


def check(assemblers: list[str], ptx_print: str, path: Path, folder: Path) -> str:
    """The outcome: ok, or else failed or skipped, and why."""
    refusal = "no ptxas found"
    for ptxas in assemblers:
        try:
            problem = compare(ptxas, ptx_print, path, folder)
        except RefusedError as error:
            refusal = str(error)
            continue
        return f"failed: {problem}" if problem else "ok"
    return f"skipped: {refusal}"


def main() -> int:
    assemblers = find_assemblers()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:]:
            outcome = check(assemblers, sys.argv[1], Path(name), Path(folder))
            print(f"{name}: {outcome}")
            outcomes.append(outcome)
    if any(outcome.startswith("failed") for outcome in outcomes):
        return 1
    return 0 if "ok" in outcomes else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
