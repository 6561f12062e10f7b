# SPDX-License-Identifier: Apache-2.0
"""Kinds of section 7 that the other rooms' tests do not show: one bad kernel among good ones."""

from __future__ import annotations

import pytest
from tessera.native import ptx

GOOD = """.visible .entry {name}(.param .u64 x) {{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [x];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd1+4], %r1;
  ret;
}}
"""
HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
BAD = [
    "frobnicate.sync.b32 %r1, %r2;",
    "frobnicate {{a, b}, [c+4], {d}};",
    "@%p1 frobnicate;",
    "add.s32 %r1, %r1 %r2;",
    "ld.global.u32 [%rd1], %r1, %r2, %r3;",
]


@pytest.mark.parametrize("bad", BAD)
def test_one_unknown_instruction_costs_its_kernel_alone(bad: str) -> None:
    """Kind 7.4: reading goes on at the next `;` or `}`."""
    middle = GOOD.format(name="middle").replace("  ret;", f"  {bad}\n  ret;")
    text = HEAD + GOOD.format(name="first") + middle + GOOD.format(name="last")
    module = ptx.parse(text)
    entries = {entry.name: entry for entry in module.entries}
    assert list(entries) == ["first", "middle", "last"]
    good = len(list(entries["first"].instructions))
    assert len(list(entries["last"].instructions)) == good
    assert len(module.errors) >= 1 or len(list(entries["middle"].instructions)) == good + 1


def test_large_struct_parameter_has_its_whole_size() -> None:
    """Kind 7.1: a parameter of 320 bytes (0x140) does not lose its upper byte."""
    text = (
        HEAD
        + ".visible .entry k(.param .u64 x, .param .align 8 .b8 s[320], .param .u32 n) { ret; }\n"
    )
    (kernel,) = ptx.parse(text).entries
    assert [(p.offset, p.size) for p in kernel.parameters] == [(0, 8), (8, 320), (328, 4)]
