# SPDX-License-Identifier: Apache-2.0
"""Pass 9: from touches to byte ranges per pointer.

Touches that differ only by a constant offset, seen under the same conditions, are one group: an
unrolled loop costs no more than the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tessera.analysis.bounds import UNBOUNDED, Bounds, Range
from tessera.analysis.coverage import Coverage
from tessera.analysis.environment import Env, Environments
from tessera.analysis.launch import Expr, Launch
from tessera.analysis.model import NO_FLAGS, Flag, Mode, Property
from tessera.analysis.pointers import Attribution, Target
from tessera.analysis.polynomial import Poly
from tessera.analysis.program import Symbol
from tessera.analysis.reasons import Reasons
from tessera.analysis.registers import Registers
from tessera.analysis.touches import Touch
from tessera.native.ptx import Space


@dataclass(slots=True)
class ByteRange:
    """One access of the summary, with expressions still as objects. `lo` and `hi` are None when
    unbounded."""

    mode: Mode
    flags: Flag
    parameter_offset: int
    guard: Expr | None
    lo: Expr | None
    hi: Expr | None
    index: int  # of a representative instruction
    reason: str


@dataclass(slots=True)
class Group:
    """Touches of one form: the address is `form` plus one of the constants."""

    touch: Touch
    env: Env
    spans: list[tuple[int, Poly, int]] = field(default_factory=list)  # constant, extent, index


@dataclass(slots=True)
class Outcome:
    """What became of all touches."""

    ranges: list[ByteRange] = field(default_factory=list)
    globals_read: set[Symbol] = field(default_factory=set)
    globals_written: set[Symbol] = field(default_factory=set)
    properties: dict[Property, tuple[int, str]] = field(default_factory=dict)


class Ranges:
    """Bounds the touches of one program."""

    def __init__(
        self,
        registers: Registers,
        environments: Environments,
        bounds: Bounds,
        attribution: Attribution,
        coverage: Coverage,
    ) -> None:
        self._environments = environments
        self._bounds = bounds
        self._launch: Launch = bounds.launch
        self._attribution = attribution
        self._coverage = coverage
        self._reasons = Reasons(registers)
        self._out = Outcome()

    def run(self, touches: Iterable[Touch]) -> Outcome:
        for group in self._groups(touches):
            targets = self._attribution.targets(group.touch.address)
            if targets is None:
                self._unknown(group.touch)
                continue
            for target in targets:
                self._place(group, target)
        return self._out

    def _groups(self, touches: Iterable[Touch]) -> list[Group]:
        groups: dict[tuple[object, ...], Group] = {}
        for touch in touches:
            env = self._environments.at(touch.index)
            number = touch.address.terms.get((), 0)
            form = touch.address.shift(-number)
            key = (form, touch.mode, touch.space, touch.obligations, env)
            group = groups.setdefault(key, Group(touch, env))
            group.spans.append((number, touch.extent, touch.index))
        return list(groups.values())

    def _unknown(self, touch: Touch) -> None:
        if touch.space == "const":
            self._out.properties.setdefault(
                Property.READS_GLOBALS, (touch.index, "constant memory at an unknown address")
            )
            return
        reason = self._reasons.no_root(touch.address)
        self._out.properties.setdefault(Property.UNKNOWN, (touch.index, reason))

    def _place(self, group: Group, target: Target) -> None:
        root, touch = target.root, group.touch
        if root.kind == "param":
            self._range(group, target)
        elif root.kind == "symbol":
            self._variable(root.args[0], touch)
        elif root.kind == "driver":
            self._out.properties.setdefault(
                Property.GRID_SYNC, (touch.index, "the driver's workspace")
            )

    def _variable(self, symbol: Symbol, touch: Touch) -> None:
        if symbol.space in (Space.GLOBAL, Space.CONST):
            if touch.mode & Mode.READ:
                self._out.globals_read.add(symbol)
            if touch.mode & Mode.WRITE:
                self._out.globals_written.add(symbol)
        elif symbol.kind == "parameter" and touch.mode & Mode.WRITE:
            self._out.properties.setdefault(
                Property.UNKNOWN, (touch.index, "a store to a kernel parameter")
            )

    def _range(self, group: Group, target: Target) -> None:
        touch = group.touch
        found = self._offsets(group, target)
        conditions = self._conditions(group, found)
        guard = self._guard(group.env)
        flags = Flag.INDIRECT if target.offset.loaded or target.carrier.loaded else NO_FLAGS
        line = touch.index
        if conditions is None or found.lo is None or found.hi is None:
            reason = self._reasons.unbounded(target, group.env, touch)
            self._out.ranges.append(
                ByteRange(
                    touch.mode, flags | Flag.UNBOUNDED, target.root.args[0], guard, None, None,
                    line, reason,
                )
            )  # fmt: skip
            return
        lo = found.lo
        if conditions is not self._launch.one:
            lo = self._launch.select(conditions, lo, self._launch.overflow)
        reason = ""
        if self._coverage.is_whole(group, target):
            flags |= Flag.EXACT | (Flag.MUST_WRITE if touch.mode & Mode.WRITE else NO_FLAGS)
        else:
            reason = self._reasons.inexact(target, group.env, touch)
        self._out.ranges.append(
            ByteRange(touch.mode, flags, target.root.args[0], guard, lo, found.hi, line, reason)
        )

    def _offsets(self, group: Group, target: Target) -> Range:
        """[lo, hi) of all touches of a group."""
        touch = group.touch
        base = touch.address.terms.get((), 0)
        first = self._attribution.offset_range(
            Target(target.root, target.carrier, target.offset.shift(-base)), group.env
        )
        if first.lo is None or first.hi is None:
            return UNBOUNDED
        extents = {(number, extent) for number, extent, _ in group.spans}
        low = min(number for number, _ in extents)
        lo = self._launch.add(first.lo, self._launch.const(low))
        hi, provisos = None, first.provisos
        for extent in {extent for _, extent in extents}:
            most = max(number for number, e in extents if e == extent)
            size = self._bounds.range(extent, group.env)
            if size.hi is None:
                return UNBOUNDED
            provisos |= size.provisos
            end = self._launch.add(first.hi, self._launch.add(size.hi, self._launch.const(most)))
            hi = end if hi is None else self._launch.max(hi, end)
        return Range(lo, hi, provisos)

    def _conditions(self, group: Group, found: Range) -> Expr | None:
        """What a launch must satisfy for the range to hold, as one expression."""
        provisos = found.provisos
        if group.touch.obligations:
            provisos |= {self._bounds.claim(group.touch.obligations, group.env)}
        conditions = self._bounds.conditions(provisos)
        if conditions is None:
            return None
        out = self._launch.one
        for condition in conditions:
            out = self._launch.both(out, condition)
        return out

    def _guard(self, env: Env) -> Expr | None:
        """What is known of the launch itself wherever the access is made."""
        launch = self._launch
        out = launch.one
        for fact in env.uniform_facts():
            conditions = self._bounds.conditions(frozenset([fact.proviso]))
            if conditions is None:
                continue
            slack = fact.slack or launch.zero
            holds = launch.less_equal(self._bounds.lower(fact.poly), slack)
            reliable = launch.one
            for condition in conditions:
                reliable = launch.both(reliable, condition)
            out = launch.both(out, launch.select(reliable, holds, launch.one))
        return None if out is launch.one else out
