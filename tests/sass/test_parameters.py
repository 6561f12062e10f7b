# SPDX-License-Identifier: Apache-2.0
"""Arrays of pointers and descriptors in the parameter block; functions that are listed apart."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings")
from tessera.analysis import Mode
from tessera.analysis.model import Flag
from tessera.native import access
from tessera.sass import DisassemblyError, Grade, SassSummary, analyze_cubin, disassembly, merge
from tessera.sass.elf import read_cubin

_SPEC = importlib.util.spec_from_file_location("sass_images", Path(__file__).with_name("images.py"))
assert _SPEC is not None and _SPEC.loader is not None
images = sys.modules.get("sass_images") or importlib.util.module_from_spec(_SPEC)
sys.modules["sass_images"] = images
_SPEC.loader.exec_module(images)

try:
    disassembly.nvdisasm()
except DisassemblyError as problem:
    pytest.skip(str(problem), allow_module_level=True)

SOURCE = Path(__file__).with_name("corpus") / "parameters.cu"
POINTERS = [0x10_0000_0000 + (n << 24) for n in range(20)]
WITH_MAPS = ("sm_90a", "sm_100a")  # elsewhere they are calls into a library


def cubin_of(architecture: str, *options: str) -> bytes:
    cubin: bytes = images.compile_source(SOURCE.read_text(), architecture, *options)[1]
    return cubin


def roles(found: SassSummary) -> dict[int, Mode]:
    return {a.parameter_offset: Mode(a.mode) for a in found.summary.accesses}


def ranges_of(found: SassSummary, blocks: int, block: bytes) -> list[tuple[int, int, int]]:
    blob = found.summary.to_blob()
    assert access.validate(blob)
    ranges = access.evaluate(blob, (1, blocks, 1), (32, 1, 1), block)
    return [(r.pointer, r.mode, r.flags) for r in ranges]


@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_an_array_indexed_by_the_block_is_claimed_as_far_as_the_grid_goes(
    architecture: str,
) -> None:
    found = analyze_cubin(cubin_of(architecture))["by_block"]
    assert found.grade is Grade.ATTRIBUTED, found.summary.reasons
    words = POINTERS[:17] + [0x7777_7777_7777_7777] * 8  # sizes are no pointers
    block = b"".join(word.to_bytes(8, "little") for word in words)
    for blocks in (1, 3, 16):
        have = {(pointer, mode) for pointer, mode, _ in ranges_of(found, blocks, block)}
        rest = bytes(block[: 8 * (blocks + 1)]) + b"\xff" * (len(block) - 8 * (blocks + 1))
        if blocks < 16:  # what lies beyond the grid may be anything
            assert {(p, m) for p, m, _ in ranges_of(found, blocks, rest)} == have
        reads = {(pointer, 1) for pointer in POINTERS[1 : blocks + 1]}
        assert have == reads | {(POINTERS[0], 2)}
    both = merge([found, found], 2)
    assert ranges_of(both, 3, block) == ranges_of(found, 3, block)


@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_an_array_indexed_by_data_may_be_any_word(architecture: str) -> None:
    found = analyze_cubin(cubin_of(architecture))["by_data"]
    assert found.grade in (Grade.CONSERVATIVE, Grade.UNKNOWN)
    if found.grade is Grade.CONSERVATIVE:
        have = roles(found)
        assert all(have[offset] & Mode.READ for offset in range(0, 16 + 128, 8))
        assert have[0] == Mode.READ | Mode.WRITE
        maybe = {a.parameter_offset for a in found.summary.accesses if a.flags & Flag.MAYBE}
        assert maybe >= set(range(16, 16 + 128, 8))


@pytest.mark.parametrize("options", [(), ("--maxrregcount=24",)], ids=str)
@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_loaded_differences_from_an_indexed_pointer_are_unknown(
    architecture: str, options: tuple[str, ...]
) -> None:
    found = analyze_cubin(cubin_of(architecture, *options))["by_block_and_loaded"]
    assert found.grade is Grade.UNKNOWN


@pytest.mark.parametrize("architecture", WITH_MAPS)
def test_a_descriptor_among_the_parameters_names_its_tensor(architecture: str) -> None:
    found = analyze_cubin(cubin_of(architecture))
    given = found["maps_given"]
    assert given.grade is Grade.ATTRIBUTED, given.summary.reasons
    [_, extra, _] = (offset for offset, _ in read_parameters(architecture, "maps_given"))
    maps = read_parameters(architecture, "maps_given")
    wanted = {maps[0][0]: Mode.READ, extra: Mode.WRITE, maps[2][0]: Mode.WRITE}
    assert roles(given) == wanted
    assert all(
        a.guard is None for a in given.summary.accesses if a.parameter_offset != extra
    )  # what is no live memory makes the launch unknown
    two = [offset for offset, _ in read_parameters(architecture, "one_of_two_maps")[:2]]
    assert roles(found["one_of_two_maps"]) == dict.fromkeys(two, Mode.READ)


@pytest.mark.parametrize("architecture", WITH_MAPS)
def test_a_descriptor_in_memory_may_describe_anything(architecture: str) -> None:
    found = analyze_cubin(cubin_of(architecture))
    for name in ("map_in_memory", "map_chosen_by_data"):
        assert found[name].grade is Grade.UNKNOWN, name
        assert not found[name].summary.may_move


def read_parameters(architecture: str, name: str) -> tuple[tuple[int, int], ...]:
    [kernel] = (k for k in read_cubin(cubin_of(architecture)).kernels if k.name == name)
    return kernel.parameters


def listed(data: bytes) -> list[Any]:
    """What nvdisasm says of a cubin."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        command = [disassembly.nvdisasm(), "-json", file.name]
        done = subprocess.run(command, capture_output=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_functions_listed_apart_are_one_section() -> None:
    """As releases up to 13.4 do, with the first function's size that of the whole section."""
    cubin_data = images.compile_source(
        'extern "C" __global__ void divide(long long* a, long long* b) '
        "{ a[threadIdx.x] /= b[threadIdx.x]; }",
        "sm_80",
    )[1]
    cubin = read_cubin(cubin_data)
    document = listed(cubin_data)
    inner = [s for s in cubin.symbols if s.is_function and s.section and s.value]
    assert inner, "the division is a function of its own"
    [whole] = (f for f in document[1] if f["function-name"] == "divide")
    code = whole["sass-instructions"]
    if 16 * len(code) > inner[0].value:  # a release that lists them together
        cut = inner[0].value // 16
        tail = {"function-name": inner[0].name, "start": inner[0].value}
        document[1] = [
            whole | {"sass-instructions": code[:cut]},
            tail | {"length": 16 * (len(code) - cut), "sass-instructions": code[cut:]},
        ]
    sections = disassembly._read(document, cubin_data, cubin).sections
    assert [ins.address for ins in sections["divide"]] == list(range(0, 16 * len(code), 16))
    gap = [document[1][0] | {"sass-instructions": code[: inner[0].value // 16 - 1]}]
    document[1] = gap + document[1][1:]
    assert "divide" not in disassembly._read(document, cubin_data, cubin).sections


def test_one_kernel_alone_is_known_as_among_all() -> None:
    data = images.compile_source(images.source("pointers", "sm_90a"), "sm_90a")[1]
    together = analyze_cubin(data)
    for name, expected in together.items():
        [(alone, found)] = analyze_cubin(data, [name]).items()
        assert alone == name
        assert found.summary == expected.summary
