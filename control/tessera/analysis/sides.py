# SPDX-License-Identifier: Apache-2.0
"""Touches whose addresses hold a choice, as one touch for each side of it: each is made under what
decides for it, and has an address that is bounded by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tessera.analysis.bounds import Bounds
from tessera.analysis.digits import have_overlaps, without_overlaps
from tessera.analysis.environment import Env, Environments, Fact, Proviso
from tessera.analysis.pointers import Attribution
from tessera.analysis.polynomial import Atom, Poly, constant, of_atom
from tessera.analysis.predicates import Pred
from tessera.analysis.registers import Registers
from tessera.analysis.slots import Word
from tessera.analysis.touches import Touch
from tessera.analysis.values import Value

MAX_SPLIT = 64  # touches of a kernel whose indices are taken apart too
MAX_SIDES = 10_000  # touches still to be taken apart
MAX_JOINS = 2  # on the way to one touch that are gone back over
MAX_PLACES = 16  # words of an array that are told apart


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


class Sides:
    """Takes the touches of one program apart."""

    def __init__(
        self,
        registers: Registers,
        environments: Environments,
        bounds: Bounds,
        attribution: Attribution,
    ) -> None:
        self._registers = registers
        self._environments = environments
        self._bounds = bounds
        self._attribution = attribution
        self._remainders: dict[Env, list[Remainder]] = {}
        self._overlapping: dict[frozenset[Atom], bool] = {}  # whether digits share something
        self.met: dict[Env, tuple[Atom, Word]] = {}  # places where a word of an array was loaded
        self.needed: dict[
            Env, Poly
        ] = {}  # places that need this to be at most 0, seen from outside

    def of(self, touches: Iterable[Touch]) -> Iterable[tuple[Touch, Env, frozenset[Proviso]]]:
        """Touches, those through `p ? a : b` as two that are made under p and under not p."""
        touches = list(_distinct(touches, self._environments))
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
            rounds = []
            if choice is None and len(touches) <= MAX_SPLIT and touch.address not in split:
                rounds = self._rounds(touch.address, env)
            for side in rounds:
                split.add(side.address)
                more = provisos | side.provisos
                work.append((replace(touch, address=side.address), side.env, more))
            if rounds:
                continue
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
                self.met[here] = choice, word
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
                provisos.add(self._environments.claim(value.obligations, made))
        return Side(address, env, frozenset(provisos))

    def _rounds(self, address: Poly, env: Env) -> list[Side]:
        """An address with `(first + v) mod d`, before it has come round to 0, after it has done so
        once, and when it has more often: the first two are intervals where `v` is one."""
        for atom in _alone(address):
            place = self._on_the_ring(atom, env) if atom.kind == "rem" else None
            if place is None:
                continue
            size = atom.args[1] if isinstance(atom.args[1], Poly) else constant(atom.args[1])
            start = address + (place - of_atom(atom)).scale(address.terms[atom,])
            once = start - size.scale(address.terms[atom,])
            before = self._if_any(env, place - size.shift(-1))
            after = self._if_any(env, size - place)
            first_round = self._if_any(after, place - size.scale(2).shift(-1))
            later = self._if_any(env, size.scale(2) - place)
            sides = ((start, before), (once, first_round), (address, later))
            return [Side(where, here, frozenset()) for where, here in sides]
        return []

    def _on_the_ring(self, remainder: Atom, env: Env) -> Poly | None:
        """`first mod d + v` for `(first + v) mod d`, with a `first` that the launch knows and a `v`
        of at least 0; None: not known to be of that form, or the remainder has facts of its own."""
        numerator, size = remainder.args
        varying, first = numerator.split()
        if not varying or not first.terms or any(not p.uniform for p in _polys(size)):
            return None
        if env.tells_of(remainder):
            return None
        lo = self._bounds.range(numerator - first, env).lo
        if lo is None or lo.lo is None or lo.lo < 0:
            return None
        start: Poly = self._registers.domain.remainder_of(first, size)
        offset: Poly = numerator - first
        return start + offset

    def _if_any(self, env: Env, poly: Poly) -> Env:
        """`env` where `poly` is at most 0; no touch is made there if that never happens."""
        here = self._environments.refine(env, Pred("le", poly))
        self.needed[here] = poly
        return here

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
            if times is None or not self._bounds.provisos.holds(known.proviso):
                continue
            quotient = self._registers.domain.quotient(Value(known.number), known.divisor).poly
            exact = quotient.scale(known.divisor).shift(known.rest)
            difference = times.times(exact - known.number)
            if difference is not None:
                address = address + difference
                provisos.add(known.proviso)
        atoms = address.varying_atoms
        if atoms not in self._overlapping:
            self._overlapping[atoms] = have_overlaps(atoms)
        if self._overlapping[atoms]:
            address = without_overlaps(self._registers.domain, address, env.tells_of)
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
        return frozenset([self._environments.claim(touch.obligations, place)])


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


def _polys(number: int | Poly) -> tuple[Poly, ...]:
    return (number,) if isinstance(number, Poly) else ()


def _alone(address: Poly) -> list[Atom]:
    """Atoms that stand alone, with whatever coefficient."""
    return [m[0] for m in address.terms if len(m) == 1]


def _index_choice(address: Poly) -> Atom | None:
    """A choice between values of an index in an address."""
    return next((a for a in _alone(address) if a.kind in ("sel", "stored")), None)


def _remainder(fact: Fact) -> Remainder | None:
    """What a fact says when it puts a remainder at one of its ends."""
    if len(fact.poly.terms) > 2:
        return None
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
