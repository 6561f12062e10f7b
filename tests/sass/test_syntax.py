# SPDX-License-Identifier: Apache-2.0
"""Operands as different versions of nvdisasm write them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cuda_compiler as compiler
import pytest
from tessera.sass import DisassemblyError, Grade, analyze_cubin, disassembly
from tessera.sass.elf import read_cubin
from tessera.sass.syntax import Instruction, parse_instruction

# 13.0 to 13.4, and 13.5. Each pair is of one instruction of a real cubin.
WRITTEN = [
    ("LDG.E.CONSTANT", "R18[R16.64+0x4]", "R18,[R16.64+0x4]"),
    ("LDG.E", "R26,desc[UR6][R26.64]", "R26,desc[UR6][R26.64]"),
    ("LDS", "R6[UR7+0x8]", "R6,[UR7+0x8]"),
    ("UTMASTG.3D", "[UR32][UR22]", "[UR32],[UR22]"),
    ("UTMALDG.3D.MULTICAST", "[UR8][UR34],UR33", "[UR8],[UR34],UR33"),
    ("LDGSTS.E.BYPASS.128", "desc[UR16][R8.64],P3[R21]", "[R21],desc[UR16][R8.64],P3"),
    ("LDGSTS.E.LTC128B.64", "desc[UR16][R76.64][R72+0x8000]", "[R72+0x8000],desc[UR16][R76.64]"),
    ("LDGSTS.E.LTC128B", "[R73+UR15+0x84][R36.64+0x84]", "[R73+UR15+0x84],[R36.64+0x84]"),
    ("LDG.E.64", "R2desc[UR4][R2.64]", "R2,desc[UR4][R2.64]"),
    ("LDG.E.64", "R2desc,[UR4][R2.64]", "R2,desc[UR4][R2.64]"),
    ("ATOMG.E.EXCH.64", "PT,R2desc,[UR4][R4.64],R2", "PT,R2,desc[UR4][R4.64],R2"),
    ("LDGSTS.E.128", "[RZ]desc[UR4][R2.64]", "[RZ],desc[UR4][R2.64]"),
    ("SYNCS.EXCH.64", "URZ[UR7],UR10", "URZ,[UR7],UR10"),
    ("SYNCS.PHASECHK.TRANS64", "P3[UR22+0x38da0],R5", "P3,[UR22+0x38da0],R5"),
    ("IMAD", "R1,R2,c[0x0][0x28],-R4", "R1,R2,c[0x0][0x28],-R4"),
    ("ULDC.64", "UR4,c[0x0][UR5+0x210]", "UR4,c[0x0][UR5+0x210]"),
]


@pytest.mark.parametrize(("opcode", "without", "with_commas"), WRITTEN)
def test_a_comma_left_out_before_a_bracket(opcode: str, without: str, with_commas: str) -> None:
    old, new = (
        parse_instruction(0x80, {"opcode": opcode, "operands": text})
        for text in (without, with_commas)
    )
    assert old.operands == new.operands
    assert len(new.operands) == len(with_commas.split(","))
    assert not any(operand.kind == "other" for operand in new.operands)


def test_a_load_writes_its_register() -> None:
    """What it held before is not taken for what it holds now."""
    load = parse_instruction(0, {"opcode": "LDS", "operands": "R6[UR7+0x8]"})
    assert [operand.kind for operand in load.operands] == ["register", "memory"]
    assert load.operands[0].variable == 6


def test_global_and_shared_memory_that_cannot_be_told_apart() -> None:
    copy = parse_instruction(0, {"opcode": "LDGSTS.E", "operands": "[R4],[R6]"})
    assert [operand.kind for operand in copy.operands] == ["other", "other"]


# Into shared memory past the registers, with and without a predicate; loads of each kind.
COPIES = r"""
__device__ unsigned shared_of(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void copies(const int4* from, int* to, int n) {
  __shared__ int4 kept[64];
  __shared__ int small[64];
  const int i = threadIdx.x;
  if (i < n)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_of(&kept[i])),
                 "l"(from + i));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_of(&small[i])),
               "l"((const int*)from + i), "r"(i < n ? 0 : 4));
  asm volatile(
      "{ .reg .pred p; setp.lt.s32 p, %2, 7; cp.async.ca.shared.global [%0], [%1], 8, p; }" ::"r"(
          shared_of(&kept[63 - i])),
      "l"(from + 64 + i), "r"(n));
  asm volatile("cp.async.wait_all;" ::);
  __syncthreads();
  to[i] = kept[63 - i].x + small[63 - i] + __ldg(&to[n]);
}
"""


def cubin_of(text: str, architecture: str) -> bytes:
    cubin: bytes = compiler.compile_source(text, f"--gpu-architecture={architecture}")[1]
    return cubin


def other_disassemblers() -> list[str]:
    """Triton brings one, and toolkits have one: of other releases, mostly."""
    triton = importlib.util.find_spec("triton")
    brought = Path(triton.origin).parent / "backends/nvidia/bin" if triton and triton.origin else ""
    found = [str(Path(brought) / "nvdisasm"), shutil.which("nvdisasm")]
    return [path for path in found if path and Path(path).is_file()]


def instructions(tool: str, cubin: Path) -> list[Instruction]:
    done = subprocess.run([tool, "-json", str(cubin)], capture_output=True, check=True, timeout=60)
    document: Any = json.loads(done.stdout)
    listed = [fields for function in document[1] for fields in function["sass-instructions"]]
    return [parse_instruction(16 * i, fields) for i, fields in enumerate(listed)]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_every_nvdisasm_here_is_read_alike(architecture: str, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    try:
        newest = disassembly.nvdisasm()
    except DisassemblyError as problem:
        pytest.skip(str(problem))
    others = [tool for tool in other_disassemblers() if tool != newest]
    if not others:
        pytest.skip("there is one nvdisasm here")
    cubin = tmp_path / "copies.cubin"
    cubin.write_bytes(cubin_of(COPIES, architecture))
    assert read_cubin(cubin.read_bytes()).kernels
    expected = instructions(newest, cubin)
    assert {"LDGSTS", "LDS", "LDG"} <= {instruction.base for instruction in expected}
    for other in others:
        for new, old in zip(expected, instructions(other, cubin), strict=True):
            assert (new.base, new.guard, new.operands) == (old.base, old.guard, old.operands), (
                new.text,
                old.text,
            )


HINTED = r"""
extern "C" __global__ void follows(int** a, unsigned long long policy) {
  int* p;
  asm volatile("LOAD" : "=l"(p) : "l"(a), "l"(policy));
  *p = 7;
}
"""


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "load",
    [
        "ld.global.L2::cache_hint.u64 %0, [%1], %2;",
        "ld.L2::cache_hint.u64 %0, [%1], %2;",
        "atom.global.exch.L2::cache_hint.b64 %0, [%1], %2, %2;",
    ],
)
def test_a_pointer_loaded_with_a_hint_is_followed(
    architecture: str, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The register that the load writes does not keep what it held."""
    pytest.importorskip("cuda.bindings")
    try:
        tools = [disassembly.nvdisasm(), *other_disassemblers()]
    except DisassemblyError as problem:
        pytest.skip(str(problem))
    cubin = cubin_of(HINTED.replace("LOAD", load), architecture)
    for tool in tools:
        monkeypatch.setattr(disassembly, "nvdisasm", lambda tool=tool: tool)
        (found,) = analyze_cubin(cubin).values()
        assert found.grade is Grade.UNKNOWN
        assert "follows a pointer loaded" in found.summary.reasons["UNKNOWN"], tool
