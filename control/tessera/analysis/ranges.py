# SPDX-License-Identifier: Apache-2.0
"""Pass 9: from touches to byte ranges per pointer.

A touch's address is split into its root and an offset; the offset is bounded under the facts of
its place; what must hold of the launch for that becomes a condition of the range, without
which it is unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tessera.analysis.bounds import Bounds
from tessera.analysis.coverage import NOT_TOLD, Coverage, Whole
from tessera.analysis.environment import Env, Environments, Proviso
from tessera.analysis.families import Box, Hull, Member, families, hull, member_of
from tessera.analysis.guards import Guards
from tessera.analysis.launch import Expr, Launch
from tessera.analysis.model import NO_FLAGS, Flag, Mode, Property
from tessera.analysis.pointers import Attribution, Target
from tessera.analysis.polynomial import Atom, of_atom
from tessera.analysis.program import Symbol
from tessera.analysis.reasons import Reasons
from tessera.analysis.registers import Registers
from tessera.analysis.sides import Sides
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
    provisos: frozenset[Proviso] = frozenset()
    levels: tuple[tuple[Expr, Expr], ...] = ()  # (pitch, count)


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
        self._registers = registers
        self._environments = environments
        self._bounds = bounds
        self._launch: Launch = bounds.launch
        self._attribution = attribution
        self._coverage = coverage
        self._reasons = Reasons(registers)
        self._out = Outcome()
        self._sides = Sides(registers, environments, bounds, attribution)
        self._guards = Guards(environments, bounds, self._sides)

    def run(self, touches: Iterable[Touch]) -> Outcome:
        members: dict[tuple[Atom, Mode, bool], list[Member]] = {}
        for touch, env, provisos in self._sides.of(touches):
            targets = self._attribution.targets(touch.address)
            if targets is None:
                self._unknown(touch)
                continue
            for target in targets:
                if target.root.kind != "param":
                    self._elsewhere(target, touch)
                elif target.carrier is target.root and touch.extent.bound()[1] is not None:
                    key = (target.root, touch.mode, target.offset.loaded)
                    member = member_of(self._bounds, touch, env, target.offset, provisos)
                    members.setdefault(key, []).append(member)
                else:
                    self._single(touch, env, target, provisos)
        for (root, _, _), found in members.items():
            hulls: dict[tuple[object, ...], Hull] = {}
            for family in families(self._bounds, root, found):
                one = hull(self._bounds, family)
                shape = one.key()
                known = hulls.get(shape)
                hulls[shape] = known.joined(self._bounds, one) if known is not None else one
            for one in hulls.values():
                self._hull(one)
        self._out.ranges = [self._conditional(r) for r in _merged(self._out.ranges)]
        return self._out

    def _unknown(self, touch: Touch) -> None:
        if touch.space == "const":
            self._out.properties.setdefault(
                Property.READS_GLOBALS, (touch.index, "constant memory at an unknown address")
            )
            return
        if Property.UNKNOWN not in self._out.properties:
            reason = self._reasons.no_root(touch.address)
            self._out.properties[Property.UNKNOWN] = touch.index, reason

    def _elsewhere(self, target: Target, touch: Touch) -> None:
        if target.root.kind == "symbol":
            self._variable(target.root.args[0], touch)
        elif target.root.kind == "driver":
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

    def _hull(self, one: Hull) -> None:
        family, first = one.family, one.family.first
        target = Target(family.root, family.root, first.touch.address - of_atom(family.root))
        box = one.box(self._bounds)
        provisos = box.provisos
        guards = []
        for member in family.members:
            provisos |= member.provisos
            guards.append(self._guards.of(member.env))
        same = all(g is guards[0] for g in guards)
        guard = guards[0] if same else self._guards.any(guards)
        sized = all(m.touch.extent.constant is not None for m in family.members)
        box = replace(box, provisos=provisos)
        exact: tuple[Box, Whole | None] = box, None
        self._coverage.why = NOT_TOLD
        if same and sized and box.lo is not None and box.hi is not None:
            exact = self._exact(one, box)
        why = self._coverage.why if sized else ""
        self._emit(first.touch, target, box, guard, exact, why)

    def _exact(self, one: Hull, box: Box) -> tuple[Box, Whole | None]:
        """What of a family is surely touched as a whole: its rows, or else the interval that they
        lie in."""
        levels = {factor for factor, _ in one.apart()}
        rows = self._coverage.of_rows(one.family, levels)
        if rows is not None:
            if rows.limits:
                box = replace(one.box(self._bounds, rows.limits), provisos=box.provisos)
            return box, rows
        if not levels:
            return box, self._coverage.of(one.family)
        interval = self._coverage.of(one.family)
        if interval is None:
            return box, None
        return replace(one.interval(self._bounds), provisos=box.provisos), interval

    def _single(self, touch: Touch, env: Env, target: Target, needs: frozenset[Proviso]) -> None:
        """A touch through a choice of pointers, or of a size that is not constant."""
        found = self._attribution.offset_range(target, env)
        size = self._bounds.range(touch.extent, env)
        provisos = found.provisos | size.provisos | needs
        hi = None
        if found.hi is not None and size.hi is not None:
            hi = self._launch.add(found.hi, size.hi)
        box = Box(found.lo, hi, (), provisos)
        guard = self._guards.of(env)
        if target.carrier.kind == "stored":
            places = self._attribution.places(target.carrier).get(target.root, [])
            guard = self._guards.both(guard, self._guards.meets(target.carrier, places))
        self._emit(touch, target, box, guard, (box, None))

    def _emit(
        self,
        touch: Touch,
        target: Target,
        found: Box,
        guard: Expr | None,
        exact: tuple[Box, Whole | None],
        why: str = "",
    ) -> None:
        """The range `found`, and where the launch satisfies the condition of `exact`, that in its
        place. `why`: for what it may not be touched as a whole."""
        best, whole = exact
        flags = Flag.INDIRECT if target.offset.loaded or target.carrier.loaded else NO_FLAGS
        offset = target.root.args[0]
        if (
            found.lo is None
            or found.hi is None
            or not self._bounds.provisos.can_hold(found.provisos)
        ):
            reason = self._reasons.unbounded(target, touch)
            flags |= Flag.UNBOUNDED
            self._out.ranges.append(
                ByteRange(touch.mode, flags, offset, guard, None, None, touch.index, reason)
            )
            return
        reason = "" if whole else self._reasons.inexact(target, touch) or why
        plain = ByteRange(
            touch.mode, flags, offset, guard, found.lo, found.hi, touch.index, reason,
            found.provisos, found.levels,
        )  # fmt: skip
        sure = self._launch.zero if whole is None else self._certainty(whole, found.provisos)
        if sure is not self._launch.zero:
            flags |= Flag.EXACT | (Flag.MUST_WRITE if touch.mode & Mode.WRITE else NO_FLAGS)
            both = self._guards.both(guard, sure)
            self._out.ranges.append(
                replace(
                    plain,
                    flags=flags,
                    guard=both,
                    reason="",
                    lo=best.lo,
                    hi=best.hi,
                    levels=best.levels,
                )
            )
        if sure is not self._launch.one:
            self._out.ranges.append(
                replace(plain, guard=self._guards.both(guard, self._launch.negate(sure)))
            )

    def _certainty(self, whole: Whole, given: frozenset[Proviso]) -> Expr:
        """1 when a launch surely touches every byte, given that the range holds at all."""
        sure = self._bounds.provisos.conditions_beyond(whole.provisos, given)
        return self._launch.zero if sure is None else self._launch.both(sure, whole.condition)

    def _conditional(self, r: ByteRange) -> ByteRange:
        """The range with an end that is unbounded unless its provisos hold."""
        if r.lo is None:
            return r
        conditions = self._bounds.provisos.conditions(r.provisos)
        if conditions is None:
            flags = (r.flags | Flag.UNBOUNDED) & ~(Flag.EXACT | Flag.MUST_WRITE)
            reason = r.reason or "the index arithmetic may wrap around"
            return replace(r, flags=flags, lo=None, hi=None, levels=(), reason=reason)
        return replace(r, lo=self._launch.select(conditions, r.lo, self._launch.overflow))


def _merged(ranges: list[ByteRange]) -> list[ByteRange]:
    """Ranges with the same ends and the same meaning, as one that rests on all their provisos."""
    out: dict[tuple[object, ...], ByteRange] = {}
    for r in ranges:
        key = (r.mode, r.flags, r.parameter_offset, r.guard, r.lo, r.hi, r.levels)
        known = out.get(key)
        out[key] = r if known is None else replace(known, provisos=known.provisos | r.provisos)
    return list(out.values())
