# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of the simulated driver that follow from the CUDA headers alone.

One source of truth: the declarations in cuda.h give the exported names and
their signatures, the PFN_ typedefs in cudaTypedefs.h give the CUDA version in
which each variant appeared. From them this script writes

    api_stubs.cc    a weak definition for every exported name. Where the driver
                    defines the name, the linker takes that definition; where it
                    does not, the weak one answers CUDA_ERROR_NOT_SUPPORTED and
                    is counted. So no list of implemented functions exists.
    proc_table.cc   what cuGetProcAddress answers per name, version and flags.

    generate.py --headers DIR --compiler CC --output DIR
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys
from collections import defaultdict

# Exported by the driver, declared in headers that need OpenGL, EGL or VDPAU
# headers (or in no packaged header): stubs without a signature.
UNDECLARED = """
cuEGLApiInit cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerConnect
cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect
cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect
cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame cuGLCtxCreate cuGLCtxCreate_v2
cuGLGetDevices cuGLGetDevices_v2 cuGLInit cuGLMapBufferObject cuGLMapBufferObjectAsync
cuGLMapBufferObjectAsync_v2 cuGLMapBufferObjectAsync_v2_ptsz cuGLMapBufferObject_v2
cuGLMapBufferObject_v2_ptds cuGLRegisterBufferObject cuGLSetBufferObjectMapFlags
cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject
cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage
cuGraphicsResourceGetMappedEglFrame cuGraphicsVDPAURegisterOutputSurface
cuGraphicsVDPAURegisterVideoSurface cuMemGetAttribute cuMemGetAttribute_v2
cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 cuVDPAUGetDevice
""".split()

# Of cudaProfiler.h, which no package of headers carries; api.h declares them for the driver.
PROFILER = """
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode);
CUresult cuProfilerStart(void); CUresult cuProfilerStop(void);
"""

# Variants whose order of appearance does not follow from the numbers in their names.
EXPLICIT = {
    ("cuGraphInstantiate", 12000): "cuGraphInstantiateWithFlags",
}

INTEROP_TYPEDEFS = (
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
)


@dataclasses.dataclass(frozen=True)
class Declaration:
    name: str
    parameters: str

    @property
    def stem(self) -> str:
        """The name that programs ask for: without _v2, _ptsz, _ptds."""
        return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", self.name)

    @property
    def revision(self) -> int:
        found = re.search(r"_v(\d+)(_ptsz|_ptds)?$", self.name)
        return int(found.group(1)) if found else 1

    @property
    def per_thread(self) -> bool:
        return self.name.endswith(("_ptsz", "_ptds"))

    @property
    def argument_names(self) -> list[str]:
        if self.parameters in ("", "void"):
            return []
        return [
            re.split(r"[\s*]+", p.split("[")[0].strip())[-1]
            for p in split_arguments(self.parameters)
        ]

    @property
    def argument_types(self) -> list[str]:
        if self.parameters in ("", "void"):
            return []
        types = []
        for parameter in split_arguments(self.parameters):
            name = re.split(r"[\s*]+", parameter.split("[")[0].strip())[-1]
            types.append(
                re.sub(rf"\b{re.escape(name)}\b(?=\s*(\[|$))", "", parameter).replace(" ", "")
            )
        return types


def split_arguments(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def preprocess(compiler: str, headers: pathlib.Path) -> str:
    source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cudaTypedefs.h>\n"
    done = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", f"-I{headers}", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"generate.py: preprocessing cudaTypedefs.h failed:\n{done.stderr}")
    return " ".join((done.stdout + PROFILER).split())


def declarations(text: str) -> list[Declaration]:
    found: dict[str, Declaration] = {}
    for name, parameters in re.findall(r"CUresult (cu[A-Z]\w*) ?\(([^()]*)\) ?;", text):
        found[name] = Declaration(name, parameters.strip())
    return sorted(found.values(), key=lambda d: d.name)


def versions(text: str, headers: pathlib.Path) -> dict[tuple[str, bool], list[int]]:
    """(name, per thread) -> CUDA versions that introduced a variant, ascending."""
    for header in INTEROP_TYPEDEFS:
        path = headers / header
        if path.exists():
            text += " ".join(path.read_text(encoding="utf-8").split())
    table: dict[tuple[str, bool], set[int]] = defaultdict(set)
    for name, version, suffix in re.findall(
        r"\*\s*PFN_(cu[A-Z]\w*?)_v(\d+)(_ptsz|_ptds)?\s*\)", text
    ):
        table[name, bool(suffix)].add(int(version))
    return {key: sorted(values) for key, values in table.items()}


@dataclasses.dataclass(frozen=True)
class Entry:
    stem: str
    version: int
    per_thread: bool
    function: str


def proc_entries(names: list[Declaration], table: dict[tuple[str, bool], list[int]]) -> list[Entry]:
    variants: dict[tuple[str, bool], list[Declaration]] = defaultdict(list)
    for declaration in names:
        variants[declaration.stem, declaration.per_thread].append(declaration)
    exported = {declaration.name for declaration in names}
    entries = []
    problems = []
    for (stem, per_thread), known in sorted(table.items()):
        functions = sorted(variants.get((stem, per_thread), []), key=lambda d: d.revision)
        plain = [v for v in known if (stem, v) not in EXPLICIT]
        for version in known:
            if (stem, version) in EXPLICIT:
                entries.append(Entry(stem, version, per_thread, EXPLICIT[stem, version]))
        if not functions:
            continue  # another platform's function (cuWGLGetDevice)
        if len(plain) != len(functions):
            problems.append(f"{stem}: versions {plain}, functions {[d.name for d in functions]}")
            continue
        for version, function in zip(plain, functions, strict=True):
            entries.append(Entry(stem, version, per_thread, function.name))
    reached = {entry.function for entry in entries}
    unversioned = sorted(d.name for d in names if d.name not in reached)
    if problems:
        sys.exit("generate.py: versions and functions do not pair:\n  " + "\n  ".join(problems))
    assert all(entry.function in exported for entry in entries)
    for name in unversioned:
        print(f"generate.py: {name} has no version in the headers; exported only", file=sys.stderr)
    return sorted(entries, key=lambda e: (e.stem, e.per_thread, e.version))


def stub(declaration: Declaration, index: int, by_name: dict[str, Declaration]) -> str:
    arguments = ", ".join(declaration.argument_names)
    head = f"CUresult {declaration.name}({declaration.parameters})"
    if declaration.per_thread:
        plain = re.sub(r"_pts[z]$|_ptds$", "", declaration.name)
        # Not weak: a per-thread variant is always the plain function under another default stream.
        return f"{head} {{\n  const PerThreadDefault scope;\n  return {plain}({arguments});\n}}\n"
    newest = max(
        (d for d in by_name.values() if d.stem == declaration.stem and not d.per_thread),
        key=lambda d: d.revision,
    )
    if (
        newest.revision > declaration.revision
        and newest.argument_types == declaration.argument_types
    ):
        return f"WEAK {head} {{ return {newest.name}({arguments}); }}\n"
    types = declaration.parameters or "void"
    return (
        f"WEAK CUresult {declaration.name}({types}) {{\n"
        + "".join(f"  (void){name};\n" for name in declaration.argument_names)
        + f"  return unsupported({index});\n}}\n"
    )


def write_stubs(path: pathlib.Path, names: list[Declaration], undeclared: list[str]) -> None:
    by_name = {declaration.name: declaration for declaration in names}
    lines = [
        "// Generated by generate.py from the CUDA headers.",
        '#include "api.h"',
        '#include "report.h"',
        "#define WEAK __attribute__((weak))",
        "using tessera::sim::PerThreadDefault;",
        "using tessera::sim::unsupported;",
        "namespace tessera::sim {",
        "const char* const kStubNames[] = {",
    ]
    lines += [f'    "{d.name}",' for d in names] + [f'    "{name}",' for name in undeclared]
    lines += [
        "};",
        f"const unsigned kStubCount = {len(names) + len(undeclared)};",
        "}  // namespace tessera::sim",
    ]
    lines += ['extern "C" {', "#pragma GCC visibility push(default)"]
    lines += [stub(declaration, index, by_name) for index, declaration in enumerate(names)]
    for index, name in enumerate(undeclared, start=len(names)):
        lines.append(
            f"CUresult {name}();\nWEAK CUresult {name}() {{ return unsupported({index}); }}\n"
        )
    lines += ["#pragma GCC visibility pop", "}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_table(path: pathlib.Path, entries: list[Entry], declared: set[str]) -> None:
    lines = [
        "// Generated by generate.py from the CUDA headers.",
        '#include "api.h"',
        '#include "proc_table.h"',
        'extern "C" {',
    ]
    lines += [f"CUresult {name}();" for name in sorted({e.function for e in entries} - declared)]
    lines += ["}", "namespace tessera::sim {", "const ProcEntry kProcTable[] = {"]
    lines += [
        f'    {{"{e.stem}", {e.version}, {str(e.per_thread).lower()}, '
        f"reinterpret_cast<void*>(&::{e.function})}},"
        for e in entries
    ]
    lines += [
        "};",
        f"const unsigned kProcTableSize = {len(entries)};",
        "}  // namespace tessera::sim",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--headers", type=pathlib.Path, required=True, help="folder of cuda.h")
    parser.add_argument("--compiler", required=True, help="C compiler, for preprocessing")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    text = preprocess(options.compiler, options.headers)
    names = declarations(text)
    undeclared = [name for name in UNDECLARED if name not in {d.name for d in names}]
    table = versions(text, options.headers)
    every = sorted(names + [Declaration(name, "void") for name in undeclared], key=lambda d: d.name)
    options.output.mkdir(parents=True, exist_ok=True)
    write_stubs(options.output / "api_stubs.cc", names, undeclared)
    write_table(
        options.output / "proc_table.cc", proc_entries(every, table), {d.name for d in names}
    )


if __name__ == "__main__":
    main()
