# SPDX-License-Identifier: Apache-2.0
"""Writes a body for every function of cuda.h, for the stub driver of the tests.

Each is weak, records its call and returns CUDA_SUCCESS; stub_driver.cc overrides
those that have to do something.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import generate


def versions_of(
    symbols: list[str], versions: dict[str, set[tuple[int, bool]]]
) -> list[tuple[str, str, int, bool]]:
    """(base, symbol, version, per_thread): versions in their order belong to suffixes in theirs."""
    bases: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for symbol in symbols:
        match = re.fullmatch(r"(cu\w+?)((?:_v\d+)?)(_ptsz|_ptds)?", symbol)
        assert match is not None
        bases.setdefault((match[1], match[3] is not None), []).append((match[2], symbol))
    rows = []
    for (base, per_thread), found in sorted(bases.items()):
        numbers = sorted(v for v, p in versions.get(base, set()) if p == per_thread)
        rows += [(base, s, v, per_thread) for (_, s), v in zip(sorted(found), numbers, strict=True)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--headers", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()
    text = generate.preprocess(
        arguments.compiler, arguments.headers, "-D__CUDA_API_VERSION_INTERNAL"
    )
    declared = generate.declarations(text)
    lines = ['#include "driver_declarations.h"', '#include "stub_driver.h"', 'extern "C" {']
    for symbol, parameters in declared.items():
        inside = ", ".join(p.type for p in parameters)
        lines.append(
            f'__attribute__((weak, visibility("default"))) CUresult {symbol}({inside}) '
            f'{{ static std::atomic<int>& calls = stub::counter("{symbol}"); '
            f"++calls; return CUDA_SUCCESS; }}"
        )
    lines.append("}\nnamespace stub {\nconst Function kFunctions[] = {")
    for base, symbol, version, per_thread in versions_of(
        list(declared), generate.typedef_versions(arguments.headers)
    ):
        flag = "true" if per_thread else "false"
        lines.append(
            f'  {{"{base}", "{symbol}", {version}, {flag}, reinterpret_cast<void*>(&::{symbol})}},'
        )
    lines.append("};\nconst size_t kFunctionCount = sizeof(kFunctions) / sizeof(kFunctions[0]);\n}")
    arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
