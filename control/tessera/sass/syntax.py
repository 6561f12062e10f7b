# SPDX-License-Identifier: Apache-2.0
"""Instructions and operands as nvdisasm writes them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

# Variables of a program are numbers: one register, one predicate, one word of the stack.
UNIFORM, PREDICATE, UNIFORM_PREDICATE, STACK = 1000, 2000, 3000, 1 << 20
STACK_POINTER = 1
_REGISTER = re.compile(r"(U?)R(\d+|Z)((?:\.\w+)*)$")
_PREDICATE = re.compile(r"(!?)(U?)P(\d|T)$")
_CONSTANT = re.compile(r"(cx?)\[([^\]]*)\]\[([^\]]*)\](?:\.\w+)*$")
_JOINED = re.compile(r"(\]|\bU?R(?:\d+|Z)(?:\.\w+)*?|\bU?P[\dT])(\w*?desc),?\[")
_HALF = re.compile(r"[-~|]*(cx?|\w*desc)\[[^\]]*\]$")  # of an operand with two pairs of brackets
_NUMBER = re.compile(r"[-+]?(0x[0-9a-f]+|\d+)$")


@dataclass(frozen=True, slots=True)
class Operand:
    """`kind`: register, predicate, constant, number, memory, other.

    register, predicate: `variable`, None for RZ and PT. constant: `bank` (-1: not a number),
    `value`, and `base` where a register is added. memory: `parts` are the bracketed groups.
    """

    kind: str
    variable: int | None = None
    negative: bool = False  # -x, ~x, !p
    value: int = 0
    bank: int = 0
    base: tuple[Operand, ...] = ()
    suffix: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction; `address` within its section, in bytes."""

    address: int
    base: str  # "LDG"
    modifiers: tuple[str, ...]
    guard: Operand | None  # the predicate without which it does nothing
    operands: tuple[Operand, ...]
    text: str

    @property
    def is_never_done(self) -> bool:
        """Whether its guard is @!PT."""
        return self.guard is not None and self.guard.variable is None and self.guard.negative

    def has(self, *names: str) -> bool:
        return any(name in self.modifiers for name in names)


def split(text: str) -> list[str]:
    """The operands of an instruction: commas inside brackets do not part them.

    Before 13.5 nvdisasm leaves out the comma before a bracket: `R5[R0]` is `R5,[R0]`. With a cache
    hint all of them write it in the wrong place or not at all: `R2desc,[UR4][R2.64]`.
    """
    text = _JOINED.sub(r"\1,\2[", text)
    out, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        if char == "[" and depth == 0 and _is_whole(text[begin:at].strip()):
            out.append(text[begin:at])
            begin = at
        if char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            out.append(text[begin:at])
            begin = at + 1
    out.append(text[begin:])
    return [part.strip() for part in out if part.strip()]


def _is_whole(text: str) -> bool:
    """Whether what stands before a bracket is an operand that the bracket does not belong to."""
    if text.endswith("]"):
        return _HALF.match(text) is None
    return any(form.match(text) for form in (_REGISTER, _PREDICATE, _NUMBER))


@functools.lru_cache(maxsize=65536)
def parse_operand(text: str) -> Operand:
    """Never raises: what is not understood is `other`."""
    body, negative = text, False
    while body[:1] in ("-", "~", "+") and not _NUMBER.match(body):
        negative, body = negative != (body[0] != "+"), body[1:]
    if body.startswith("|") and body.endswith("|"):
        body = body[1:-1]
    if (match := _PREDICATE.match(body)) is not None:
        base = UNIFORM_PREDICATE if match[2] else PREDICATE
        variable = None if match[3] == "T" else base + int(match[3])
        return Operand("predicate", variable, match[1] == "!", text=text)
    if (match := _REGISTER.match(body)) is not None:
        variable = None if match[2] == "Z" else int(match[2]) + (UNIFORM if match[1] else 0)
        return Operand("register", variable, negative, suffix=match[3], text=text)
    if _NUMBER.match(body):
        return Operand("number", negative=negative, value=int(body, 0), text=text)
    if (match := _CONSTANT.match(body)) is not None:
        registers, value = _sum(match[3])
        plain = match[1] == "c" and _NUMBER.match(match[2]) is not None
        bank = int(match[2], 0) if plain else -1
        return Operand("constant", None, negative, value, bank, registers, text=text)
    if body.endswith("]"):
        groups = re.findall(r"\[([^\]]*)\]", re.sub(r"\w*desc\[[^\]]*\]", "", body))
        parts = tuple(_memory(group) for group in groups)
        return Operand("memory", base=parts, text=text)
    return Operand("other", text=text)


def _memory(group: str) -> Operand:
    registers, value = _sum(group)
    return Operand("memory", value=value, base=registers, text=group)


def _sum(text: str) -> tuple[tuple[Operand, ...], int]:
    """R2.64+UR4+-0x10 as its registers and its number."""
    registers, value = [], 0
    for piece in re.split(r"\+(?=[^+])", text):
        part = parse_operand(piece.strip()) if piece.strip() else Operand("number")
        if part.kind == "number":
            value += part.value
        elif part.kind == "register":
            if part.variable is not None:
                registers.append(part)
        else:
            registers.append(Operand("other", text=piece))
    return tuple(registers), value


def parse_instruction(address: int, fields: dict[str, str]) -> Instruction:
    """One element of nvdisasm's "sass-instructions"."""
    opcode, operands = fields["opcode"], fields.get("operands", "")
    base, *modifiers = opcode.split(".")
    guard = fields.get("predicate", "")
    parsed = parse_operand(guard[1:]) if guard.startswith("@") else None
    return Instruction(
        address,
        base,
        tuple(modifiers),
        parsed,
        _in_order(base, tuple(parse_operand(part) for part in split(operands))),
        f"{guard} {opcode} {operands}".strip(),
    )


def _in_order(base: str, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """LDGSTS as 13.2 and later write it: shared memory, global memory, predicate.

    Before 13.2 some forms have the shared memory last. Global memory is known by its 64 bit
    address; where that does not tell the two apart neither is taken for memory.
    """
    if base != "LDGSTS":
        return operands
    places = [operand for operand in operands if operand.kind == "memory"]
    rest = tuple(operand for operand in operands if operand.kind != "memory")
    if len(places) == 2 and _is_global(places[0]) != _is_global(places[1]):
        return (*sorted(places, key=_is_global), *rest)
    return (*(Operand("other", text=operand.text) for operand in places), *rest)


def _is_global(place: Operand) -> bool:
    registers = [part for group in place.base for part in group.base]
    return "desc[" in place.text or any(".64" in r.suffix or ".U32" in r.suffix for r in registers)
