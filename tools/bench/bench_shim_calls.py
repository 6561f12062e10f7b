# SPDX-License-Identifier: Apache-2.0
"""Count the instructions that the shim adds to one driver call, with callgrind.

Unlike times these figures do not depend on the machine. Each program runs with two
counts of calls; what the difference costs is the calls' own. "Added" is that with
libtessera.so preloaded (and no controller) less that without it.

    python tools/bench/bench_shim_calls.py
    python tools/bench/bench_shim_calls.py --build BUILD --check   fail above the limits
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FEW, MANY = 1000, 11000
# Instructions added to a call that the shim passes through, by kind.
# A hand-written wrapper notes that its thread is inside, reads one atomic, and counts.
LIMITS = {"custom": 40, "ordered": 20, "unlisted": 0, "dlsym": 100, "find_function": 40}
WHAT = {
    "custom": "a function written by hand, passing through",
    "ordered": "a generated function, passing through",
    "unlisted": "a function that is not interposed",
    "dlsym": "a dlsym of a name that is none of the driver's",
    "find_function": "the registry's lookup by handle, with the loop around it",
}


def instructions(command: list[str], environment: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}"]
        done = subprocess.run(
            [*valgrind, *command], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr}")
        match = re.search(r"^(?:summary|totals): (\d+)", output.read_text(), flags=re.MULTILINE)
        if match is None:
            sys.exit("callgrind's output has no total")
        return int(match[1])


def per_call(command: list[str], environment: dict[str, str]) -> float:
    few = instructions([*command, str(FEW)], environment)
    many = instructions([*command, str(MANY)], environment)
    return (many - few) / (MANY - FEW)


def measure(tests: Path, library: Path) -> dict[str, float]:
    plain = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tests / "outer"),
        "TESSERA_RUNTIME_DIR": str(tests / "no-controller"),
        "TESSERA_LOG": "error",
    }
    plain.pop("LD_PRELOAD", None)
    preloaded = {**plain, "LD_PRELOAD": str(library)}
    program = str(tests / "shim_count_calls")
    added = {
        kind: per_call([program, kind], preloaded) - per_call([program, kind], plain)
        for kind in ("custom", "ordered", "unlisted", "dlsym")
    }
    added["find_function"] = per_call([str(tests / "shim_count_lookups")], plain)
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--build", type=Path, default=root / "build" / "native")
    parser.add_argument("--check", action="store_true", help="exit 1 above the limits")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed (Debian, Ubuntu: apt install valgrind)")
    build = options.build.resolve()
    figures = measure(build / "shim" / "tests", build / "native_out" / "libtessera.so")
    for kind, value in figures.items():
        print(f"{kind:14} {value:6.1f} instructions (limit {LIMITS[kind]}): {WHAT[kind]}")
    above = [kind for kind, value in figures.items() if value > LIMITS[kind] + 0.5]
    if options.check and above:
        sys.exit(f"above the limit: {', '.join(above)}")


if __name__ == "__main__":
    main()
