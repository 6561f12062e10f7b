# SPDX-License-Identifier: Apache-2.0
"""Pass 7: which pointer an address is based on.

An address is a sum. The root is the one term that is a pointer: a 64-bit parameter that is
declared as one or used as one elsewhere, a variable, or a choice among such. Everything else
is offset. A sum without a root, or with two, belongs to no pointer: its kernel is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.analysis.bounds import Bounds
from tessera.analysis.environment import Env, Environments
from tessera.analysis.intervals import UNBOUNDED, Range
from tessera.analysis.polynomial import Atom, Poly, of_atom
from tessera.analysis.registers import Registers
from tessera.analysis.values import Value

_CHOICES = ("sel", "phi", "loopphi", "stored")
ADDRESSES = 1 << 40  # no allocation is as large, and no address is smaller by much
_PLACES = ("symbol", "window", "driver")


@dataclass(frozen=True, slots=True)
class Target:
    """A pointer that an address may be based on, and where relative to it."""

    root: Atom  # "param", "symbol", "window" or "driver"
    carrier: Atom  # the root itself, or the choice that it is one of
    offset: Poly  # the address without the carrier


class Attribution:
    """Finds the roots of the addresses of one program."""

    def __init__(self, registers: Registers, environments: Environments, bounds: Bounds) -> None:
        self._registers = registers
        self._environments = environments
        self._bounds = bounds
        self._pointers: set[tuple[int, int]] = set()  # (offset, width) of parameters in use as such
        self._roots: dict[Atom, frozenset[Atom | None]] = {}
        self._reached: dict[Atom, set[Atom]] = {}
        self._targets: dict[Poly, list[Target]] = {}
        self._arrays: dict[Atom, dict[Atom, list[int | None]]] = {}

    def mark(self, poly: Poly) -> None:
        """Take note of a value that is surely an address: its only parameter is a pointer."""
        candidates = [a for a in _terms(poly) if _is_word(a)]
        others = [a for a in _terms(poly) if a.kind in _CHOICES or a.kind in _PLACES]
        if len(candidates) == 1 and not others and len(poly.terms) <= 2:
            atom = candidates[0]
            if (poly - of_atom(atom)).constant is not None:
                self.mark_parameter(atom.args[0])

    def mark_parameter(self, offset: int) -> None:
        self._pointers.add((offset, 8))

    def sides(self, address: Poly) -> Atom | None:
        """A choice in an address, by a predicate or by the way taken, that decides about its
        root."""
        for kind in ("sel", "phi", "stored"):
            for atom in _terms(address):
                if atom.kind == kind and (self.roots(atom) - {None}):
                    return atom
        return None

    def targets(self, address: Poly) -> list[Target] | None:
        """The pointers that an address may be based on; None when they are not known."""
        terms = _terms(address)
        choices = {a: self.roots(a) for a in terms if a.kind in _CHOICES}
        strong = [a for a in terms if self._is_pointer(a)]
        strong += [a for a, roots in choices.items() if any(map(self._is_pointer, roots))]
        if len(strong) > 1:
            return None
        if strong:
            return self._spread(strong[0], address, choices)
        weak = [a for a in terms if _is_word(a)]
        weak += [a for a, roots in choices.items() if roots and None not in roots]
        if len(weak) != 1 or _may_be_the_pointer(address - of_atom(weak[0])):
            return None
        return self._spread(weak[0], address, choices)

    def _known_targets(self, address: Poly) -> list[Target]:
        """As `targets`, once all pointers are marked."""
        if address not in self._targets:
            self._targets[address] = self.targets(address) or []
        return self._targets[address]

    def _spread(
        self, carrier: Atom, address: Poly, choices: dict[Atom, frozenset[Atom | None]]
    ) -> list[Target] | None:
        offset = address - of_atom(carrier)
        if any(self._is_pointer(a) for a in offset.atoms):
            return None
        roots = choices.get(carrier, frozenset((carrier,)))
        if None in roots:
            return None
        return [Target(r, carrier, offset) for r in sorted(r for r in roots if r is not None)]

    def offset_range(self, target: Target, env: Env) -> Range:
        """The offsets from the root that an access may have."""
        outer = self._bounds.range(target.offset, env)
        if target.carrier is target.root:
            return outer
        if outer.lo is None and outer.hi is None:
            return outer
        return self._bounds.plus(outer, self._choice_range(target.carrier, target.root, env, 0))

    def _choice_range(self, choice: Atom, root: Atom, env: Env, depth: int) -> Range:
        """Offsets from `root` that come in through a choice, seen from where it is made."""
        if choice.kind == "loopphi":
            return self._exchanged_range(choice, root)
        if depth > 8:
            return UNBOUNDED
        ranges = []
        for value, place in self._sides(choice, env):
            for target in self._known_targets(value.poly):
                if target.root is not root:
                    continue
                found = self._entering(target, value, place)
                if target.carrier is not root:
                    inner = self._choice_range(target.carrier, root, place, depth + 1)
                    found = self._bounds.plus(found, inner)
                ranges.append(found)
        return self._bounds.hull(ranges) if ranges else UNBOUNDED

    def _entering(self, target: Target, value: Value, place: Env) -> Range:
        """The offsets with which a value comes into a choice."""
        found = self._bounds.range(target.offset, place)
        if value.obligations:
            claim = self._environments.claim(value.obligations, place)
            found = found.relying_on(frozenset([claim]))
        return found

    def _exchanged_range(self, first: Atom, root: Atom) -> Range:
        """Offsets from `root` of the pointers that a loop hands from one variable to another, if it
        moves none of them: those with which they come in."""
        ranges: list[Range] = []
        work, seen = [first], {first}
        while work:
            for value, place in self._sides(work.pop(), self._environments.empty):
                for target in self._known_targets(value.poly):
                    if target.root is not root:
                        continue
                    if target.carrier is root:
                        ranges.append(self._entering(target, value, place))
                    elif target.offset.terms or value.obligations:
                        return UNBOUNDED
                    elif target.carrier not in seen:
                        seen.add(target.carrier)
                        work.append(target.carrier)
        return self._bounds.hull(ranges) if ranges else UNBOUNDED

    def places(self, stored: Atom) -> dict[Atom, list[int | None]]:
        """Where in an array the pointers lie that are based on a root."""
        if stored not in self._arrays:
            places = self._arrays[stored] = dict[Atom, list[int | None]]()
            for word in stored.args[0]:
                value = word.value(self._registers, stored.args[3])
                for target in self._known_targets(value.poly):
                    places.setdefault(target.root, []).append(word.at)
        return self._arrays[stored]

    def _sides(self, choice: Atom, env: Env) -> list[tuple[Value, Env]]:
        if choice.kind == "sel":
            pred, a, b = choice.args
            refine = self._environments.refine
            return [(a, refine(env, pred)), (b, refine(env, pred.negated()))]
        if choice.kind == "stored":
            return [
                (word.value(self._registers, choice.args[3]), self._environments.at(word.store))
                for word in choice.args[0]
            ]
        on_edge = self._environments.on_edge
        if choice.kind == "loopphi":
            return [(self._registers.value(d), on_edge(edge)) for edge, d in choice.args[1]]
        edges, values = choice.args
        return [(value, on_edge(edge)) for edge, value in zip(edges, values, strict=True)]

    def roots(self, choice: Atom) -> frozenset[Atom | None]:
        """The roots that a choice may have; None among them: one that is not known."""
        if choice not in self._roots:
            self._resolve(choice)
        return self._roots[choice]

    def _resolve(self, choice: Atom) -> None:
        """Choices may depend on each other in a cycle: find the roots of all that this one
        depends on, together."""
        inputs: dict[Atom, list[Poly]] = {}
        work = [choice]
        while work:
            current = work.pop()
            if current in inputs or current in self._roots:
                continue
            inputs[current] = self._inputs(current)
            work += [a for p in inputs[current] for a in _terms(p) if a.kind in _CHOICES]
        self._reach(inputs)
        found: dict[Atom, set[Atom | None]] = {c: set() for c in inputs}
        changed = True
        while changed:
            changed = False
            for current, polys in inputs.items():
                before = len(found[current])
                for poly in polys:
                    found[current] |= self._roots_of(poly, found)
                changed = changed or len(found[current]) > before
        self._roots.update({c: frozenset(parts) for c, parts in found.items()})

    def _reach(self, inputs: dict[Atom, list[Poly]]) -> None:
        """Every word and place that stands in a choice with the coefficient 1, however deep."""
        reach = {c: set[Atom]() for c in inputs}
        changed = True
        while changed:
            changed = False
            for current, polys in inputs.items():
                before = len(reach[current])
                for atom in (a for poly in polys for a in _terms(poly)):
                    if _is_word(atom) or atom.kind in _PLACES:
                        reach[current].add(atom)
                    elif atom.kind in _CHOICES:
                        reach[current] |= reach.get(atom) or self._reached.get(atom, set())
                changed = changed or len(reach[current]) > before
        self._reached.update(reach)

    def _inputs(self, choice: Atom) -> list[Poly]:
        if choice.kind == "sel":
            return [choice.args[1].poly, choice.args[2].poly]
        if choice.kind == "phi":
            return [value.poly for value in choice.args[1]]
        if choice.kind == "stored":
            words, _, _, kind = choice.args
            return [word.value(self._registers, kind).poly for word in words]
        return [self._registers.value(d).poly for _, d in choice.args[1]]

    def _roots_of(self, poly: Poly, found: dict[Atom, set[Atom | None]]) -> set[Atom | None]:
        """The roots of one input of a choice, as far as they are known by now."""
        if not poly.terms or _is_undefined(poly):
            return set()  # null, or never written: not an address that is used
        terms = _terms(poly)
        choices = [a for a in terms if a.kind in _CHOICES]
        strong = [a for a in terms if self._is_pointer(a)]
        strong += [a for a in choices if any(map(self._is_pointer, self._reached[a]))]
        weak = [a for a in terms if _is_word(a)] + [a for a in choices if self._reached[a]]
        carriers = strong or weak
        if len(carriers) == 1:
            carrier = carriers[0]
            if carrier.kind not in _CHOICES:
                return {carrier}
            return set(found[carrier]) if carrier in found else set(self._roots[carrier])
        # What only leads back to where it came from has no root of its own.
        return set() if not carriers and choices and len(choices) == len(terms) else {None}

    def _is_pointer(self, atom: Atom | None) -> bool:
        if atom is None:
            return False
        return atom.kind in _PLACES or (_is_word(atom) and (atom.args[0], 8) in self._pointers)


def _terms(poly: Poly) -> list[Atom]:
    """Atoms that stand alone with the coefficient 1."""
    return [m[0] for m, c in poly.terms.items() if c == 1 and len(m) == 1]


def _is_word(atom: Atom) -> bool:
    return atom.kind == "param" and atom.args[1] == 8


def _is_undefined(poly: Poly) -> bool:
    atom = poly.single
    return (
        atom is not None and atom.kind == "opaque" and getattr(atom.args[0], "kind", "") == "none"
    )


def _may_be_the_pointer(rest: Poly) -> bool:
    """Whether what is added to a parameter may be the address and the parameter the offset: it
    comes from memory, from other lanes, or from arithmetic that is not followed, and is large."""
    most = 0
    for monomial, coefficient in rest.terms.items():
        if not any(atom.loaded or atom.kind == "other_lane" for atom in monomial):
            continue
        size = abs(coefficient)
        for atom in monomial:
            if atom.lo is None or atom.hi is None:
                return True
            size *= max(abs(atom.lo), abs(atom.hi))
        most += size
    return most >= ADDRESSES
