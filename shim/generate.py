# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of the shim that follow from cuda.h and functions.def.

Run by CMake. The input is checked on the way, and any disagreement ends the
build: a name on the list that cuda.h does not declare, a version that
cudaTypedefs.h does not know, a function with a CUstream that is not on the list.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KINDS = ("CUSTOM", "ORDERED", "PASS", "CALLED")
INTERPOSED = ("CUSTOM", "ORDERED")
# Beside the driver's names: how programs look them up.
LOADER_EXPORTS = ("dlopen", "dlsym", "dlvsym")
LIBRARY_EXPORTS = (
    "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2",
    "cublasLtCreate", "cublasLtDestroy", "cublasLtMatmul",
)  # fmt: skip
NOTICE = (
    "// SPDX-License-Identifier: Apache-2.0\n"
    "// Written by shim/generate.py from functions.def and cuda.h.\n"
)


@dataclass(frozen=True)
class Parameter:
    type: str
    name: str

    def declaration(self) -> str:
        return f"{self.type}{self.name}" if self.type.endswith("*") else f"{self.type} {self.name}"


@dataclass(frozen=True)
class Entry:
    kind: str
    base: str
    symbol: str
    version: int
    per_thread: bool


def fail(message: str) -> None:
    sys.exit(f"generate.py: {message}")


def preprocess(compiler: str, headers: Path, *flags: str) -> str:
    command = [compiler, "-E", "-x", "c++", f"-I{headers}", *flags, str(headers / "cuda.h")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parse_parameter(text: str, position: int) -> Parameter:
    match = re.fullmatch(r"(.*?[\s*])(\w+)", text)
    # A lone type has no name: `CUcontext`, `unsigned int`.
    if match is None or match[2] in ("int", "char", "long"):
        return Parameter(text, f"argument{position}")
    return Parameter(match[1].strip(), match[2])


def declarations(text: str) -> dict[str, list[Parameter]]:
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    text = text.replace("__attribute__((deprecated))", "")
    found: dict[str, list[Parameter]] = {}
    for match in re.finditer(r"\bCUresult\s+(cu\w+)\s*\(([^;{]*)\)\s*;", text):
        inside = " ".join(match[2].split())
        if "(" in inside or "[" in inside:
            fail(f"{match[1]}: a parameter of a kind that this script cannot read: {inside}")
        parts = [] if inside in ("", "void") else [part.strip() for part in inside.split(",")]
        found.setdefault(match[1], [parse_parameter(part, i) for i, part in enumerate(parts)])
    return found


def remaining_macros(compiler: str, headers: Path) -> list[str]:
    text = preprocess(compiler, headers, "-D__CUDA_API_VERSION_INTERNAL", "-dM")
    return sorted(re.findall(r"^#define (cu[A-Z]\w*) ", text, flags=re.MULTILINE))


def read_list(path: Path) -> list[Entry]:
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("TESSERA_DRIVER_FUNCTION"):
            continue
        match = re.fullmatch(r"TESSERA_DRIVER_FUNCTION\((\w+), (\w+), (\w+), (\d+), ([01])\)", line)
        if match is None or match[1] not in KINDS:
            fail(f"{path}:{number}: not a line of the list: {line}")
        assert match is not None
        entries.append(Entry(match[1], match[2], match[3], int(match[4]), match[5] == "1"))
    return entries


def typedef_versions(headers: Path) -> dict[str, set[tuple[int, bool]]]:
    versions: dict[str, set[tuple[int, bool]]] = {}
    text = (headers / "cudaTypedefs.h").read_text()
    for match in re.finditer(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
        versions.setdefault(match[1], set()).add((int(match[2]), match[3] is not None))
    return versions


def typedef_bases(headers: Path, pattern: str) -> set[str]:
    names: set[str] = set()
    for header in sorted(headers.glob(pattern)):
        names.update(re.findall(r"PFN_(cu\w+?)_v\d+", header.read_text()))
    return names


def check(
    entries: list[Entry],
    declared: dict[str, list[Parameter]],
    versions: dict[str, set[tuple[int, bool]]],
) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.symbol in seen:
            fail(f"{entry.symbol} is on the list twice")
        seen.add(entry.symbol)
        if entry.symbol not in declared:
            fail(f"{entry.symbol} is on the list, but cuda.h does not declare it")
        suffix = entry.symbol.removeprefix(entry.base)
        if not re.fullmatch(r"(_v\d+)?(_ptsz|_ptds)?", suffix):
            fail(f"{entry.symbol} is no version of {entry.base}")
        if entry.per_thread != suffix.endswith(("_ptsz", "_ptds")):
            fail(f"{entry.symbol}: the per-thread flag contradicts the name")
        if (entry.version, entry.per_thread) not in versions.get(entry.base, set()):
            fail(f"{entry.symbol}: cudaTypedefs.h knows no {entry.base} of version {entry.version}")
    listed = {(entry.base, entry.kind) for entry in entries}
    for base in {entry.base for entry in entries}:
        # Where any version is PASS they are told apart by pointer: a CALLED one would look new.
        if {(base, "PASS"), (base, "CALLED")} <= listed:
            fail(f"{base} is PASS in one version and CALLED in another")
    for symbol, parameters in declared.items():
        if symbol not in seen and any("CUstream" in re.split(r"\W+", p.type) for p in parameters):
            fail(
                f"{symbol} has a CUstream parameter and is not on the list: add it to "
                "functions.def as CUSTOM, ORDERED or PASS"
            )


def stream_of(entry: Entry, parameters: list[Parameter]) -> str:
    streams = [p.name for p in parameters if p.type == "CUstream"]
    if len(streams) != 1:
        fail(f"{entry.symbol} is ORDERED, but has {len(streams)} streams")
    return streams[0]


def write_declarations(macros: list[str], missing: dict[str, list[Parameter]]) -> str:
    lines = [NOTICE, "#pragma once\n", "#include <cuda.h>\n"]
    lines.append("// What cuda.h leaves defined: names mean exactly the symbol of that name.")
    lines += [f"#undef {name}" for name in macros]
    lines.append('\nextern "C" {')
    for symbol, parameters in missing.items():
        inside = ", ".join(p.declaration() for p in parameters) or "void"
        lines.append(f"CUresult CUDAAPI {symbol}({inside});")
    lines.append("}\n")
    return "\n".join(lines)


def signature(entry: Entry, parameters: list[Parameter]) -> str:
    inside = ", ".join(p.declaration() for p in parameters)
    return f"CUresult CUDAAPI {entry.symbol}({inside})"


def write_forwarders(entries: list[Entry], declared: dict[str, list[Parameter]]) -> str:
    lines = [NOTICE, '#include "driver.h"\n', "using tessera::shim::driver;\n"]
    lines.append("// Weak: a definition by hand takes their place.")
    for entry in entries:
        if entry.kind == "CUSTOM":
            parameters = declared[entry.symbol]
            arguments = ", ".join(p.name for p in parameters)
            defined = signature(entry, parameters)
            lines.append(f"TESSERA_DRIVER_ENTRY __attribute__((weak)) {defined} {{")
            lines.append(f"  return driver().{entry.symbol}({arguments});\n}}")
    return "\n".join(lines) + "\n"


def write_ordered(entries: list[Entry], declared: dict[str, list[Parameter]]) -> str:
    lines = [NOTICE, '#include "driver.h"', '#include "runtime.h"', '#include "seams.h"\n']
    lines.append("using namespace tessera::shim;\n")
    for entry in entries:
        if entry.kind == "ORDERED":
            parameters = declared[entry.symbol]
            arguments = ", ".join(p.name for p in parameters)
            per_thread = "true" if entry.per_thread else "false"
            stream = stream_of(entry, parameters)
            lines.append(f"TESSERA_DRIVER_ENTRY {signature(entry, parameters)} {{")
            lines.append(f"  if (!runtime().active()) return driver().{entry.symbol}({arguments});")
            call = f"driver().{entry.symbol}({arguments})"
            lines.append(f"  return opaque({stream}, {per_thread}, [&] {{ return {call}; }});\n}}")
    return "\n".join(lines) + "\n"


def library_names(listing: Path) -> list[str]:
    """The functions of host libraries that the shim stands in for."""
    text = listing.read_text()
    calls = re.findall(r"^TESSERA_BLAS\(\w+, (\w+),", text, re.MULTILINE)
    return [*LIBRARY_EXPORTS, *calls, *(f"{name}_64" for name in calls)]


def write_exports(entries: list[Entry], libraries: Path) -> str:
    names = [e.symbol for e in entries if e.kind in INTERPOSED] + list(LOADER_EXPORTS)
    names += library_names(libraries)
    inside = "".join(f"    {name};\n" for name in sorted(names))
    return f"# Written by shim/generate.py.\n{{\n  global:\n{inside}  local: *;\n}};\n"


def write_known(declared: dict[str, list[Parameter]], headers: Path) -> str:
    """What a program may ask for. Of cuda.h's relatives (OpenGL and the like), whose
    headers need more than a C++ compiler, only the base names are known."""
    bases = typedef_bases(headers, "cuda*Typedefs.h") | {"cuGetExportTable"}
    relatives = {
        name + version + stream
        for name in bases - typedef_bases(headers, "cudaTypedefs.h")
        for version in ("", "_v2")
        for stream in ("", "_ptsz", "_ptds")
    }
    lines = [f'TESSERA_KNOWN_BASE("{name}")' for name in sorted(bases)]
    lines += [f'TESSERA_KNOWN_SYMBOL("{name}")' for name in sorted(declared.keys() | relatives)]
    return NOTICE + "\n".join(lines) + "\n"


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--headers", required=True, type=Path, help="folder of cuda.h")
    parser.add_argument("--list", required=True, type=Path, help="functions.def")
    parser.add_argument("--libraries", required=True, type=Path, help="blas_functions.def")
    parser.add_argument("--output", required=True, type=Path, help="folder to write into")
    arguments = parser.parse_args()
    internal = declarations(
        preprocess(arguments.compiler, arguments.headers, "-D__CUDA_API_VERSION_INTERNAL")
    )
    plain = declarations(preprocess(arguments.compiler, arguments.headers))
    # The internal mode alone is not complete: it leaves some macros defined.
    missing = {symbol: rest for symbol, rest in plain.items() if symbol not in internal}
    declared = {**internal, **missing}
    entries = read_list(arguments.list)
    check(entries, declared, typedef_versions(arguments.headers))
    macros = remaining_macros(arguments.compiler, arguments.headers)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "driver_declarations.h": write_declarations(macros, missing),
        "forwarders.cc": write_forwarders(entries, declared),
        "ordered_calls.cc": write_ordered(entries, declared),
        "exports.map": write_exports(entries, arguments.libraries),
        "known_names.def": write_known(declared, arguments.headers),
    }.items():
        write_if_changed(arguments.output / name, text)


if __name__ == "__main__":
    main()
