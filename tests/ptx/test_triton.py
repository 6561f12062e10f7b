# SPDX-License-Identifier: Apache-2.0
"""Triton kernels compiled here and now, for architectures that need not be present."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tessera.native import ptx

pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 103, 120, 121)


def load_kernels() -> ModuleType:
    """Triton reads the source of its kernels, and so wants a module that can be found by name."""
    name = "tessera_test_triton_kernels"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "triton_kernels.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KERNELS = load_kernels().KERNELS


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compile_to_ptx(name: str, architecture: int) -> str:
    if architecture < 89 and name == "matmul_f8":
        pytest.skip("8-bit floats in tl.dot begin with compute capability 8.9")
    kernel, arguments, constants = KERNELS[name]
    signature = arguments | dict.fromkeys(constants, "constexpr")
    names = list(signature)
    source = ASTSource(kernel, signature, {(names.index(k),): v for k, v in constants.items()})
    options = {"num_warps": 4, "num_stages": 3, "debug": name == "atomics"}
    compiled = compile_kernel(source, target=GPUTarget("cuda", architecture, 32), options=options)
    return str(compiled.asm["ptx"])


def check(text: str, architecture: int) -> ptx.Function:
    module = ptx.parse(text)
    assert not module.errors
    assert module.target.removesuffix("a") == f"sm_{architecture}"
    (entry,) = module.entries
    assert not entry.has_indirect_branch
    assert any(i.opcode in ("st", "red", "atom", "cp") for i in entry.instructions)
    return entry


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel(name: str) -> None:
    check(compile_to_ptx(name, 80), 80)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [a for a in ARCHITECTURES if a != 80])
@pytest.mark.parametrize("name", KERNELS)
def test_every_architecture(name: str, architecture: int) -> None:
    try:
        text = compile_to_ptx(name, architecture)
    except RuntimeError as error:  # tl.dot of int8 on sm_75, for one
        pytest.skip(f"Triton itself can't compile it: {error}")
    check(text, architecture)


def test_loads_are_predicated_and_vectors_have_braces() -> None:
    entry = check(compile_to_ptx("add_f32", 80), 80)
    loads = [i for i in entry.instructions if i.full.startswith("ld.global")]
    assert loads
    for load in loads:
        assert load.guard != ptx.NO_REGISTER
        vector, address = load.operands
        assert vector.kind is ptx.OperandKind.VECTOR
        assert address.kind is ptx.OperandKind.ADDRESS
        assert address.elements[0].kind is ptx.OperandKind.REGISTER
    assert [p.pointer_space for p in entry.parameters[:3]] == [ptx.Space.GLOBAL] * 3


def test_tensor_cores_take_vectors() -> None:
    entry = check(compile_to_ptx("matmul_f16", 80), 80)
    products = [i for i in entry.instructions if i.opcode == "mma"]
    assert products
    assert {tuple(len(o.elements) for o in i.operands) for i in products} == {(4, 4, 2, 4)}
    assert any(block.is_loop_header for block in entry.blocks)
