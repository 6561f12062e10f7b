# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ that NVRTC compiles here and now: all of its PTX has to parse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cuda_compiler import CompileError, compile_source
from tessera.native import ptx

pytest.importorskip("cuda.bindings.nvrtc")
pathfinder = pytest.importorskip("cuda.pathfinder")

SOURCES = Path(__file__).parent / "sources"
ARCHITECTURES = ("75", "80", "86", "89", "90", "90a", "100", "100a", "103a", "120", "120a", "121")
OPTIONS = {
    "plain": [],
    "lines": ["--generate-line-info"],
    "debug": ["--device-debug"],
    "relocatable": ["--relocatable-device-code=true"],
}


def headers() -> list[str]:
    folder = pathfinder.find_nvidia_header_directory("cudart")
    return [f"--include-path={folder}"] if folder else []


def compile_to_ptx(name: str, architecture: str, options: list[str]) -> bytes:
    source = (SOURCES / f"{name}.cu").read_text()
    flags = [f"--gpu-architecture=compute_{architecture}", *headers(), *options]
    try:
        return compile_source(source, *flags)[0].encode()
    except CompileError as problem:
        if "cannot open source file" in str(problem):
            pytest.skip("the CUDA headers are not installed")
        raise


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["language", "hardware"])
def test_every_architecture(name: str, architecture: str) -> None:
    module = ptx.parse(compile_to_ptx(name, architecture, []))
    assert not module.errors
    assert module.target == f"sm_{architecture}"
    assert len(module.entries) >= 5
    assert all(entry.blocks and entry.instructions for entry in module.entries)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", ["language", "hardware"])
def test_every_way_to_compile(name: str, options: list[str]) -> None:
    assert not ptx.parse(compile_to_ptx(name, "90a", options)).errors


@pytest.fixture(scope="module")
def language() -> ptx.Module:
    return ptx.parse(compile_to_ptx("language", "80", []))


def test_a_struct_by_value_has_its_layout(language: ptx.Module) -> None:
    kernel = language.function("by_value")
    # Pack is 64 bytes, aligned to 16; then a char, a short, a double.
    assert [(p.offset, p.size) for p in kernel.parameters] == [(0, 64), (64, 1), (66, 2), (72, 8)]
    assert kernel.parameter_block_size == 80


def test_a_switch_branches_to_known_places(language: ptx.Module) -> None:
    kernel = language.function("switches")
    assert not kernel.has_indirect_branch
    assert len(kernel.blocks) > 8
    assert all(block.successors or block.exits for block in kernel.blocks)
    assert kernel.blocks[0].immediate_post_dominator is not None  # all cases meet at the end


def test_inline_assembly_keeps_its_scopes_apart(language: ptx.Module) -> None:
    kernel = language.function("assembly")
    names = Counter(register.name for register in kernel.registers)
    assert max(names.values()) == 1
    inner = [name for name in names if name.startswith("t#")]
    assert len(inner) >= 3
    assert any(label.startswith("LOOP#") for label in kernel.labels)


def test_calls_reach_declared_functions(language: ptx.Module) -> None:
    known = {function.name for function in language.functions}
    calls = [i for f in language.functions for i in f.instructions if i.opcode == "call"]
    named = [
        operand.text
        for call in calls
        for operand in call.operands
        if operand.kind is ptx.OperandKind.SYMBOL
    ]
    assert "vprintf" in named
    assert {name for name in named if "prototype" not in name} <= known


def test_loops_have_headers(language: ptx.Module) -> None:
    kernel = language.function("early_exit")
    assert any(block.is_loop_header for block in kernel.blocks)
    assert sum(block.exits for block in kernel.blocks) >= 1
