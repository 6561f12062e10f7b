# SPDX-License-Identifier: Apache-2.0
"""Runs somebody else's pytest files on the simulated driver, without and with the shim.

    python foreign_tests.py FOLDER-OF-TESTS [FILE ...]

For instance the folder cuda_core/tests of a checkout of NVIDIA's cuda-python. Every
file runs in a process of its own. Says which tests pass alone and not under the shim,
and ends with 1 when there is one. The environment names the driver, the devices and
the controller (docs/cases.md has the command); TESSERA_NATIVE_DIR leads to the shim.
FOREIGN_TESTS_OPTIONS are more options for pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

TIMEOUT = 600  # seconds for one file


def outcomes(report: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    if not report.exists():
        return found
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = next((k for k in ("failure", "error", "skipped") if k in kinds), "passed")
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return found


def run(folder: Path, file: str, preload: str | None) -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    if preload is not None:
        environment["LD_PRELOAD"] = preload
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        options += os.environ.get("FOREIGN_TESTS_OPTIONS", "").split()
        command = [sys.executable, "-m", "pytest", "--timeout=60", *options, file]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {file: "timeout"}
        found = outcomes(report)
        if done.returncode < 0 or not found:
            found[file] = f"ended with {done.returncode}"
        return found


def main() -> int:
    folder = Path(sys.argv[1])
    files = sys.argv[2:] or sorted(str(p.relative_to(folder)) for p in folder.rglob("test_*.py"))
    shim = str(Path(os.environ["TESSERA_NATIVE_DIR"]) / "libtessera.so")
    alone_all, worse = Counter[str](), 0
    for file in files:
        alone, under = run(folder, file, None), run(folder, file, shim)
        alone_all.update(alone.values())
        print(
            f"{file}: alone {dict(Counter(alone.values()))}, shim {dict(Counter(under.values()))}"
        )
        for test, outcome in alone.items():
            if outcome == "passed" and under.get(test) != "passed":
                print(f"  WORSE {test}: {under.get(test, 'no result')}")
                worse += 1
        sys.stdout.flush()
    print(f"alone: {dict(alone_all)}; worse under the shim: {worse}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
