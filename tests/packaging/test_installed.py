# SPDX-License-Identifier: Apache-2.0
"""The installed package is whole: it needs no variable to find its native parts."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

try:
    DISTRIBUTION = importlib.metadata.distribution("tessera")
except importlib.metadata.PackageNotFoundError:
    DISTRIBUTION = None

pytestmark = pytest.mark.skipif(
    DISTRIBUTION is None, reason="tessera is not installed (make build installs it)"
)


def in_clean_python(program: str) -> str:
    """What a program prints in a Python that sees only the installed package."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"TESSERA_NATIVE_DIR", "PYTHONPATH", "LD_LIBRARY_PATH"}
    }
    result = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "name",
    [
        "libtessera.so",
        "tessera-worker",
        "libtessera_ptx.so",
        "libtessera_access.so",
        "sim/libcuda.so.1",
    ],
)
def test_native_artefacts_are_found(name: str) -> None:
    """Every artefact lies in the package."""
    found = in_clean_python(
        f"from tessera.native import library_path; print(library_path({name!r}))"
    )
    assert Path(found.strip()).is_file()


def test_headers_for_cffi_are_found() -> None:
    """The binding reads C declarations from the package."""
    printed = in_clean_python(
        "from tessera.native import cdef_text\n"
        "for name in ('ptx/capi', 'access/summary', 'protocol/control', 'protocol/channel'):\n"
        "    print(name, len(cdef_text(f'tessera/{name}.h')))"
    )
    assert len(printed.splitlines()) == 4


def test_version_is_the_package_s() -> None:
    """Metadata and package agree."""
    version = in_clean_python("import tessera; print(tessera.__version__)").strip()
    assert DISTRIBUTION is not None
    assert DISTRIBUTION.version == version


def test_command_is_installed() -> None:
    """tessera-ctl stands beside the interpreter."""
    command = Path(sys.executable).parent / "tessera-ctl"
    result = subprocess.run(
        [str(command), "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


def test_wheel_holds_no_extension_for_one_python() -> None:
    """One wheel serves every Python: its tag names none, and no test program is in it."""
    assert DISTRIBUTION is not None
    tags = DISTRIBUTION.read_text("WHEEL") or ""
    assert "Tag: py3-none-" in tags
    names = [str(file) for file in DISTRIBUTION.files or []]
    assert not [name for name in names if ".cpython-" in name and name.endswith(".so")]
    assert not [name for name in names if name.endswith(("_test", "_bench", "_fuzz"))]
