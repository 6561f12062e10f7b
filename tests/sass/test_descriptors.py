# SPDX-License-Identifier: Apache-2.0
"""Tensor maps in the parameter block, as hand-written kernels of libraries take them from there:
no compiler of ours makes such code, so it is written down here."""

from __future__ import annotations

import pytest
from tessera.analysis import Mode
from tessera.sass.elf import Cubin, KernelInfo
from tessera.sass.kernel import Grade, KernelFacts, analyze_kernel
from tessera.sass.syntax import parse_instruction

SM_90 = 0x210


def facts_of(text: str, base: int = SM_90) -> KernelFacts:
    """What is found of a kernel given line by line; `name:` at the start of a line is a label."""
    lines = [line.strip() for line in text.strip().splitlines()]
    places: dict[str, int] = {}
    for at, line in enumerate(lines):
        if ": " in line:
            name, lines[at] = line.split(": ", 1)
            places[name] = at
    code = []
    for at, line in enumerate(lines):
        predicate, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        opcode, _, operands = rest.partition(" ")
        for name, place in places.items():
            operands = operands.replace(f"<{name}>", hex(16 * place))
        fields = {"predicate": predicate, "opcode": opcode, "operands": operands}
        code.append(parse_instruction(16 * at, fields))
    kernel = KernelInfo("kernel", 1, base, 1720, ((0, 1720),))
    return analyze_kernel(kernel, {"kernel": code}, Cubin(["", ".text.kernel"], [], [kernel]))


ROUND = """
ULDC.64 UR34,c[0x0][{word:#x}]
ISETP.EQ.AND P3,PT,R4,0x4,PT
UIADD3.64 UR34,UR34,{first:#x},URZ
{before}
BRA P3,<middle>
top: UISETP.EQ.AND UP0,UPT,UR4,0x4,UPT
middle: UTMALDG.3D [UR8],[UR34]
UIADD3.64 UR34,UR34,0x40,URZ
UTMALDG.3D.MULTICAST [UR16],[UR34],UR38
UIADD3.64 UR34,UR34,{back},URZ
BRA.U UP0,<top>
UISETP.EQ.AND UP1,UPT,UR5,0x4,UPT
BRA.U UP1,<middle>
EXIT
"""


def rounds(
    word: int = 0xC0,
    first: int = 0x2C0,
    back: str = "-0x40",
    before: str = "NOP",
    base: int = SM_90,
) -> KernelFacts:
    return facts_of(ROUND.format(word=word, first=first, back=back, before=before), base)


@pytest.mark.parametrize(("word", "first"), [(0xC0, 0x2C0), (0x198, 0xB0)])
def test_a_loop_that_goes_to_and_fro_between_two(word: int, first: int) -> None:
    """The address is the bank's own or the parameters'; the loop has two ways in."""
    facts = rounds(word, first)
    assert facts.grade is Grade.ATTRIBUTED, facts.reasons
    assert {offset: claim.mode for offset, claim in facts.claims.items()} == {
        176: Mode.READ, 240: Mode.READ
    }  # fmt: skip
    assert all(claim.required for claim in facts.claims.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"back": "0x0"},  # on and on
        {"back": "-0x38"},  # no place of a descriptor
        {"before": "@P0 UMOV UR34,0x40"},
        {"before": "@P0 UMOV UR35,0x40"},
        {"before": "@P0 ULDC.64 UR34,c[0x0][0x2c0]"},
        {"before": "@P0 ULDC UR35,c[0x0][0x2c4]"},
        {"before": "UIMAD UR34,UR34,0x2,URZ"},
        {"before": "R2UR UR34,R5"},
        {"word": 0xC8},
        {"word": 0xC4},
        {"base": 0x160},
        {"first": 0xB0},  # before the parameters
        {"first": 0x8C0},  # after them
    ],
    ids=str,
)
def test_what_may_be_another_descriptor_is_unknown(changed: dict[str, object]) -> None:
    facts = rounds(**changed)  # type: ignore[arg-type]
    assert facts.grade is Grade.UNKNOWN, facts.claims


def test_a_store_through_a_descriptor_writes() -> None:
    facts = facts_of(
        """
        ULDC.64 UR22,c[0x0][0xc0]
        UIADD3.64 UR22,UR22,0x440,URZ
        @UP3 UTMASTG.3D [UR32],[UR22]
        EXIT
        """
    )
    assert {offset: claim.mode for offset, claim in facts.claims.items()} == {560: Mode.WRITE}
