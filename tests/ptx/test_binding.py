# SPDX-License-Identifier: Apache-2.0
"""The Python surface of the PTX front end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tessera.native
from tessera.native import NativeError, cdef_text, image, library_path, ptx, ptx_binding

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 16 .b8 table[64] = {1};
.visible .entry kernel(.param .u64 .ptr .global .align 8 out, .param .u32 n) .reqntid 64, 2
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .reg .pred %p<2>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [out];
LOOP:
    @!%p1 ld.global.nc.v2.b32 {%r1, _}, [%rd1+-8];
    add.s32 %r1, %r1, -7;
    fma.rn.f32 %r2, 0f3F800000, %tid.y, -%r1;
    { .param .b64 a; st.param.b64 [a], %rd1; call.uni (%r1), vprintf, (a, a); }
    @%p1 bra LOOP;
    ret;
}
.entry broken() { mov.u32 %r1, 1; }
"""


@pytest.fixture(scope="module")
def module() -> ptx.Module:
    return ptx.parse(TEXT)


@pytest.fixture(scope="module")
def kernel(module: ptx.Module) -> ptx.Function:
    return module.function("kernel")


def test_module(module: ptx.Module) -> None:
    assert module.target == "sm_90a"
    assert module.version == (8, 7)
    assert [f.name for f in module.functions] == ["vprintf", "kernel", "broken"]
    assert [f.name for f in module.entries] == ["kernel", "broken"]
    (table,) = module.variables
    assert (table.name, table.space, table.size, table.alignment) == (
        "table",
        ptx.Space.GLOBAL,
        64,
        16,
    )
    assert table.has_initializer
    with pytest.raises(KeyError):
        module.function("nothing")


def test_errors_have_a_place(module: ptx.Module) -> None:
    (error,) = module.errors
    assert str(error) == "21:27: undeclared register '%r1'"
    assert [f.name for f in module.functions if f.is_broken] == ["broken"]


def test_function(kernel: ptx.Function) -> None:
    assert kernel.is_entry and not kernel.is_declaration and not kernel.is_broken
    assert kernel.linkage is ptx.Linkage.VISIBLE
    assert kernel.required_threads == (64, 2, 1)
    assert kernel.max_threads == (0, 0, 0)
    assert kernel.parameter_block_size == 12
    out, n = kernel.parameters
    assert out.is_pointer and out.pointer_space is ptx.Space.GLOBAL and out.pointer_alignment == 8
    assert (n.offset, n.size, n.type) == (8, 4, ptx.Type.U32)
    assert next(v.name for v in kernel.variables) == "tile"
    assert kernel.labels == {"LOOP": 1}
    assert kernel.instructions is kernel.instructions


def test_instructions(kernel: ptx.Function) -> None:
    load = kernel.instructions[1]
    assert (load.opcode, load.full) == ("ld", "ld.global.nc.v2.b32")
    assert load.has("nc") and not load.has("b3")
    assert load.type is ptx.Type.B32
    assert kernel.registers[load.guard].name == "%p1" and load.guard_negated
    vector, address = load.operands
    assert vector.kind is ptx.OperandKind.VECTOR
    assert [e.kind for e in vector.elements] == [ptx.OperandKind.REGISTER, ptx.OperandKind.SINK]
    assert address.kind is ptx.OperandKind.ADDRESS and address.offset == -8
    assert kernel.registers[address.elements[0].register].name == "%rd1"
    assert kernel.instructions[2].operands[2].signed == -7
    constant, special, negated = kernel.instructions[3].operands[1:]
    assert (constant.bits, constant.float_bits) == (0x3F800000, 32)
    assert (special.text, special.component) == ("%tid", 1)
    assert negated.negated
    branch = kernel.instructions[6]
    assert branch.operands[0].label == 1
    assert branch.guard != ptx.NO_REGISTER and kernel.instructions[0].guard == ptx.NO_REGISTER


def test_call_sequence(kernel: ptx.Function) -> None:
    results, callee, arguments = kernel.instructions[5].operands
    assert results.kind is ptx.OperandKind.TUPLE and len(results.elements) == 1
    assert callee.text == "vprintf"
    names = {variable.name for variable in kernel.variables}
    assert all(element.text in names for element in arguments.elements)


def test_blocks(kernel: ptx.Function) -> None:
    entry, loop, end = kernel.blocks
    assert (entry.begin, entry.end, entry.successors) == (0, 1, (1,))
    assert loop.is_loop_header and loop.successors == (1, 2)
    assert (loop.immediate_dominator, loop.immediate_post_dominator) == (0, 2)
    assert end.exits and end.immediate_post_dominator is None


def test_numbers_are_those_of_the_library() -> None:
    """The enumerations are written twice; this is what keeps them the same."""
    ffi, library = ptx_binding.ffi(), ptx_binding.library()

    def names(ask: object, count: int) -> list[str]:
        pointers = [ask(number) for number in range(count)]  # type: ignore[operator]
        assert ask(count) == ffi.NULL  # type: ignore[operator]
        return [ffi.string(pointer).decode() for pointer in pointers]

    types = names(library.ts_ptx_type_name, len(ptx.Type))
    assert types[1:] == [kind.name.lower() for kind in ptx.Type][1:]
    spaces = names(library.ts_ptx_space_name, len(ptx.Space))
    assert spaces == [space.name.lower() for space in ptx.Space]
    kinds = names(library.ts_ptx_operand_kind_name, len(ptx.OperandKind))
    assert kinds == [kind.name.lower() for kind in ptx.OperandKind]


def test_functions_keep_their_module_alive() -> None:
    instructions = ptx.parse(TEXT).function("kernel")
    gc.collect()
    assert instructions.instructions[1].full == "ld.global.nc.v2.b32"


def test_threads_may_share_a_module() -> None:
    kernels = "".join(
        f".entry k{i}() {{ .reg .b32 a; mov.u32 a, {i}; ret; }}\n" for i in range(200)
    )
    shared = ptx.parse(".version 8.0\n.target sm_80\n" + kernels)
    seen: list[list[int]] = []

    def look() -> None:
        seen.append([f.instructions[0].operands[1].bits for f in shared.functions])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(200))] * 8


@pytest.mark.parametrize("text", ["", "hello", ".version", b"\x7fELF", b"\xff\xfe\x00", "é" * 10])
def test_bad_text_is_an_error_not_an_exception(text: str | bytes) -> None:
    assert ptx.parse(text).errors


def test_image_of_text() -> None:
    opened = image.open_image(TEXT.encode() + b"\0")
    assert opened.kind is image.ImageKind.PTX
    (entry,) = opened.entries
    assert (entry.kind, entry.architecture) == (image.EntryKind.PTX, 90)
    assert entry.read() == entry.read() == TEXT.encode()


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_images_in_reference_cycles(
    wrap: Callable[[bytes], bytes | bytearray | memoryview],
) -> None:
    """A view of a memoryview in a cycle makes cffi crash in the garbage collector."""
    for _ in range(20):
        cycle: list[object] = [image.open_image(wrap(TEXT.encode() * 2)[: len(TEXT)])]
        cycle.append(cycle)
    del cycle
    gc.collect()


@pytest.mark.parametrize("data", [b"", b"what", b"\x50\xed\x55\xba", b"\x7fELF" + bytes(60)])
def test_bad_images_say_why(data: bytes) -> None:
    opened = image.open_image(data)
    assert not opened.entries
    assert opened.kind is not image.ImageKind.UNKNOWN or opened.errors


def test_a_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESSERA_NATIVE_DIR", str(tmp_path))
    with pytest.raises(NativeError, match="TESSERA_NATIVE_DIR names that folder"):
        library_path("libtessera_ptx.so")
    (tmp_path / "libtessera_ptx.so").touch()
    assert library_path("libtessera_ptx.so") == tmp_path / "libtessera_ptx.so"
    monkeypatch.delenv("TESSERA_NATIVE_DIR")
    monkeypatch.setattr(tessera.native, "__file__", str(tmp_path / "native" / "__init__.py"))
    with pytest.raises(NativeError, match="reinstall Tessera"):
        library_path("libtessera_ptx.so")


def test_a_header_without_markers_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    header = tmp_path / "x.h"
    header.write_text("int x;")
    monkeypatch.setattr(tessera.native, "header_path", lambda _: header)
    with pytest.raises(NativeError, match="no text between"):
        cdef_text("x.h")
