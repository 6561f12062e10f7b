# SPDX-License-Identifier: Apache-2.0
"""Cubins that come as bytes are found in the compiler's cache, by content alone."""

import os
from pathlib import Path

from tessera.service.cubin_cache import cache_folders, environment_of, find_cubin


def test_finds_equal_bytes_only(tmp_path: Path) -> None:
    for name, data in (("one", b"abcd"), ("two", b"abce"), ("three", b"abcde")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.cubin").write_bytes(data)
        (tmp_path / name / "kernel.ptx").write_bytes(b"abce")
    assert find_cubin(b"abce", [tmp_path]) == tmp_path / "two" / "kernel.cubin"
    assert find_cubin(b"abcf", [tmp_path, tmp_path / "absent"]) is None


def test_folders_follow_the_program(tmp_path: Path) -> None:
    folders = cache_folders({"HOME": "/h", "TRITON_CACHE_DIR": str(tmp_path)}, os.getuid())
    assert folders == [tmp_path, Path("/h/.triton/cache")]


def test_reads_the_environment_of_a_process() -> None:
    assert environment_of(os.getpid()).keys() <= set(os.environ) | {"LD_PRELOAD"}
    assert environment_of(2**30) == {}
