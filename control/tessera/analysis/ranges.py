# SPDX-License-Identifier: Apache-2.0
"""Pass 9: from touches to byte ranges per pointer.

A touch's address is split into its root and an offset; the offset is bounded under the facts of
its place; what must hold of the launch for that becomes a condition of the range, without
which it is unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tessera.analysis.bounds import Bounds
from tessera.analysis.coverage import NOT_TOLD, Coverage, Whole
from tessera.analysis.digits import without_overlaps
from tessera.analysis.domain import Value
from tessera.analysis.environment import Env, Environments, Fact, Proviso
from tessera.analysis.families import Box, Hull, Member, families, hull, member_of
from tessera.analysis.launch import Expr, Launch
from tessera.analysis.model import NO_FLAGS, Flag, Mode, Property
from tessera.analysis.pointers import Attribution, Target
from tessera.analysis.polynomial import Atom, Poly, of_atom
from tessera.analysis.predicates import Pred
from tessera.analysis.program import Symbol
from tessera.analysis.reasons import Reasons
from tessera.analysis.registers import Registers
from tessera.analysis.slots import Word
from tessera.analysis.touches import Touch
from tessera.native.ptx import Space

MAX_SPLIT = 64  # touches of a kernel whose indices are taken apart too
MAX_SIDES = 10_000  # touches still to be taken apart
MAX_JOINS = 2  # on the way to one touch that are gone back over
MAX_PLACES = 16  # words of an array that are told apart


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


@dataclass(frozen=True, slots=True)
class Remainder:
    """`number mod divisor` is `rest`, provided that `proviso` holds."""

    number: Poly
    divisor: int
    rest: int
    proviso: Proviso


@dataclass(frozen=True, slots=True)
class Side:
    """An address with a choice made, and what is known where it is made so."""

    address: Poly
    env: Env
    provisos: frozenset[Proviso]


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
        self._remainders: dict[Env, list[Remainder]] = {}
        self._met: dict[Env, tuple[Atom, Word]] = {}  # places where a word of an array was loaded

    def run(self, touches: Iterable[Touch]) -> Outcome:
        members: dict[tuple[Atom, Mode, bool], list[Member]] = {}
        for touch, env, provisos in self._sides(_distinct(touches, self._environments)):
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
        reason = self._reasons.no_root(touch.address)
        self._out.properties.setdefault(Property.UNKNOWN, (touch.index, reason))

    def _sides(self, touches: Iterable[Touch]) -> Iterable[tuple[Touch, Env, frozenset[Proviso]]]:
        """Touches, those through `p ? a : b` as two that are made under p and under not p."""
        touches = list(touches)
        split: set[Poly] = set()  # addresses that an index was chosen for: one choice is enough
        joins: dict[Poly, int] = {}  # joins that were gone back over on the way to an address
        work = [(t, _place(t, self._environments), self._own(t)) for t in touches][::-1]
        while work:
            touch, env, provisos = work.pop()
            choice = self._attribution.sides(touch.address)
            if choice is None and len(touches) <= MAX_SPLIT and touch.address not in split:
                choice = _index_choice(touch.address)
            gone = joins.get(touch.address, 0)
            if choice is not None and choice.kind != "sel":
                gone += 1
                if gone > MAX_JOINS or not self._is_of_now(choice, touch):
                    choice = None
            if choice is None or len(work) > MAX_SIDES:
                address, support = self._settled(touch.address, env)
                yield replace(touch, address=address), env, provisos | support
                continue
            for side in self._taken_apart(touch.address, choice, env):
                if touch.address.terms[choice,] != 1 or choice.hi is not None:
                    split.add(side.address)
                joins[side.address] = gone
                more = provisos | side.provisos
                work.append((replace(touch, address=side.address), side.env, more))

    def _taken_apart(self, address: Poly, choice: Atom, env: Env) -> Iterator[Side]:
        """An address for each side of a choice; what is chosen together with it goes along."""
        if choice.kind == "sel":
            pred = choice.args[0]
            alike = [a for a in _alone(address) if a.kind == "sel" and a.args[0] == pred]
            for place, side in ((2, pred.negated()), (1, pred)):
                here = self._environments.refine(env, side)
                yield self._side(address, {a: a.args[place] for a in alike}, here, here)
            return
        if choice.kind == "stored":
            for word, pred in _places_of(choice):
                here = self._environments.refine(env, pred)
                self._met[here] = choice, word
                made = self._environments.at(word.store)
                value = word.value(self._registers, choice.args[3])
                yield self._side(address, {choice: value}, here, made)
            return
        edges = choice.args[0]
        alike = [a for a in _alone(address) if a.kind == "phi" and a.args[0] == edges]
        for place in reversed(range(len(edges))):
            here = env
            for pred in self._environments.way(edges[place]):
                here = self._environments.refine(here, pred)
            chosen = {a: a.args[1][place] for a in alike}
            yield self._side(address, chosen, here, self._environments.on_edge(edges[place]))

    def _side(self, address: Poly, chosen: dict[Atom, Value], env: Env, made: Env) -> Side:
        provisos = set()
        for atom, value in chosen.items():
            weight = address.terms[atom,]
            address = address + (value.poly - of_atom(atom)).scale(weight)
            if value.obligations:
                provisos.add(self._bounds.claim(value.obligations, made))
        return Side(address, env, frozenset(provisos))

    def _is_of_now(self, choice: Atom, touch: Touch) -> bool:
        """Whether what was known where a choice was made still holds where the touch is made: no
        loop has begun or ended, or come round, between them."""
        flow, node_of = self._registers.flow, self._registers.reaching.node_of
        if choice.kind == "stored":
            there = node_of[choice.args[1]]
            if not _places_of(choice) or not self._are_constant(choice):
                return False
        else:
            there = choice.args[0][0].target
        return flow.loops_around(there) == flow.loops_around(node_of[touch.index])

    def _are_constant(self, stored: Atom) -> bool:
        """Whether each word of an array is the same whenever it is stored: it is made of nothing
        that another way round a loop would change."""
        flow = self._registers.flow
        words, _, _, kind = stored.args
        return not any(
            flow.loops_around(home) or home in flow.tangled
            for word in words
            for home in word.value(self._registers, kind).poly.homes()
        )

    def _settled(self, address: Poly, env: Env) -> tuple[Poly, frozenset[Proviso]]:
        """An address in which `x` is `d * (x / d) + c` wherever `x mod d` is known to be c."""
        provisos: set[Proviso] = set()
        for known in self._known_remainders(env):
            times = _multiple_of(address, known.number)
            if times is None or not self._bounds.holds(known.proviso):
                continue
            quotient = self._registers.domain.quotient(Value(known.number), known.divisor).poly
            exact = quotient.scale(known.divisor).shift(known.rest)
            difference = times.times(exact - known.number)
            if difference is not None:
                address = address + difference
                provisos.add(known.proviso)
        told = {atom for about in env.directions() for atom in about.varying_atoms}
        address = without_overlaps(self._registers.domain, address, told)
        return address, frozenset(provisos)

    def _known_remainders(self, env: Env) -> list[Remainder]:
        found = self._remainders.get(env)
        if found is None:
            found = [] if env.parent is None else list(self._known_remainders(env.parent))
            found += [r for fact in env.facts if (r := _remainder(fact)) is not None]
            self._remainders[env] = found
        return found

    def _own(self, touch: Touch) -> frozenset[Proviso]:
        """What the address of a touch rests on, seen from where it is computed: the touch's own
        predicate does not count."""
        if not touch.obligations:
            return frozenset()
        place = self._environments.at_node(self._registers.reaching.node_of[touch.index])
        return frozenset([self._bounds.claim(touch.obligations, place)])

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
            guards.append(self._guard(member.env))
        same = all(g is guards[0] for g in guards)
        guard = guards[0] if same else self._any(guards)
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
        guard = self._guard(env)
        if target.carrier.kind == "stored":
            places = self._attribution.places(target.carrier).get(target.root, [])
            guard = self._and(guard, self._meets(target.carrier, places))
        self._emit(touch, target, box, guard, (box, None))

    def _meets(self, stored: Atom, places: list[int | None]) -> Expr:
        """Whether the launch may load from one of these places in an array of words."""
        _, index, offset, kind = stored.args
        env = self._environments.at(index)
        found = self._bounds.range(offset.poly, env)
        provisos = found.provisos | {self._bounds.claim(offset.obligations, env)}
        reliable = self._bounds.conditions(provisos)
        launch = self._launch
        if found.lo is None or found.hi is None or reliable is None:
            return launch.one
        met = launch.zero
        for place in places:
            if place is None:
                return launch.one
            from_here = launch.less_equal(launch.const(place - kind.size + 1), found.hi)
            to_here = launch.less_equal(found.lo, launch.const(place + kind.size - 1))
            met = launch.either(met, launch.both(from_here, to_here))
        return launch.select(reliable, met, launch.one)

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
        if found.lo is None or found.hi is None or not self._bounds.can_hold(found.provisos):
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
            both = self._and(guard, sure)
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
                replace(plain, guard=self._and(guard, self._launch.negate(sure)))
            )

    def _certainty(self, whole: Whole, given: frozenset[Proviso]) -> Expr:
        """1 when a launch surely touches every byte, given that the range holds at all."""
        sure = self._bounds.conditions_beyond(whole.provisos, given)
        return self._launch.zero if sure is None else self._launch.both(sure, whole.condition)

    def _conditional(self, r: ByteRange) -> ByteRange:
        """The range with an end that is unbounded unless its provisos hold."""
        if r.lo is None:
            return r
        conditions = self._bounds.conditions(r.provisos)
        if conditions is None:
            flags = (r.flags | Flag.UNBOUNDED) & ~(Flag.EXACT | Flag.MUST_WRITE)
            reason = r.reason or "the index arithmetic may wrap around"
            return replace(r, flags=flags, lo=None, hi=None, levels=(), reason=reason)
        return replace(r, lo=self._launch.select(conditions, r.lo, self._launch.overflow))

    def _and(self, a: Expr | None, b: Expr) -> Expr | None:
        both = b if a is None else self._launch.both(a, b)
        return None if both is self._launch.one else both

    def _any(self, guards: list[Expr | None]) -> Expr | None:
        out = self._launch.zero
        for guard in guards:
            if guard is None:
                return None
            out = self._launch.either(out, guard)
        return out

    def _guard(self, env: Env) -> Expr | None:
        """What is known of the launch itself wherever the access is made."""
        launch = self._launch
        out = launch.one
        for fact in env.uniform_facts():
            holds = self._bounds.at_most(fact.poly, fact.slack)
            out = launch.both(out, self._unless_wrong(fact.proviso, holds))
        for poly, proviso in env.uniform_nonzero():
            holds = launch.not_equal(self._bounds.lower(poly), launch.zero)
            out = launch.both(out, self._unless_wrong(proviso, holds))
        for outer in env.chain():
            if outer in self._met:
                stored, word = self._met[outer]
                out = launch.both(out, self._meets(stored, [word.at]))
        return None if out is launch.one else out

    def _unless_wrong(self, proviso: Proviso, holds: Expr) -> Expr:
        """`holds` where the proviso does; 1 where it does not, or is never known to."""
        reliable = self._bounds.conditions(frozenset([proviso]))
        if reliable is None:
            return self._launch.one
        return self._launch.select(reliable, holds, self._launch.one)


def _merged(ranges: list[ByteRange]) -> list[ByteRange]:
    """Ranges with the same ends and the same meaning, as one that rests on all their provisos."""
    out: dict[tuple[object, ...], ByteRange] = {}
    for r in ranges:
        key = (r.mode, r.flags, r.parameter_offset, r.guard, r.lo, r.hi, r.levels)
        known = out.get(key)
        out[key] = r if known is None else replace(known, provisos=known.provisos | r.provisos)
    return list(out.values())


def _places_of(stored: Atom) -> list[tuple[Word, Pred]]:
    """Each word that a load may have met, and what tells that it was that one; none where the
    words are many, or a load may meet a part of one."""
    words, _, offset, kind = stored.args
    first = offset.poly.terms.get((), 0)
    varying = offset.poly.shift(-first)
    pitch = varying.content()
    if len(words) > MAX_PLACES or pitch % kind.size or not pitch:
        return []
    if any(word.at is None or (word.at - first) % kind.size for word in words):
        return []
    step = varying.divide_exactly(pitch)
    return [
        (word, Pred("eq", step.shift((first - word.at) // pitch), offset.obligations))
        for word in words
        if (word.at - first) % pitch == 0
    ]


def _alone(address: Poly) -> list[Atom]:
    """Atoms that stand alone, with whatever coefficient."""
    return [m[0] for m in address.terms if len(m) == 1]


def _index_choice(address: Poly) -> Atom | None:
    """A choice between values of an index in an address."""
    return next((a for a in _alone(address) if a.kind in ("sel", "stored")), None)


def _remainder(fact: Fact) -> Remainder | None:
    """What a fact says when it puts a remainder at one of its ends."""
    varying, rest = fact.poly.split()
    number = rest.constant
    if len(varying) != 1 or number is None or fact.slack is not None:
        return None
    ((monomial, weight),) = varying.items()
    sign = weight.constant
    atom = monomial[0]
    if len(monomial) > 1 or atom.kind != "rem" or not isinstance(atom.args[1], int):
        return None
    divisor = atom.args[1]
    if sign == 1 and number == 0:
        return Remainder(atom.args[0], divisor, 0, fact.proviso)
    if sign == -1 and number == divisor - 1:
        return Remainder(atom.args[0], divisor, divisor - 1, fact.proviso)
    return None


def _multiple_of(address: Poly, number: Poly) -> Poly | None:
    """The uniform factor with which all varying terms of a number stand in an address."""
    varying, mine = number.split()[0], address.split()[0]
    factor: Poly | None = None
    for monomial, weight in varying.items():
        share = mine.get(monomial)
        times = share.ratio(weight) if share is not None else None
        if times is None or (factor is not None and times != factor):
            return None
        factor = times
    return factor


def _place(touch: Touch, environments: Environments) -> Env:
    """What is known when a touch is made."""
    env = environments.at(touch.index)
    return env if touch.when is None else environments.refine(env, touch.when)


def _distinct(touches: Iterable[Touch], environments: Environments) -> Iterable[Touch]:
    """Touches that are the same for the ranges, once."""
    seen: set[tuple[object, ...]] = set()
    for touch in touches:
        env = _place(touch, environments)
        key = (touch.address, touch.extent, touch.mode, touch.space, touch.obligations, env)
        if key not in seen:
            seen.add(key)
            yield touch
