# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled twice by NVRTC: to PTX, whose summary is taken for the truth, and to a cubin."""

from __future__ import annotations

from pathlib import Path

import cuda_compiler as compiler
import pytest
from tessera.sass import DisassemblyError
from tessera.sass.disassembly import nvdisasm

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")
SOURCES = {
    name: ROOT / "analysis" / "corpus" / f"{name}.cu"
    for name in ("elementwise", "pointers", "indirect", "loops", "effects")
} | {"adversarial": ROOT / "sass" / "corpus" / "adversarial.cu"}


def need_nvdisasm() -> None:
    """Skips the module that calls it where there is no nvdisasm."""
    try:
        nvdisasm()
    except DisassemblyError as problem:
        pytest.skip(str(problem), allow_module_level=True)


def source(name: str, architecture: str) -> str:
    """The text of one file, without what an architecture does not have."""
    text = SOURCES[name].read_text()
    if architecture == "sm_75" and name == "effects":  # cp.async came with sm_80
        begin = text.index("__global__ void async_copy")
        end = text.index("__global__ void read_only_cache")
        text = text[:begin] + text[end:]
    return text


def compile_source(text: str, architecture: str, *options: str) -> tuple[str, bytes]:
    """(PTX, cubin) of CUDA C++ for one real architecture."""
    return compiler.compile_source(
        text, f"--gpu-architecture={architecture}", "--std=c++17", *options
    )
