# SPDX-License-Identifier: Apache-2.0
"""Runs the driver's conformance program alone and under an active shim: the same lines.

    python driver_parity.py CONFORMANCE-PROGRAM NATIVE-FOLDER

The program prints what several hundred driver calls answer, wrong uses among them.
What may differ is listed here with its reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MAY_DIFFER = [
    (r"mem_alloc\.distance", "where the next block lies is the allocator's choice"),
    (r"fault_\w+\.record", "whether the launch before it has failed by then is a matter of time"),
    (r"pointers\.\w+( interior)? 20", "block ids are unique numbers, no more"),
    (r"pointers\.\w+( interior)? 15", "the simulator's pointers and devices disagree about RDMA"),
    (
        r"pointers\.pool (18|19)",
        "how a pool maps its memory: the slot's chunks begin smaller than 32 MiB",
    ),
]


def run(command: list[str], environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        sys.exit(
            f"{command} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}"
        )
    return done.stdout.splitlines()


def allowed(line: str) -> bool:
    key = line.split(":", maxsplit=1)[0]
    return any(re.fullmatch(pattern, key) for pattern, _reason in MAY_DIFFER)


def main() -> int:
    program, native = sys.argv[1], Path(sys.argv[2])
    control = [sys.executable, "-m", "tessera.cli.main"]
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        environment |= {
            "LD_LIBRARY_PATH": str(native / "sim"),
            "TESSERA_SIM_DEVICES": "H200,L40S",
            "TESSERA_NATIVE_DIR": str(native),
            "TESSERA_RUNTIME_DIR": f"{folder}/run",
            "TESSERA_STORE": f"{folder}/store.db",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "control"),
        }
        alone = run([program], environment)
        run([*control, "up"], environment)
        try:
            under = run([program], environment | {"LD_PRELOAD": str(native / "libtessera.so")})
        finally:
            run([*control, "down"], environment)
    wrong = 0
    for before, after in zip(alone, under, strict=False):
        if before != after and not (allowed(before) and allowed(after)):
            print(f"alone: {before}\nshim:  {after}")
            wrong += 1
    if len(alone) != len(under):
        print(f"{len(alone)} lines alone, {len(under)} under the shim")
        wrong += 1
    print(f"{len(alone)} lines, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
