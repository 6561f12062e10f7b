# SPDX-License-Identifier: Apache-2.0
"""Which pointers an address may be based on.

Both halves of an address are followed together: where ways meet, or a predicate chooses, each
way is looked at with what it gives for both. A way ends in two sums of words. A word of the
parameter block can be the pointer only where its low half is in the low sum and the word after
it in the high one. Everything else in the sums is offset, with these exceptions:

- two loaded words, one in each half, may be a loaded pointer: then the way needs a parameter
  word that is checked at launch to lie in live memory, and no pointer may be subtracted;
- a way with no such word, or with a word whose origin is not known in both halves, is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tessera.sass.conditions import NOWHERE, Context, fewest, is_possible
from tessera.sass.values import Atom, Terms, Values, signed

MAX_STATES = 3000
MAX_CLOSURE = 20000
MAX_UNLESS = 8  # conditions that are told apart, under which one access is not known
_ROOTS = "pPgwdub"
_SCALED: tuple[Atom, str] = (("x",), "s")
_BLOCK: tuple[Atom, str] = (("b",), "+")
_CONSTANT: tuple[Atom, str] = (("k",), "+")


class UnknownRootError(Exception):
    """An address whose pointer is not known; the message says why."""


@dataclass(slots=True)
class Roots:
    """What an address may be based on, over all ways.

    `ways`: for each way the parameter words that may be the pointer, and whether loaded words
    or a pointer's negative are in the sum beside them. `whole_block`: any word of it.
    `indexed`: the instructions that loaded the pointer from a place in it that varies."""

    ways: set[tuple[frozenset[int], bool]] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)
    windows: bool = False
    whole_block: bool = False
    indexed: set[int] = field(default_factory=set)
    parameter_block: bool = False
    merged: bool = False  # the ways were too many: all words of all of them as one
    unless: set[Context] = field(default_factory=set)  # launches in which it is not known

    @property
    def is_anything(self) -> bool:
        """Whether any way gives the address a pointer that is known."""
        known = self.ways or self.symbols or self.windows or self.indexed
        return bool(known or self.parameter_block)


class Resolver:
    def __init__(self, values: Values) -> None:
        self._values = values
        self._closures: dict[Atom, frozenset[tuple[Atom, str]]] = {}

    def resolve(
        self,
        low: Terms,
        high: Terms,
        guard: tuple[Any, int] | None = None,
        known: Context = NOWHERE,
    ) -> Roots:
        """`guard`: the key of choices by the access's own predicate, and the way they went.
        `known`: what holds in every launch that gets there.

        Raises UnknownRootError.
        """
        if guard is not None:
            low, high = self._values.decide(low, *guard), self._values.decide(high, *guard)
        start = (self._prune(low), self._prune(high))
        try:
            return self._follow(start)
        except UnknownRootError as problem:
            return self._follow_when(start, known, problem)

    def _follow(self, start: tuple[Terms, Terms]) -> Roots:
        """All ways, whatever the launch."""
        roots = Roots()
        if not self._values.program.is_reducible:
            return self._merge(start, "ways enter a loop in several places")
        seen = {start}
        work = [start]
        while work:
            if len(seen) > MAX_STATES:
                return self._merge(start, "too many ways lead to the address")
            low, high = work.pop()
            choices = [atom for atom, _ in low | high if atom[0] in "fc"]
            if not choices:
                self._end(low, high, roots)
                continue
            for *halves, _ in self._expand(low, high, choices):
                state = (halves[0], halves[1])
                if state not in seen:
                    seen.add(state)
                    work.append(state)
        if not roots.is_anything:
            raise UnknownRootError("no way gives the address a pointer")
        return roots

    def _follow_when(
        self, start: tuple[Terms, Terms], known: Context, problem: UnknownRootError
    ) -> Roots:
        """All ways, each with the launches that take it: a way whose pointer is not known makes
        those launches unknown alone. Raises `problem` where it cannot be told which those are."""
        if not self._values.program.is_reducible:
            raise problem
        roots = Roots()
        seen: dict[tuple[Terms, Terms], list[Context]] = {start: [known]}
        work = [(*start, known)]
        count = 0
        while work:
            low, high, context = work.pop()
            count += 1
            if count > MAX_STATES:
                raise problem
            choices = [atom for atom, _ in low | high if atom[0] in "fc"]
            if not choices:
                self._end_when(low, high, context, roots)
                continue
            for new_low, new_high, more in self._expand(low, high, choices):
                new = None if more is None else context | more
                if new is None or not is_possible(new):
                    continue
                passed = seen.setdefault((new_low, new_high), [])
                if not any(old <= new for old in passed):
                    passed.append(new)
                    work.append((new_low, new_high, new))
        roots.unless = fewest(roots.unless, MAX_UNLESS)
        if NOWHERE in roots.unless or not (roots.unless or roots.is_anything):
            raise problem
        return roots

    def _end_when(self, low: Terms, high: Terms, context: Context, roots: Roots) -> None:
        try:
            self._end(low, high, roots)
        except UnknownRootError:
            if not context:
                raise
            roots.unless.add(context)

    def _expand(
        self, low: Terms, high: Terms, choices: list[Atom]
    ) -> list[tuple[Terms, Terms, Context | None]]:
        """Decide the latest choice, in both halves at once; with what is known of the launches
        in which it is so, None where there are none."""
        latest = max(choices, key=self._values.position)
        key = self._values.key(latest)
        same = [a for a in choices if self._values.key(a) == key]
        count = len(self._values.sides(latest))
        if any(len(self._values.sides(a)) != count for a in same):
            raise UnknownRootError("choices that belong together differ")
        out = []
        for way in range(count):
            new_low = self._values.decide(low, key, way)
            new_high = self._values.decide(high, key, way)
            if key[0] == "c" and key[1][0] == "memory" and _is_idle(new_low, new_high):
                continue
            out.append((self._prune(new_low), self._prune(new_high), self._known_on(key, way)))
        return out

    def _known_on(self, key: Any, way: int) -> Context | None:
        """What is known of a launch where a choice goes one way."""
        if key[0] == "f":
            ways = self._values.program.blocks[key[1]].predecessors
            if way >= len(ways):
                return NOWHERE
            return self._values.conditions.on_way(ways[way], key[1])
        return frozenset(((key[1][1], way == 0),)) if key[1][0] == "when" else NOWHERE

    def _prune(self, terms: Terms) -> Terms:
        """Choices among numbers and loaded words need no following: all of them at once."""
        if all(atom[0] not in "fc" for atom, _ in terms):
            return _short(terms)
        out: set[tuple[Atom, str]] = set()
        for atom, sign in terms:
            if atom[0] not in "fc":
                out.add((atom, sign))
                continue
            closure = self._closure(atom)
            if sign != "s" and any(a[0] in _ROOTS and s != "s" for a, s in closure):
                out.add((atom, sign))
            else:
                out |= signed(closure, sign)
        return _short(frozenset(out))

    def _closure(self, atom: Atom) -> frozenset[tuple[Atom, str]]:
        """Everything that a choice may be made of, if it was ever written."""
        found = self._closures.get(atom)
        if found is not None:
            return found
        base: set[tuple[Atom, str]] = set()
        seen = {(atom, "+")}
        work = [(atom, "+")]
        while work:
            current, sign = work.pop()
            for side in self._values.sides(current):
                for inner, mark in signed(side, sign):
                    if inner[0] not in "fc":
                        base.add((inner, mark))
                    elif (inner, mark) not in seen:
                        known = self._closures.get(inner)
                        if known is not None:
                            base |= signed(known, mark)
                        else:
                            seen.add((inner, mark))
                            work.append((inner, mark))
            if len(seen) > MAX_CLOSURE:
                raise UnknownRootError("the address depends on too much")
        # What was never written is no address, but what may be there in its stead may be one.
        found = _short(frozenset(t for t in base if t[0] != ("e",)))
        self._closures[atom] = found
        return found

    def _end(self, low: Terms, high: Terms, roots: Roots) -> None:
        """One way, followed to its end."""
        if not low and not high:
            return  # null
        if _has(low, "e") or _has(high, "e"):
            return  # never written: no address that a program uses
        for kind in ("u", "d"):
            if (why := _first(low, kind)) and _first(high, kind):
                raise UnknownRootError(_WHY[kind] + (f": {why[1]}" if kind == "u" else ""))
        symbols = {a[1] for a, s in low if a[0] == "g" and s != "s"}
        symbols &= {a[1] for a, s in high if a[0] == "g" and s != "s"}
        if symbols:
            roots.symbols |= symbols
        elif not self._end_at_parameters(low, high, roots):
            self._end_elsewhere(low, high, roots)

    def _end_at_parameters(self, low: Terms, high: Terms, roots: Roots) -> bool:
        """Whether a word of the parameter block may be the pointer."""
        words = frozenset(_words(low, high, "+"))
        negatives = frozenset(_words(low, high, "-"))
        loaded = _loaded_pair(low, high)
        if indexed := _pairs_of_block(low, high):
            if loaded or negatives:
                raise UnknownRootError("a loaded word is added to an indexed parameter")
            if words or len(indexed) > 1:
                roots.whole_block = True
            roots.indexed |= indexed
            return True
        if not words:
            return False
        if loaded and negatives:
            raise UnknownRootError("the address is a loaded word plus a difference of pointers")
        roots.ways.add((words | negatives, loaded))
        return True

    def _end_elsewhere(self, low: Terms, high: Terms, roots: Roots) -> None:
        shifted = frozenset(_words(low, high, "s"))
        if _loaded_pair(low, high):
            raise UnknownRootError(f"it follows a pointer loaded by {self._loaded_text(low)}")
        if _has(high, "k"):
            raise UnknownRootError("it may be based on a constant address")
        if _has(low, "b") and (_has(high, "b") or _has(high, "w")):
            roots.parameter_block = True  # the windows' high half is that address's, too
        elif _has(high, "w"):
            roots.windows = True
        elif shifted:
            roots.ways.add((shifted, False))
        else:
            raise UnknownRootError("the halves of the address have no pointer in common")

    def _loaded_text(self, low: Terms) -> str:
        index = next(a[1] for a, s in low if a[0] == "l" and s != "s")
        return str(self._values.program.code[index].text)

    def _merge(self, start: tuple[Terms, Terms], reason: str) -> Roots:
        """All ways as one: possible where no loaded word can be the pointer on any of them."""
        low, high = (self._flat(terms) for terms in start)
        is_near = low <= {_BLOCK, _CONSTANT} and high <= {_BLOCK}
        if is_near and all(self._is_block(half, set()) for half in start):
            return Roots(parameter_block=True)
        # On some way the one half may lack what the other has: whatever is in both may be it.
        if any(a[0] in "udPgwb" and s != "s" for a, s in low):
            raise UnknownRootError(reason)
        if _loaded_pair(low, high):
            raise UnknownRootError(f"{reason}, and loaded words among them")
        words = frozenset(_words(low, high, "+")) | frozenset(_words(low, high, "-"))
        words |= frozenset(_words(low, high, "s"))
        if not words:
            raise UnknownRootError(reason)
        return Roots(ways={(words, False)}, merged=True)

    def _is_block(self, terms: Terms, seen: set[Atom]) -> bool:
        """Whether, on every way, one word of the address of the parameter block is in a sum."""
        found = [
            atom for atom, sign in terms
            if atom == ("b",) or (atom[0] in "fc" and sign == "+" and _BLOCK in self._closure(atom))
        ]  # fmt: skip
        if len(found) != 1:
            return False
        if found[0] == ("b",) or found[0] in seen:
            return True
        seen.add(found[0])
        return all(self._is_block(side, seen) for side in self._values.sides(found[0]))

    def _flat(self, terms: Terms) -> Terms:
        out: set[tuple[Atom, str]] = set()
        for atom, sign in terms:
            out |= signed(self._closure(atom), sign) if atom[0] in "fc" else {(atom, sign)}
        return frozenset(out)


_WHY = {"u": "its origin is not known", "d": "it is based on an address of the driver's"}


def _is_idle(low: Terms, high: Terms) -> bool:
    """Stored words that no address can be made of: parameters that are no pair, constants."""
    if any(a[0] not in "pke" for a, _ in low | high):
        return False
    return not (_words(low, high, "+") or _words(low, high, "-") or _words(low, high, "s"))


def _short(terms: Terms) -> Terms:
    """Of scaled words only those of parameters are told apart."""
    return frozenset((a, s) if s != "s" or a[0] == "p" else _SCALED for a, s in terms)


def _first(terms: Terms, kind: str) -> Atom | None:
    return next((a for a, s in terms if a[0] == kind and s != "s"), None)


def _has(terms: Terms, kind: str) -> bool:
    return _first(terms, kind) is not None


def _words(low: Terms, high: Terms, sign: str) -> list[int]:
    """Offsets of parameter words whose halves are in the two sums."""
    if sign == "s":
        lows = {a[1] for a, _ in low if a[0] == "p"}
        highs = {a[1] for a, _ in high if a[0] == "p"}
    else:
        lows = {a[1] for a, s in low if a[0] == "p" and s == sign}
        highs = {a[1] for a, s in high if a[0] == "p" and s == sign}
    return sorted(offset for offset in lows if offset + 4 in highs)


def _pairs_of_block(low: Terms, high: Terms) -> set[int]:
    """Instructions that loaded both halves from a varying place in the parameter block."""
    lows = {a[1:] for a, s in low if a[0] == "P" and s != "s"}
    return {a[1] for a, s in high if a[0] == "P" and s != "s" and (a[1], a[2] - 1) in lows}


def _loaded_pair(low: Terms, high: Terms) -> bool:
    """Whether a loaded word is in each half, and not the same one."""
    lows = {a for a, s in low if a[0] == "l" and s != "s"}
    highs = {a for a, s in high if a[0] == "l" and s != "s"}
    return bool(lows) and bool(highs) and len(lows | highs) > 1
