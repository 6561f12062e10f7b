# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to PTX by NVRTC: no GPU and no toolkit needed."""

from __future__ import annotations

from pathlib import Path

import cuda_compiler
from cuda_compiler import CompileError

__all__ = ["CompileError", "compile_corpus", "compile_source"]

SOURCES = Path(__file__).resolve().parents[2] / "corpus"


def compile_source(source: str, target: str = "sm_80", *extra: str) -> str:
    """The PTX of CUDA C++ text for one target, with extra options for NVRTC."""
    architecture = f"--gpu-architecture={target.replace('sm_', 'compute_')}"
    return cuda_compiler.compile_source(source, architecture, "--std=c++17", *extra)[0]


def compile_corpus(name: str, target: str = "sm_80", *extra: str) -> str:
    """The PTX of one file of corpus/."""
    return compile_source((SOURCES / f"{name}.cu").read_text(), target, *extra)
