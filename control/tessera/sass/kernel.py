# SPDX-License-Identifier: Apache-2.0
"""What one kernel does to memory: its accesses with their roots, and its grade."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from tessera.analysis import Mode, Property
from tessera.analysis.calls import external_call
from tessera.sass.conditions import NOWHERE, Context, fewest, is_possible
from tessera.sass.effects import effects, survey
from tessera.sass.elf import Cubin, KernelInfo
from tessera.sass.linear import forms_of
from tessera.sass.opcodes import NOTHING, OPCODES
from tessera.sass.program import Program, TooHardError, build
from tessera.sass.returns import check_returns
from tessera.sass.roots import Resolver, Roots, UnknownRootError
from tessera.sass.syntax import Instruction, Operand
from tessera.sass.values import NUMBER, Terms, Values

DESCRIPTOR = 64  # bytes to which a descriptor of TMA is aligned
MAX_EXCEPTIONS = 16  # kinds of launches that are told apart, in which a kernel is unknown
MAX_ELEMENTS = 128  # of an array of pointers in the parameters, that are told apart


class Grade(enum.StrEnum):
    """How much of a kernel's accesses is known, best first."""

    EXACT = "exact"  # ranges, as from PTX
    ATTRIBUTED = "attributed"  # each access has its pointer; extents are allocations
    CONSERVATIVE = "conservative"  # no loaded pointer is followed, but roles are unclear
    UNKNOWN = "unknown"  # it may touch anything


@dataclass(slots=True)
class Claim:
    """What happens through one word of the parameter block. `required`: the launch is known
    only if the word points to live memory. `maybe`: it is one of many that may be the pointer.
    `blocks`: only launches with more than so many blocks along an axis (0, 1, 2) use it."""

    mode: Mode
    required: bool
    place: int  # a representative instruction's address
    maybe: bool = False
    blocks: tuple[int, int] | None = None


@dataclass(slots=True)
class KernelFacts:
    """What was found. `claims` by offset of the pointer word in the parameter block. `limits`:
    with more blocks than so many along an axis, the kernel may touch anything; as it may in
    launches for which one of `exceptions` holds."""

    grade: Grade
    properties: Property = NOTHING
    claims: dict[int, Claim] = field(default_factory=dict)
    limits: set[tuple[int, int]] = field(default_factory=set)
    exceptions: set[Context] = field(default_factory=set)
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
        self._resolved: dict[tuple[Terms, Terms, Any, Context], Roots] = {}

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
            guard = self._values.decision(index, ins.guard)
        launches = self._launches(index, ins)
        key = (low, high, guard, launches)
        try:
            roots = self._resolved.get(key) or self._resolver.resolve(*key)
        except UnknownRootError as problem:
            self._facts.give_up(f"{self._place(index)}: {ins.text}: {problem}")
            return
        self._resolved[key] = roots
        self._found.append(_Found(index, mode, roots))

    def _launches(self, index: int, ins: Instruction) -> Context:
        """What is known of a launch that does an instruction. Nothing where it seems that none
        does."""
        conditions = self._values.conditions
        known = (conditions.at(index) or NOWHERE) | conditions.guard(index, ins.guard)
        return known if is_possible(known) else NOWHERE

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
        """A descriptor that is a parameter begins with its tensor's address, which the launch
        checks to be in live memory; one that lies elsewhere may describe any memory."""
        places = [o for o in ins.operands if o.kind == "memory" and o.base]
        base = self._kernel.parameter_base
        found = None
        if len(places) == 2 and self._is_parameter(index, places[1].base[0]):
            found = forms_of(self._values, index, places[1].base[0].base)
        offsets = {number for _, number in found or []}
        is_sure = bool(found) and all(symbols == (("block", 1),) for symbols, _ in found or [])
        if not is_sure or any((base + offset) % DESCRIPTOR for offset in offsets):
            self._facts.mark(Property.TENSOR_MAPS, f"{self._place(index)}: {ins.text}")
            self._facts.give_up(
                f"{self._place(index)}: {ins.text}: a descriptor may describe any memory"
            )
            return
        for offset in offsets:
            self._claim(offset, Claim(mode, True, self._program.code[index].address))

    def _is_parameter(self, index: int, place: Operand) -> bool:
        """Whether an address surely lies in the parameter block."""
        try:
            roots = self._resolver.resolve(*self._address(index, place))
        except UnknownRootError:
            return False
        return roots == Roots(parameter_block=True)

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
        self._facts.exceptions = fewest(self._facts.exceptions, MAX_EXCEPTIONS)
        if NOWHERE in self._facts.exceptions:
            self._facts.give_up("launches in which it is not known are too many to be told apart")

    def _settle_one(self, found: _Found, sure: set[int]) -> None:
        roots, facts = found.roots, self._facts
        facts.exceptions |= roots.unless
        if roots.parameter_block and found.mode & Mode.WRITE:
            facts.give_up(f"{self._place(found.index)}: a store into the parameters")
        if found.mode & Mode.READ:
            facts.symbols_read |= roots.symbols
        if found.mode & Mode.WRITE:
            facts.symbols_written |= roots.symbols
        if roots.whole_block or roots.merged:
            facts.grade = Grade.CONSERVATIVE
        place = self._program.code[found.index].address
        if roots.whole_block:
            self._claim_all(found.mode, place)
        for index in roots.indexed:
            self._claim_indexed(index, found.mode, place)
        for words, loaded in roots.ways:
            chosen = words
            if len(words) > 1 and not roots.merged:
                chosen = (words & sure) or words
                if len(chosen) > 1:
                    facts.grade = Grade.CONSERVATIVE
            required = loaded or chosen != words
            for offset in chosen:
                self._claim(offset, Claim(found.mode, required, place))

    def _claim_all(self, mode: Mode, place: int) -> None:
        self._facts.grade = Grade.CONSERVATIVE
        for offset in range(0, self._kernel.parameter_size - 7, 8):
            self._claim(offset, Claim(mode, False, place, maybe=True))

    def _claim_indexed(self, index: int, mode: Mode, place: int) -> None:
        """An array of pointers in the parameters. Where its index is the block's, the launch's
        grid tells how many of them are used; else any word may be one of them."""
        operand = next(o for o in self._program.code[index].operands if o.kind == "constant")
        found = forms_of(self._values, index, operand.base)
        if found is None or len(found) != 1 or len(found[0][0]) != 1:
            self._claim_all(mode, place)
            return
        ((symbol, stride),), first = found[0]
        first = (first + operand.value - self._kernel.parameter_base) % (1 << 32)
        end = self._kernel.parameter_size
        if symbol not in "xyz" or stride % 8 or stride > end or first % 8 or first + 8 > end:
            self._claim_all(mode, place)
            return
        offsets = range(first, end - 7, stride)
        if len(offsets) > MAX_ELEMENTS:
            self._facts.limits.add(("xyz".index(symbol), MAX_ELEMENTS))
        for number, offset in enumerate(offsets[:MAX_ELEMENTS]):
            claim = Claim(mode, False, place, blocks=("xyz".index(symbol), number))
            self._claim(offset, claim)

    def _claim(self, offset: int, new: Claim) -> None:
        if offset + 8 > self._kernel.parameter_size:
            self._facts.give_up("a pointer that ends outside of the parameters")
            return
        old = self._facts.claims.get(offset)
        if old is None:
            self._facts.claims[offset] = new
            return
        old.mode |= new.mode
        old.required = old.required or new.required
        old.maybe = old.maybe and new.maybe
        if old.blocks is not None and new.blocks is not None and old.blocks[0] == new.blocks[0]:
            old.blocks = min(old.blocks, new.blocks)
        else:
            old.blocks = None


def _mode(memory: str) -> Mode:
    mode = Mode(0)
    if "r" in memory:
        mode |= Mode.READ
    if "w" in memory:
        mode |= Mode.WRITE
    return mode
