# SPDX-License-Identifier: Apache-2.0
"""Run every benchmark that needs no GPU, one after the other, and print what each says.

A benchmark is a program in the build named *_bench or *_benchmark, or a Python file
here named bench_*.py. Each prints its own figures; each exits with an error when it
could not measure. Run them on a machine that does nothing else.

    python tools/bench/run.py            all
    python tools/bench/run.py access     those whose names contain "access"
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "native"


def benchmarks() -> list[tuple[str, list[str]]]:
    """(name, command) of each."""
    programs = sorted(
        path
        for pattern in ("*_bench", "*_benchmark")
        for path in BUILD.rglob(pattern)
        if path.is_file() and os.access(path, os.X_OK)
    )
    scripts = sorted(Path(__file__).parent.glob("bench_*.py"))
    return [(path.name, [str(path)]) for path in programs] + [
        (path.stem, [sys.executable, str(path)]) for path in scripts
    ]


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [
        (name, command)
        for name, command in benchmarks()
        if not wanted or any(word in name for word in wanted)
    ]
    if not chosen:
        sys.exit("no such benchmark" if wanted else f"no benchmark in {BUILD}: make build")
    failed = []
    for name, command in chosen:
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
