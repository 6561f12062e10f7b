# SPDX-License-Identifier: Apache-2.0
"""Addresses that are no plain parameters: that leave the kernel, or that hide in integers."""

from __future__ import annotations

import pytest
from tessera.analysis import KernelSummary, analyze_module
from tessera.analysis.model import Property

HEADER = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 counter;
.global .align 8 .u64 table[2] = {0, generic(counter)};
.const .align 4 .u32 plain[2] = {1, 2};
"""


def analyze(body: str, parameters: str = ".param .u64 x, .param .u64 y") -> KernelSummary:
    text = f"{HEADER}.visible .entry k({parameters}) {{\n{body}\nret;\n}}\n"
    return analyze_module(text)["k"]


REGISTERS = """.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
.local .align 8 .b8 a[8]; .local .align 8 .b8 b[8];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
"""


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %rd3, counter; st.global.u64 [%rd1], %rd3;",
        "mov.u64 %rd3, counter; add.s64 %rd4, %rd3, 8; st.global.u64 [%rd1], %rd4;",
        "mov.u64 %rd3, counter; xor.b64 %rd4, %rd3, %rd2; st.global.u64 [%rd1], %rd4;",
        "mov.u64 %rd3, counter; atom.global.exch.b64 %rd4, [%rd1], %rd3;",
        "mov.u64 %rd3, counter; st.local.u64 [a], %rd3; ld.local.u64 %rd4, [a];"
        " st.global.u64 [%rd1], %rd4;",
        "mov.u64 %rd3, counter; setp.eq.u64 %p1, %rd3, %rd2; @%p1 st.global.u32 [%rd1], 1;",
    ],
)
def test_an_address_that_gets_out_keeps_the_kernel_home(body: str) -> None:
    summary = analyze(REGISTERS + body)
    assert summary.properties & Property.DEVICE_DEPENDENT
    assert not summary.may_move


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %rd3, plain; ld.const.u32 %r1, [plain+4]; st.global.u32 [%rd1], %r1;",
        "mov.u64 %rd3, plain; add.s64 %rd4, %rd3, 4; ld.const.u32 %r1, [%rd4];"
        " st.global.u32 [%rd1], %r1;",
        "mov.u64 %rd3, counter; setp.ne.u64 %p1, %rd3, 0; @%p1 st.global.u32 [%rd1], 1;",
    ],
)
def test_an_address_that_is_only_used_does_not(body: str) -> None:
    assert not analyze(REGISTERS + body).properties & Property.DEVICE_DEPENDENT


def test_data_that_holds_addresses_is_not_constant() -> None:
    body = "ld.global.u64 %rd3, [table+8]; st.global.u64 [%rd1], %rd3;"
    assert not analyze(REGISTERS + body).may_move


@pytest.mark.parametrize(
    "pointer",
    [
        "ld.global.u32 %r1, [%rd1]; cvt.u64.u32 %rd3, %r1; shl.b64 %rd4, %rd3, 15;",
        "ld.global.u64 %rd3, [%rd1]; and.b64 %rd4, %rd3, -16;",
        "ld.global.u64 %rd3, [%rd1]; shl.b64 %rd4, %rd3, 3;",
    ],
)
def test_a_loaded_pointer_is_not_rooted_at_the_number_beside_it(pointer: str) -> None:
    base, store = "cvta.to.global.u64 %rd1, %rd1;", "st.global.u32 [%rd5], 1;"
    body = f"{base} {pointer} add.s64 %rd5, %rd4, %rd2; {store}"
    assert analyze(REGISTERS + body).is_unknown


def test_a_store_through_one_of_two_locals_may_be_to_either() -> None:
    body = """
mov.u64 %rd3, a; mov.u64 %rd4, b;
st.local.u64 [a], %rd1; st.local.u64 [b], %rd1;
ld.param.u32 %r1, [c]; setp.eq.u32 %p1, %r1, 0; selp.b64 %rd5, %rd3, %rd4, %p1;
st.local.u64 [%rd5], %rd2;
ld.local.u64 %rd6, [a]; st.global.u32 [%rd6], 1;
"""
    summary = analyze(REGISTERS + body, ".param .u64 x, .param .u64 y, .param .u32 c")
    written = {access.parameter_offset for access in summary.accesses}
    assert summary.is_unknown or written >= {0, 8}


@pytest.mark.parametrize(
    "stores",
    [
        "mov.b64 {%r2, %r3}, %rd2; st.local.u32 [w+8], %r2; st.local.u32 [w+12], %r3;",
        "mov.b64 {%r2, %r3}, %rd2; st.local.v2.u32 [w+8], {%r2, %r3};",
        "mov.b64 {%r2, %r3}, %rd2; mov.u64 %rd3, w; add.s64 %rd3, %rd3, %rd5;"
        " st.local.v2.u32 [%rd3], {%r2, %r3};",
    ],
)
def test_a_pointer_put_together_in_a_local_array(stores: str) -> None:
    body = f"""
.local .align 8 .b8 w[16];
ld.param.u32 %r1, [c]; mul.wide.u32 %rd5, %r1, 8;
st.local.u64 [w], %rd1; {stores}
mov.u64 %rd4, w; add.s64 %rd4, %rd4, %rd5;
ld.local.u64 %rd6, [%rd4]; st.global.u32 [%rd6], 1;
"""
    summary = analyze(REGISTERS + body, ".param .u64 x, .param .u64 y, .param .u32 c")
    written = {access.parameter_offset for access in summary.accesses}
    assert summary.is_unknown or written >= {0, 8}


def test_required_threads_reach_the_blob() -> None:
    text = f"{HEADER}.visible .entry k() .reqntid 8, 4, 2 {{ ret; }}\n"
    summary = analyze_module(text)["k"]
    assert summary.required_block == (8, 4, 2)
    assert KernelSummary.from_blob(summary.to_blob()).required_block == (8, 4, 2)
