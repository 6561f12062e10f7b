# SPDX-License-Identifier: Apache-2.0
"""What one kernel does to memory: its accesses with their roots, and its grade."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from tessera.analysis import Mode, Property
from tessera.analysis.calls import external_call
from tessera.sass.effects import effects, survey
from tessera.sass.elf import Cubin, KernelInfo
from tessera.sass.opcodes import NOTHING, OPCODES
from tessera.sass.program import Program, TooHardError, build
from tessera.sass.returns import check_returns
from tessera.sass.roots import Resolver, Roots, UnknownRootError
from tessera.sass.syntax import Instruction, Operand
from tessera.sass.values import NUMBER, Terms, Values


class Grade(enum.StrEnum):
    """How much of a kernel's accesses is known, best first."""

    EXACT = "exact"  # ranges, as from PTX
    ATTRIBUTED = "attributed"  # each access has its pointer; extents are allocations
    CONSERVATIVE = "conservative"  # no loaded pointer is followed, but roles are unclear
    UNKNOWN = "unknown"  # it may touch anything


@dataclass(slots=True)
class Claim:
    """What happens through one word of the parameter block. `required`: the launch is known
    only if the word points to live memory."""

    mode: Mode
    required: bool
    place: int  # a representative instruction's address
    indirect: bool = False


@dataclass(slots=True)
class KernelFacts:
    """What was found. `claims` by offset of the pointer word in the parameter block."""

    grade: Grade
    properties: Property = NOTHING
    claims: dict[int, Claim] = field(default_factory=dict)
    symbols_read: set[str] = field(default_factory=set)
    symbols_written: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    instructions: int = 0

    def mark(self, kind: Property, reason: str) -> None:
        for single in Property:
            if kind & single:
                self.properties |= single
                self.reasons.setdefault(str(single.name), reason)

    def give_up(self, reason: str) -> None:
        self.grade = Grade.UNKNOWN
        self.mark(Property.UNKNOWN, reason)


def analyze_kernel(
    kernel: KernelInfo, code: dict[str, list[Instruction]], cubin: Cubin
) -> KernelFacts:
    """Never raises for what the code holds: what is not understood is unknown."""
    facts = KernelFacts(Grade.ATTRIBUTED)
    try:
        program = build(kernel.name, code, cubin)
        facts.instructions = len(program.code)
        _Scan(program, kernel, cubin, facts).run()
    except TooHardError as problem:
        facts.give_up(str(problem))
    except RecursionError:
        facts.give_up("its values depend on each other too deeply")
    if facts.grade is Grade.UNKNOWN:
        for kind, reason in survey(kernel.name, code, cubin):
            facts.mark(kind, reason)
    return facts


@dataclass(slots=True)
class _Found:
    """One access and what its address may be based on."""

    index: int
    mode: Mode
    roots: Roots


class _Scan:
    def __init__(
        self, program: Program, kernel: KernelInfo, cubin: Cubin, facts: KernelFacts
    ) -> None:
        self._program = program
        self._kernel = kernel
        self._facts = facts
        self._values = Values(program, kernel, cubin)
        self._resolver = Resolver(self._values)
        self._found: list[_Found] = []
        self._resolved: dict[tuple[Terms, Terms, Any], Roots] = {}

    def run(self) -> None:
        check_returns(self._values)
        for index, name in self._program.external_calls:
            kind = external_call(name) or Property(0)
            self._facts.mark(kind, f"{self._place(index)} calls {name}")
            if kind & ~Property.ASSERTS:
                self._facts.give_up(f"{self._place(index)} calls {name}")
        for index, ins in enumerate(self._program.code):
            if ins.is_never_done:
                continue
            self._properties(index, ins)
            memory = OPCODES[ins.base].memory
            if memory.endswith("g"):
                self._access(index, ins, _mode(memory))
            elif memory == "bulk":
                self._bulk(index, ins)
            elif memory.startswith("tensor"):
                self._tensor(index, ins, _mode(memory.split()[1]))
            if self._facts.grade is Grade.UNKNOWN:
                break  # nothing that may follow makes it known again
        if self._facts.grade is not Grade.UNKNOWN:
            self._settle()

    def _place(self, index: int) -> str:
        return f"{self._program.code[index].address:#x}"

    def _properties(self, index: int, ins: Instruction) -> None:
        mark, reason = self._facts.mark, f"{self._place(index)}: {ins.text}"
        for kind in effects(ins):
            mark(kind, reason)
        if OPCODES[ins.base].properties & Property.UNKNOWN:
            self._facts.give_up(reason)

    def _access(self, index: int, ins: Instruction, mode: Mode) -> None:
        operand = next((o for o in reversed(ins.operands) if o.kind == "memory"), None)
        if operand is None or not operand.base or not ins.has("E"):
            self._facts.give_up(f"{self._place(index)}: the address of {ins.text} was not found")
            return
        self._resolve(index, ins, mode, *self._address(index, operand.base[-1]))

    def _address(self, index: int, place: Operand) -> tuple[Terms, Terms]:
        low: Terms = NUMBER
        high: Terms = NUMBER
        for register in place.base:
            if register.kind != "register" or register.variable is None:
                raise TooHardError(f"{place.text} is no address that is known")
            before = self._values.before
            low |= self._values.terms(before(index, register.variable))
            if ".U32" not in register.suffix:
                high |= self._values.terms(before(index, register.variable + 1))
        return low, high

    def _resolve(self, index: int, ins: Instruction, mode: Mode, low: Terms, high: Terms) -> None:
        guard = None
        if ins.guard is not None and ins.guard.variable is not None:
            predicate = self._values.before(index, ins.guard.variable)
            guard = (("c", predicate), int(ins.guard.negative))
        known = self._resolved.get((low, high, guard))
        try:
            roots = known or self._resolver.resolve(low, high, guard)
        except UnknownRootError as problem:
            self._facts.give_up(f"{self._place(index)}: {ins.text}: {problem}")
            return
        self._resolved[low, high, guard] = roots
        self._found.append(_Found(index, mode, roots))

    def _bulk(self, index: int, ins: Instruction) -> None:
        """UBLKCP and UBLKRED: which operand is global stands in the modifiers."""
        places = [o for o in ins.operands if o.kind == "memory" and o.base]
        text = ".".join(ins.modifiers)
        if len(places) < 2 or text[:3] not in ("S.G", "G.S"):
            self._facts.give_up(f"{self._place(index)}: {ins.text} is not understood")
            return
        reads = text.startswith("S.G")
        operand = places[1] if reads else places[0]
        mode = Mode.READ if reads else Mode.WRITE
        if ins.base == "UBLKRED":
            mode = Mode.READ | Mode.WRITE
        self._resolve(index, ins, mode, *self._address(index, operand.base[0]))

    def _tensor(self, index: int, ins: Instruction, mode: Mode) -> None:
        """The descriptor's place in the parameter block is noted; the property keeps the kernel
        at home, for the descriptor is made elsewhere."""
        self._facts.mark(Property.TENSOR_MAPS, f"{self._place(index)}: {ins.text}")
        self._facts.give_up(
            f"{self._place(index)}: {ins.text}: a descriptor may describe any memory"
        )

    def _settle(self) -> None:
        """Roots become claims on words of the parameter block."""
        sure: set[int] = set()
        for found in self._found:
            for words, loaded in found.roots.ways:
                if len(words) == 1 and not loaded:
                    sure |= words
        for found in self._found:
            self._settle_one(found, sure)
        for name in self._facts.symbols_written:
            self._facts.mark(Property.WRITES_GLOBALS, name)

    def _settle_one(self, found: _Found, sure: set[int]) -> None:
        roots, facts = found.roots, self._facts
        if roots.parameter_block and found.mode & Mode.WRITE:
            facts.give_up(f"{self._place(found.index)}: a store into the parameters")
        if found.mode & Mode.READ:
            facts.symbols_read |= roots.symbols
        if found.mode & Mode.WRITE:
            facts.symbols_written |= roots.symbols
        if roots.whole_block or roots.merged:
            facts.grade = Grade.CONSERVATIVE
        if roots.whole_block:
            for offset in range(0, self._kernel.parameter_size - 7, 8):
                self._claim(offset, Mode.READ | Mode.WRITE, False, found.index)
        for words, loaded in roots.ways:
            chosen = words
            if len(words) > 1 and not roots.merged:
                chosen = (words & sure) or words
                if len(chosen) > 1:
                    facts.grade = Grade.CONSERVATIVE
            required = loaded or chosen != words
            for offset in chosen:
                mode = found.mode if len(chosen) == 1 else Mode.READ | Mode.WRITE
                self._claim(offset, mode, required, found.index)

    def _claim(self, offset: int, mode: Mode, required: bool, index: int) -> None:
        if offset + 8 > self._kernel.parameter_size:
            self._facts.give_up("a pointer that ends outside of the parameters")
            return
        claim = self._facts.claims.get(offset)
        if claim is None:
            place = self._program.code[index].address
            self._facts.claims[offset] = Claim(mode, required, place)
        else:
            claim.mode |= mode
            claim.required = claim.required or required


def _mode(memory: str) -> Mode:
    mode = Mode(0)
    if "r" in memory:
        mode |= Mode.READ
    if "w" in memory:
        mode |= Mode.WRITE
    return mode
