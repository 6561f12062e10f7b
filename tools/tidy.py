# SPDX-License-Identifier: Apache-2.0
"""Run clang-tidy on the project's C++ files, some at once; exit 1 when it finds something.

python tools/tidy.py --build build/native               every file that is compiled
python tools/tidy.py --build build/native --since main  those changed since a revision
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compiled_files(build: Path) -> list[Path]:
    """The project's own sources in the compilation database, generated ones left out.

    Raises SystemExit when there is no database.
    """
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"tidy: {database} is not there: make build")
    files = {Path(entry["file"]).resolve() for entry in json.loads(database.read_text())}
    ours = (ROOT / "native", ROOT / "shim")
    return sorted(path for path in files if any(path.is_relative_to(folder) for folder in ours))


def changed_files(revision: str) -> set[Path]:
    """Files that differ from `revision`, uncommitted changes included."""
    command = ["git", "diff", "--name-only", revision, "--"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {ROOT / name for name in listed.stdout.splitlines()}


def tidy(tool: str, build: Path, path: Path) -> tuple[Path, str]:
    """What clang-tidy says about one file; empty when it is content."""
    command = [tool, "--quiet", "-p", str(build), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return path, ""
    return path, result.stdout + ("" if result.stdout.strip() else result.stderr)


def find_tool() -> str:
    """clang-tidy of this Python's environment, else of the machine. Raises SystemExit."""
    tool = shutil.which("clang-tidy", path=sysconfig.get_path("scripts")) or shutil.which(
        "clang-tidy"
    )
    return tool or sys.exit("tidy: clang-tidy was not found: pip install clang-tidy")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of a configured build")
    parser.add_argument("--since", help="only files changed since this revision")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    tool = find_tool()
    files = compiled_files(options.build)
    if options.since:
        changed = changed_files(options.since)
        files = [path for path in files if path in changed]
    unhappy = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for path, said in pool.map(lambda one: tidy(tool, options.build, one), files):
            if said:
                unhappy += 1
                print(f"{path.relative_to(ROOT)}:\n{said}", flush=True)
    print(f"clang-tidy: {len(files)} files, {unhappy} with findings")
    sys.exit(unhappy > 0)


if __name__ == "__main__":
    main()
