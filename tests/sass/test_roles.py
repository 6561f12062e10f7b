# SPDX-License-Identifier: Apache-2.0
"""Machine code against the PTX that it was made from: never less is claimed."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings")

from sass import images
from tessera.analysis import KernelSummary, Mode, Property, analyze_module
from tessera.analysis.model import Flag
from tessera.native import access
from tessera.sass import DisassemblyError, Grade, SassSummary, analyze_cubin

images.need_nvdisasm()

LEAST_EQUAL = 0.97  # share of kernels known from PTX whose roles are the same in machine code


def roles(summary: KernelSummary) -> dict[int, Mode]:
    """By offset of the pointer word: read, written, both."""
    out: dict[int, Mode] = {}
    for found in summary.accesses:
        out[found.parameter_offset] = out.get(found.parameter_offset, Mode(0)) | found.mode
    return out


def compare(name: str, architecture: str, *options: str) -> tuple[list[str], int, int]:
    """(what is claimed too little of, kernels known from PTX, those with the same roles)."""
    ptx, cubin = images.compile_source(images.source(name, architecture), architecture, *options)
    truth, found = analyze_module(ptx), analyze_cubin(cubin)
    assert set(truth) == set(found)
    wrong, known, equal = [], 0, 0
    for kernel, expected in truth.items():
        mine = found[kernel]
        known += not expected.is_unknown
        equal += not expected.is_unknown and is_same(expected, mine)
        wrong += less(expected, mine)
    return wrong, known, equal


def is_same(expected: KernelSummary, mine: SassSummary) -> bool:
    return mine.grade is not Grade.UNKNOWN and roles(expected) == roles(mine.summary)


def less(expected: KernelSummary, mine: SassSummary) -> list[str]:
    """What the machine code's summary lacks. Of a kernel that PTX does not know, anything may
    be claimed that the kernel does; those are looked at one by one below."""
    if mine.grade is Grade.UNKNOWN:
        assert mine.summary.is_unknown and not mine.summary.may_move
        return []
    out = []
    for offset, mode in roles(expected).items():
        have = roles(mine.summary).get(offset, Mode(0))
        if mode & ~have:
            out.append(f"{expected.name}: {mode!r} at {offset}, only {have!r}")
    lost = expected.properties & ~mine.summary.properties & ~Property.UNKNOWN
    lost &= ~IGNORED
    if lost:
        out.append(f"{expected.name}: lacks {lost!r}")
    return out


# A compiler may drop an atomic's result, or fold constant data into the code.
IGNORED = Property.ORDER_DEPENDENT | Property.READS_CONSTANT_DATA | Property.READS_GLOBALS


@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_never_less_than_ptx(architecture: str) -> None:
    """Over every kernel of the corpora; and nearly always just as much."""
    wrong, known, equal = [], 0, 0
    for name in images.SOURCES:
        found = compare(name, architecture)
        wrong += found[0]
        known, equal = known + found[1], equal + found[2]
    print(f"{architecture}: {equal} of {known} kernels have the roles that PTX gives")
    assert wrong == []
    assert known > 100
    assert equal >= LEAST_EQUAL * known


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("options", [("--maxrregcount=24",), ("-G",)], ids=["spilled", "debug"])
def test_never_less_when_compiled_otherwise(architecture: str, options: tuple[str, ...]) -> None:
    """Registers that are spilled to the stack; code that is not optimised."""
    wrong: list[str] = []
    for name in ("pointers", "loops", "adversarial"):
        wrong += compare(name, architecture, *options)[0]
    assert wrong == []


MUST_BE_UNKNOWN = (
    "loaded_or_given list list_written from_global_variable loaded_in_shared "
    "in_local halves_of_two halves_far_apart half_loaded packed difference_applied "
    "called_with_loaded exchanged loaded_on_both_sides"
).split()
WANTED = {  # roles by offset, as a reader of the source would give them
    "selected_by_data": {0: Mode.WRITE, 8: Mode.READ, 16: Mode.READ, 24: Mode.READ},
    "in_shared": {0: Mode.WRITE, 8: Mode.READ, 16: Mode.READ},
    "masked": {0: Mode.WRITE, 8: Mode.READ},
    "called": {0: Mode.WRITE, 8: Mode.READ, 16: Mode.READ},
    "advanced_in_loop": {0: Mode.WRITE, 8: Mode.READ},
    "swapped": dict.fromkeys((0, 8, 16), Mode.READ | Mode.WRITE),
    "many_live": {0: Mode.WRITE} | dict.fromkeys((8, 16, 24, 32), Mode.READ),
    "by_byte": {0: Mode.WRITE, 8: Mode.READ, 16: Mode.READ},
}


def is_unknown(found: SassSummary, number: int) -> bool:
    """Whether a launch may touch anything that has this number for its sizes, and no null."""
    if found.grade is Grade.UNKNOWN:
        return True
    block = bytearray(found.summary.parameter_block_size)
    for parameter in found.summary.parameters:
        value = 0x10_0000_0000 if parameter.size == 8 else number
        end = parameter.offset + parameter.size
        block[parameter.offset : end] = value.to_bytes(parameter.size, "little")
    ranges = access.evaluate(found.summary.to_blob(), (1, 1, 1), (32, 1, 1), bytes(block))
    return any(r.flags & Flag.ANYTHING for r in ranges)


@pytest.mark.parametrize("options", [(), ("--maxrregcount=24",), ("-G",)], ids=str)
@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_misleading_kernels(architecture: str, options: tuple[str, ...]) -> None:
    """A loaded pointer that is followed makes unknown; what is known is claimed in full."""
    text = images.source("adversarial", architecture)
    _, cubin = images.compile_source(text, architecture, *options)
    found = analyze_cubin(cubin)
    for name in MUST_BE_UNKNOWN:
        assert is_unknown(found[name], 3), name
    assert is_unknown(found["loaded_after_loop"], 3)
    for name, wanted in WANTED.items():
        if found[name].grade is Grade.UNKNOWN and options:
            continue
        have = roles(found[name].summary)
        assert found[name].grade is not Grade.UNKNOWN, found[name].summary.reasons
        assert all(not mode & ~have.get(offset, Mode(0)) for offset, mode in wanted.items()), name
    assert found["exclusive_or"].grade is Grade.UNKNOWN or 8 in roles(found["exclusive_or"].summary)


def test_blob_gives_whole_allocations_and_skips_null() -> None:
    """The evaluator that the shim uses takes the summary; a null pointer touches nothing."""
    text = images.source("pointers", "sm_80")
    found = analyze_cubin(images.compile_source(text, "sm_80")[1])["maybe_null"]
    assert found.grade is Grade.ATTRIBUTED
    blob = found.summary.to_blob()
    assert access.validate(blob)
    pointers = (0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000)
    block = b"".join(p.to_bytes(8, "little") for p in pointers) + (7).to_bytes(4, "little")
    ranges = access.evaluate(blob, (1, 1, 1), (32, 1, 1), block)
    assert [(r.pointer, r.mode, r.unbounded) for r in ranges] == [
        (pointers[0], 2, True), (pointers[1], 1, True), (pointers[2], 1, True)
    ]  # fmt: skip
    without = block[:16] + bytes(8) + block[24:]
    assert [r.pointer for r in access.evaluate(blob, (1, 1, 1), (32, 1, 1), without)] == [
        *pointers[:2]
    ]


def test_stored_summaries_come_back() -> None:
    found = analyze_cubin(images.compile_source(images.source("loops", "sm_90a"), "sm_90a")[1])
    for summary in (f.summary for f in found.values()):
        assert KernelSummary.from_dict(summary.to_dict()) == summary
        assert summary.only_architecture == 90


def test_what_is_no_cubin_is_refused() -> None:
    for data in (b"", b"\x7fELF" + bytes(60), b"not a cubin" * 20):
        with pytest.raises(ValueError):
            analyze_cubin(data)
    good = images.compile_source(images.source("loops", "sm_80"), "sm_80")[1]
    with pytest.raises((ValueError, DisassemblyError)):
        analyze_cubin(good[: len(good) // 2])
