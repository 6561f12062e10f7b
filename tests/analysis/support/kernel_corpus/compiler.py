# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to PTX by NVRTC: no GPU and no toolkit needed."""

from __future__ import annotations

import functools
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "corpus"


class CompileError(Exception):
    """NVRTC refused the source; the message is its log."""


@functools.cache
def compile_source(source: str, target: str = "sm_80", *extra: str) -> str:
    """The PTX of CUDA C++ text for one target, with extra options for NVRTC."""
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"corpus.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    options = [f"--gpu-architecture={target.replace('sm_', 'compute_')}".encode(), b"--std=c++17"]
    options += [option.encode() for option in extra]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CompileError(log.decode(errors="replace"))
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.rstrip(b"\0 ").decode()


def compile_corpus(name: str, target: str = "sm_80", *extra: str) -> str:
    """The PTX of one file of corpus/."""
    return compile_source((SOURCES / f"{name}.cu").read_text(), target, *extra)
