# SPDX-License-Identifier: Apache-2.0
"""Kernels that use a table of pointers in some launches alone: those are unknown, no others."""

from __future__ import annotations

import ctypes
import itertools
import random
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings")

from sass import images
from tessera.analysis import Mode
from tessera.analysis.model import Flag
from tessera.native import access
from tessera.protocol import KERNEL_UNKNOWN
from tessera.sass import Grade, SassSummary, analyze_cubin, merge
from tessera.sass.conditions import NOWHERE, Condition, fewest, is_possible
from tessera.sass.program import constant_of
from tessera.sass.syntax import parse_instruction

images.need_nvdisasm()

SOURCE = (Path(__file__).with_name("corpus") / "conditions.cu").read_text()
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120")


class Given(ctypes.Structure):
    """The parameter block of every kernel here."""

    _fields_ = (
        ("out", ctypes.c_uint64),
        ("a", ctypes.c_uint64),
        ("table", ctypes.c_uint64),
        ("mode", ctypes.c_int32),
        ("flag", ctypes.c_uint8),
        ("kind", ctypes.c_int16),
        ("wide", ctypes.c_int64),
        ("limit", ctypes.c_uint32),
        ("n", ctypes.c_int32),
    )


OUT, A, TABLE = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000
VALUES = {
    "mode": (-(1 << 31), -3, -2, -1, 0, 1, 2, 3, 4, 6, 7, 8, (1 << 31) - 1),
    "flag": (0, 1, 128, 255),
    "kind": (-(1 << 15), -4, -3, -2, 0, 3, (1 << 15) - 1),
    "wide": (0, 7, 0x500000007, 0x500000008, 0x600000007, -1, -(1 << 63)),
    "limit": (0, 6, 7, 8, 0x7FFFFFFF, 0xFFFFFFF0, 0xFFFFFFF1, 0xFFFFFFFF),
    "n": (-1, 0, 1, 100),
    "table": (0, TABLE),
}


def launches() -> Iterator[Given]:
    """One field off the usual at a time, and some with all of them drawn."""
    for name, values in VALUES.items():
        for value in values:
            given = Given(OUT, A, TABLE, 5, 0, 0, 1, 9, 100)
            setattr(given, name, value)
            yield given
    draw = random.Random(4)
    for _ in range(60):
        yield Given(OUT, A, **{name: draw.choice(values) for name, values in VALUES.items()})


def may_touch_anything(found: SassSummary, given: Given) -> bool:
    """Whether the native evaluator says so of a launch."""
    if found.summary.properties & KERNEL_UNKNOWN:
        return True
    blob = found.summary.to_blob()
    assert access.validate(blob)
    ranges = access.evaluate(blob, (4, 3, 1), (32, 1, 1), bytes(given))
    return any(r.flags & Flag.ANYTHING for r in ranges)


USES_TABLE: dict[str, Callable[[Given], bool]] = {
    "equal": lambda g: g.mode == 1,
    "different": lambda g: g.mode != 1,
    "negative": lambda g: g.mode < -2,
    "at_least": lambda g: g.mode >= 7,
    "byte": lambda g: g.flag != 0,
    "small": lambda g: g.kind < -3,
    "wide": lambda g: g.wide == 0x500000007,
    "large": lambda g: g.limit > 0xFFFFFFF0,
    "both": lambda g: g.mode == 3 and g.limit < 7,
    "either": lambda g: g.mode == 3 or g.limit < 7,
    "given": lambda g: g.table != 0,
    "batched": lambda g: g.mode == 1,
    "left_early": lambda g: g.mode == 1,
    "called": lambda g: g.mode == 2,
    "switched": lambda g: g.mode not in (0, 1, 2),
}
ALWAYS_TAUGHT = (
    "equal different negative at_least byte large batched left_early called switched"
).split()
NO_CONDITION = (
    "by_thread by_block by_grid by_data by_sum by_lanes changed used_before_leaving"
).split()


@pytest.mark.parametrize("options", [(), ("--maxrregcount=24",), ("-G",)], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_launches_that_use_the_table_are_unknown(
    architecture: str, options: tuple[str, ...]
) -> None:
    found = analyze_cubin(images.compile_source(SOURCE, architecture, *options)[1])
    for name, uses in USES_TABLE.items():
        for given in launches():
            says = may_touch_anything(found[name], given)
            assert says or not uses(given), (name, bytes(given).hex())
            if found[name].grade is not Grade.UNKNOWN:
                assert says == uses(given), (name, bytes(given).hex())
    if not options:
        for name in ALWAYS_TAUGHT:
            assert found[name].grade is Grade.ATTRIBUTED, (name, found[name].summary.reasons)


@pytest.mark.parametrize("options", [(), ("--maxrregcount=24",), ("-G",)], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_may_differ_between_threads_is_no_condition(
    architecture: str, options: tuple[str, ...]
) -> None:
    found = analyze_cubin(images.compile_source(SOURCE, architecture, *options)[1])
    for name in NO_CONDITION:
        assert found[name].grade is Grade.UNKNOWN, name
    for given in launches():  # in a loop the mode counts up: any launch with a round may
        assert may_touch_anything(found["counted"], given) or given.n < 1


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_usual_launch_claims_what_it_touches(architecture: str) -> None:
    """As a kernel of a library with a mode for arrays of pointers."""
    found = analyze_cubin(images.compile_source(SOURCE, architecture)[1])["batched"]
    assert found.summary.may_move
    blob = found.summary.to_blob()
    usual = access.evaluate(blob, (4, 3, 1), (32, 1, 1), bytes(Given(OUT, A, TABLE, 0, n=1)))
    have = {(r.pointer, r.mode) for r in usual}
    assert have >= {(OUT, Mode.WRITE), (A, Mode.READ)}
    assert have <= {(OUT, Mode.WRITE), (A, Mode.READ), (TABLE, Mode.READ)}
    assert "may touch anything" in found.summary.explain()
    both = merge([found, found], 2)
    assert may_touch_anything(both, Given(OUT, A, TABLE, 1, n=1))
    assert not may_touch_anything(both, Given(OUT, A, TABLE, 0, n=1))


def test_versions_that_except_different_launches_are_not_merged() -> None:
    found = analyze_cubin(images.compile_source(SOURCE, "sm_80")[1])
    both = merge([found["equal"], found["different"]], 2)
    assert both.grade is Grade.UNKNOWN and both.summary.is_unknown


def test_what_an_excepted_launch_may_write_is_no_constant() -> None:
    begin, end = SOURCE.index("PICK(equal"), SOURCE.index("__device__ float fixed")
    for between, may_move in (("", True), ("PICK(equal, g.mode == 1)\n", False)):
        text = SOURCE[:begin] + between + SOURCE[end:]
        found = analyze_cubin(images.compile_source(text, "sm_80")[1])
        assert all(one.grade is Grade.ATTRIBUTED for one in found.values())
        assert found["reads_constants"].summary.may_move == may_move


# Programs drawn at random: which pointer is used is worked out here as C++ does it.

_TYPES = ("mode", "flag", "kind", "wide", "limit", "n")
_OTHERS = ("i == 3", "g.a[i] > 1.0f", "blockIdx.x == 1", "gridDim.x == 4")


@dataclass
class Run:
    """One thread's: its parameters, which of the other tests hold for it, what p points to, and
    what was used of it."""

    given: Given
    others: frozenset[str]
    place: str = "a"
    used: set[str] = field(default_factory=set)

    def use(self) -> None:
        self.used.add(self.place)


Test = tuple[str, Callable[[Run], bool]]
Statement = tuple[str, Callable[[Run], None]]


def draw_test(draw: random.Random) -> Test:
    kind = draw.random()
    if kind < 0.15:
        text = draw.choice(_OTHERS)
        return text, lambda run: text in run.others
    if kind < 0.35:
        (a, left), (b, right) = draw_test(draw), draw_test(draw)
        if draw.random() < 0.5:
            return f"({a} && {b})", lambda run: left(run) and right(run)
        return f"({a} || {b})", lambda run: left(run) or right(run)
    name = draw.choice(_TYPES)
    number = draw.choice(VALUES[name])
    operator = draw.choice(list(OPERATORS))
    literal = f"{number}u" if name == "limit" else f"({number + 1}ll - 1)"
    literal = literal if name in ("limit", "wide") else f"(int){literal}"
    compare = OPERATORS[operator]
    return f"g.{name} {operator} {literal}", lambda run: compare(getattr(run.given, name), number)


OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__,
    ">=": int.__ge__,
}  # fmt: skip
PLACES = {"a": "p = g.a + 1;", "out": "p = g.out;", "table": "p = g.table[i & 7];"}


def draw_statement(draw: random.Random, depth: int) -> Statement:
    kind = draw.random()
    if depth == 0 or kind < 0.25:
        place = draw.choice(list(PLACES))
        return PLACES[place], lambda run: setattr(run, "place", place)
    first, do_first = draw_statement(draw, depth - 1)
    place_of_store = draw.randrange(1, 10_000)  # no store makes another needless
    if kind < 0.4:
        second, do_second = draw_statement(draw, depth - 1)

        def one_after_the_other(run: Run) -> None:
            do_first(run)
            run.use()
            do_second(run)

        return f"{first} g.out[i + {place_of_store}] = *p; {second}", one_after_the_other
    text, holds = draw_test(draw)
    if kind < 0.5:

        def repeated(run: Run) -> None:
            if run.given.n > 0 and holds(run):  # every round is as the first
                do_first(run)
                run.use()

        return (
            f"for (int k = 0; k < g.n; ++k) if ({text}) "
            f"{{ {first} g.out[k + {place_of_store}] = p[k]; }}"
        ), repeated
    other, do_other = draw_statement(draw, depth - 1)
    return (
        f"if ({text}) {{ {first} }} else {{ {other} }}",
        lambda run: do_first(run) if holds(run) else do_other(run),
    )


def uses_table(do: Callable[[Run], None], given: Given) -> bool:
    """Whether any thread of a launch may."""
    for count in range(len(_OTHERS) + 1):
        for others in itertools.combinations(_OTHERS, count):
            run = Run(given, frozenset(others))
            do(run)
            run.use()
            if "table" in run.used:
                return True
    return False


def check_random_programs(seed: str, number: int, architecture: str, *options: str) -> int:
    """How many of them are known in some launches, and not in others."""
    draw = random.Random(seed)
    drawn = [draw_statement(draw, draw.choice((3, 4, 5))) for _ in range(number)]
    kernels = [
        f"__global__ void k{at}(Given g) {{ INDEX; const float* p = g.a;\n"
        f"{textwrap.fill(text, 100)}\ng.out[i] = p[i]; }}"
        for at, (text, _) in enumerate(drawn)
    ]
    head = SOURCE[: SOURCE.index("__device__ __noinline__")]
    text = head + 'extern "C" {\n' + "\n".join(kernels) + "\n}\n"
    found = analyze_cubin(images.compile_source(text, architecture, *options)[1])
    told_apart = 0
    for at, (_, do) in enumerate(drawn):
        says = set()
        for given in launches():
            anything = may_touch_anything(found[f"k{at}"], given)
            says.add(anything)
            assert anything or not uses_table(do, given), (kernels[at], bytes(given).hex())
        told_apart += len(says) == 2
    return told_apart


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("sm_80", ()), ("sm_90", ()), ("sm_120", ()), ("sm_80", ("--maxrregcount=24",))],
    ids=str,
)
def test_random_programs(architecture: str, options: tuple[str, ...]) -> None:
    told_apart = check_random_programs(f"{architecture} {options}", 40, architecture, *options)
    print(f"{architecture} {options}: {told_apart} of 40 kernels tell launches apart")
    assert told_apart > 3


# The parts.

EQUAL, LESS = Condition(8, 4, False, False, 3), Condition(8, 4, True, True, 3)


def test_conditions_that_contradict_each_other() -> None:
    assert is_possible(NOWHERE)
    assert not is_possible(frozenset(((EQUAL, True), (EQUAL, False))))
    assert not is_possible(frozenset(((EQUAL, True), (LESS, True))))
    assert is_possible(frozenset(((EQUAL, True), (LESS, False))))
    other = Condition(12, 4, False, False, 4)
    assert is_possible(frozenset(((EQUAL, True), (other, True))))
    minus = Condition(8, 4, False, False, 0xFFFFFFFF)
    assert is_possible(frozenset(((minus, True), (LESS, True))))  # -1 < 3
    unsigned = Condition(8, 4, False, True, 3)
    assert not is_possible(frozenset(((minus, True), (unsigned, True))))


def test_fewest_holds_wherever_one_of_them_does() -> None:
    conditions = [Condition(8, 4, False, False, number) for number in range(4)]
    contexts = [frozenset(((LESS, True), (one, True))) for one in conditions]
    assert fewest(contexts, 4) == set(contexts)
    assert fewest([*contexts, frozenset(((LESS, True),))], 4) == {frozenset(((LESS, True),))}
    assert fewest(contexts, 3) == {frozenset(((LESS, True),))}
    assert fewest([frozenset(((one, True),)) for one in conditions], 3) == {NOWHERE}


@pytest.mark.parametrize(
    ("opcode", "operands", "number"),
    [
        ("MOV", "R1, 0x7", 7),
        ("IMAD.MOV.U32", "R1, RZ, RZ, 0x7", 7),
        ("HFMA2.MMA", "R1, -RZ, RZ, 0, 5.9604644775390625e-08", 1),
        ("IMAD", "R1, R2, R3, 0x7", None),
        ("IMAD", "R1, R2, RZ, 0x7", None),
        ("IMAD.WIDE", "R2, RZ, RZ, 0x7", None),
        ("HFMA2", "R1, R2, RZ, 0, 5.9604644775390625e-08", None),
        ("MOV", "R1, R2", None),
    ],
)
def test_numbers_that_are_put_into_registers(
    opcode: str, operands: str, number: int | None
) -> None:
    fields = {"opcode": opcode, "operands": operands.replace(" ", "")}
    assert constant_of(parse_instruction(0, fields)) == number


def test_the_structure_is_laid_out_as_the_compiler_does() -> None:
    found = analyze_cubin(images.compile_source(SOURCE, "sm_80")[1])["equal"]
    assert found.summary.parameter_block_size == ctypes.sizeof(Given)
    assert len(list(itertools.islice(launches(), 200))) > 90
