# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ compiled by NVRTC: no GPU and no toolkit needed.

NVRTC (seen with 13.0.88) keeps a part of `--device-debug` for the rest of the process: what is
compiled afterwards, without it, is other machine code. So that a test's kernels do not depend on
the tests before it, such a compilation gets a process of its own.
"""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys

LEAVE_TRACES = {"-G", "--device-debug"}


class CompileError(Exception):
    """NVRTC refused the source; the message is its log."""


@functools.cache
def compile_source(source: str, *options: str) -> tuple[str, bytes]:
    """(PTX, cubin) of CUDA C++ text. Without a real architecture among the options (sm_80) the
    cubin is empty.

    Raises CompileError.
    """
    if LEAVE_TRACES.isdisjoint(options):
        return _compile(source, options)
    command = [sys.executable, __file__, *options]
    done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr.decode(errors="replace"))
    ptx, cubin = pickle.loads(done.stdout)
    return ptx, cubin


def _compile(source: str, options: tuple[str, ...]) -> tuple[str, bytes]:
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"input.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    words = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
        raise CompileError(log.decode(errors="replace"))
    ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, ptx)
    cubin = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
    if cubin:
        nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0").decode(), bytes(cubin)


def main() -> None:
    """The source on standard input, options as arguments, the pickled result on output."""
    try:
        result = _compile(sys.stdin.read(), tuple(sys.argv[1:]))
    except CompileError as problem:
        sys.exit(str(problem))
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
