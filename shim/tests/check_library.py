# SPDX-License-Identifier: Apache-2.0
"""Looks at libtessera.so as a file: what it needs, exports, and runs at load."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ALLOWED_NEEDED = re.compile(
    r"libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux.*\.so\.\d"
)
# Initialisers of the statically linked C++ library.
ALLOWED_INITIALISERS = {
    "frame_dummy",
    "_GLOBAL__sub_I_eh_alloc.cc",
    "_GLOBAL__sub_I_system_error.cc",
    "_GLOBAL__sub_I_cxx11_ios_failure.cc",
    "_GLOBAL__sub_I_cxx11_locale_inst.cc",
    "_GLOBAL__sub_I_cxx11_wlocale_inst.cc",
    "_GLOBAL__sub_I_locale_inst.cc",
    "_GLOBAL__sub_I_wlocale_inst.cc",
}


def tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW", str(library)))


def exports(library: Path) -> dict[str, str]:
    found = {}
    for line in tool("nm", "-D", "--defined-only", str(library)).splitlines():
        _, kind, name = line.split()
        found[name] = kind
    return found


def wanted(version_script: Path) -> set[str]:
    return set(re.findall(r"^    (\w+);$", version_script.read_text(), flags=re.MULTILINE))


def initialisers(library: Path) -> set[str]:
    text = tool("nm", str(library))
    return set(re.findall(r"\bt (_GLOBAL__sub_I_\S+|frame_dummy)$", text, flags=re.MULTILINE))


def check_needed(library: Path) -> list[str]:
    return [f"NEEDED {n}" for n in needed(library) if not ALLOWED_NEEDED.fullmatch(n)]


def check_exports(library: Path, version_script: Path) -> list[str]:
    have, want = set(exports(library)), wanted(version_script)
    return [f"not exported: {n}" for n in sorted(want - have)] + [
        f"exported, not on the list: {n}" for n in sorted(have - want)
    ]


def check_initialisers(library: Path) -> list[str]:
    found = initialisers(library) - ALLOWED_INITIALISERS
    return [f"runs at load: {name}" for name in sorted(found)]


def check_forwarders(library: Path, allowed_file: Path) -> list[str]:
    allowed = set(allowed_file.read_text().split())
    weak = sorted(name for name, kind in exports(library).items() if kind == "W")
    print(f"{len(weak)} functions are only forwarded:", *weak)
    return [f"forwarded, and not in {allowed_file.name}: {n}" for n in weak if n not in allowed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=("needed", "exports", "initialisers", "forwarders"))
    parser.add_argument("library", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    arguments = parser.parse_args()
    problems = {
        "needed": lambda: check_needed(arguments.library),
        "exports": lambda: check_exports(arguments.library, arguments.other),
        "initialisers": lambda: check_initialisers(arguments.library),
        "forwarders": lambda: check_forwarders(arguments.library, arguments.other),
    }[arguments.check]()
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
