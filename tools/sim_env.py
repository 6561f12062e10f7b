# SPDX-License-Identifier: Apache-2.0
"""The environment in which programs find the simulated driver instead of a real one.

Used by tools/with-simulated-gpus, the demo and the tests. Needs only the standard library.
"""

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
DEFAULT_DEVICES = "A100,L40S"


class NotBuiltError(Exception):
    """The simulated driver is nowhere; the message says where it was looked for."""


def native_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the native artefacts.

    That of TESSERA_NATIVE_DIR, else of the package installed beside this Python, else of
    this source tree's virtual environment or build. Raises NotBuiltError.
    """
    if given := environment.get("TESSERA_NATIVE_DIR"):
        candidates = [Path(given)]
    else:
        root = TOOLS.parent
        candidates = [
            Path(sysconfig.get_path("platlib")) / "tessera" / "_native",
            *sorted(root.glob(".venv/lib/python*/site-packages/tessera/_native")),
            root / "build" / "native" / "native_out",
        ]
    for folder in candidates:
        if (folder / "sim" / "libcuda.so.1").exists():
            return folder
    tried = "\n  ".join(str(folder / "sim" / "libcuda.so.1") for folder in candidates)
    raise NotBuiltError(f"the simulated driver is not built (make build). Looked for:\n  {tried}")


def changes(environment: Mapping[str, str], devices: str = DEFAULT_DEVICES) -> dict[str, str]:
    """The variables to set, over `environment`. Raises NotBuiltError."""
    folder = str(native_dir(environment) / "sim")
    search = [folder]
    if before := environment.get("LD_LIBRARY_PATH"):
        search += [part for part in before.split(":") if part != folder]
    copy = str(TOOLS / "ptxas-copy")
    return {
        "LD_LIBRARY_PATH": ":".join(search),
        "TESSERA_SIM_DEVICES": devices,
        "TRITON_LIBCUDA_PATH": folder,
        "TRITON_PTXAS_PATH": copy,
        "TRITON_PTXAS_BLACKWELL_PATH": copy,
        # Its cache does not tell PTX in place of machine code from machine code.
        "TRITON_CACHE_DIR": str(cache_dir(environment) / "triton"),
        "TRITON_DEFAULT_FP_FUSION": environment.get("TRITON_DEFAULT_FP_FUSION", "1"),
    }


def cache_dir(environment: Mapping[str, str]) -> Path:
    """Where compiled kernels of simulated runs are kept."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tessera-simulated"
