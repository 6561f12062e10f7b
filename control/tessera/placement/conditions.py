# SPDX-License-Identifier: Apache-2.0
"""Conditions on a launch: bounds of its grid, its block, and its arguments.

A condition is written as words, `grid>=64 block=256`, all of which have to hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tessera.protocol.classes import ARGUMENT, ARGUMENTS, Quantity
from tessera.protocol.tables import MAX_TERMS

LARGEST = (1 << 64) - 1
NAMES: dict[str, int] = {
    "grid": Quantity.BLOCKS,
    "grid.x": Quantity.GRID_X,
    "grid.y": Quantity.GRID_Y,
    "grid.z": Quantity.GRID_Z,
    "block": Quantity.THREADS,
    "block.x": Quantity.BLOCK_X,
    "block.y": Quantity.BLOCK_Y,
    "block.z": Quantity.BLOCK_Z,
    "shared": Quantity.SHARED,
    "m": Quantity.CALL_M,
    "n": Quantity.CALL_N,
    "k": Quantity.CALL_K,
    "batches": Quantity.CALL_BATCHES,
}
_WORDS = {quantity: name for name, quantity in NAMES.items()}
_SIZES = {
    "grid": (Quantity.GRID_X, Quantity.GRID_Y, Quantity.GRID_Z),
    "block": (Quantity.BLOCK_X, Quantity.BLOCK_Y, Quantity.BLOCK_Z),
}
_WORD = re.compile(r"([a-z]+[0-9]*(?:\.[a-z]+)?)(>=|<=|==|=|<|>)(.*)")
Bounds = tuple[int, int]  # least and most


class ConditionError(Exception):
    """A word is no condition, or no launch can fulfil it."""


def is_condition(word: str) -> bool:
    """Whether a word of a rule has to be a condition: no kernel's name looks so."""
    return re.search(r"[<>=]", word) is not None


def looks_like_condition(word: str) -> bool:
    """The same where the word may belong to a regular expression, too."""
    found = _WORD.fullmatch(word)
    return found is not None and _quantity(found[1]) is not None


@dataclass(frozen=True)
class Condition:
    """Bounds of quantities; without any it always holds."""

    bounds: tuple[tuple[int, Bounds], ...] = ()  # by quantity, in ascending order

    def __bool__(self) -> bool:
        return bool(self.bounds)

    @property
    def terms(self) -> tuple[tuple[int, int, int], ...]:
        """As the placement table has them: quantity, least, most."""
        return tuple((quantity, least, most) for quantity, (least, most) in self.bounds)

    def holds(self, values: Mapping[int, int]) -> bool:
        """Whether a launch with these quantities fulfils it; one that it lacks is not in bounds."""
        return all(
            quantity in values and least <= values[quantity] <= most
            for quantity, (least, most) in self.bounds
        )

    @classmethod
    def exactly(cls, values: Iterable[tuple[int, int]]) -> Condition:
        """That the quantities have these values."""
        return cls(tuple(sorted((quantity, (value, value)) for quantity, value in values)))

    def __str__(self) -> str:
        left = dict(self.bounds)
        words = [_size_word(name, left) for name in _SIZES]
        words += [
            word
            for quantity, (least, most) in sorted(left.items(), key=_order)
            for word in _words(name_of(quantity), least, most)
        ]
        return " ".join(word for word in words if word)


ALWAYS = Condition()


def _order(item: tuple[int, Bounds]) -> tuple[int, int]:
    """The whole grid and block first."""
    return item[0] not in (Quantity.BLOCKS, Quantity.THREADS), item[0]


def _size_word(name: str, left: dict[int, Bounds]) -> str:
    """`grid=2x3x1` where all three are given; takes them away."""
    bounds = [left.get(quantity) for quantity in _SIZES[name]]
    values = [one[0] for one in bounds if one is not None and one[0] == one[1]]
    if len(values) < len(bounds):
        return ""
    for quantity in _SIZES[name]:
        del left[quantity]
    return f"{name}={'x'.join(str(value) for value in values)}"


def _words(name: str, least: int, most: int) -> list[str]:
    if least == most:
        return [f"{name}={least}"]
    words = [f"{name}>={least}"] if least > 0 else []
    return words + ([f"{name}<={most}"] if most < LARGEST else []) or [f"{name}>=0"]


def name_of(quantity: int) -> str:
    """How rules write it."""
    if quantity >= ARGUMENT:
        return f"arg{quantity - ARGUMENT}"
    return _WORDS[Quantity(quantity)]


def _quantity(name: str) -> int | None:
    if name in NAMES:
        return NAMES[name]
    found = re.fullmatch(r"arg(\d{1,2})", name)
    if found is None or int(found[1]) >= ARGUMENTS:
        return None
    return ARGUMENT + int(found[1])


def parse_condition(words: Sequence[str]) -> Condition:
    """All words together. Raises ConditionError."""
    bounds: dict[int, Bounds] = {}
    for word in words:
        for quantity, (least, most) in _parse_word(word):
            before = bounds.get(quantity, (0, LARGEST))
            bounds[quantity] = (max(before[0], least), min(before[1], most))
            if bounds[quantity][0] > bounds[quantity][1]:
                raise ConditionError(f"no launch has such a {name_of(quantity)}: {' '.join(words)}")
    if len(bounds) > MAX_TERMS:
        raise ConditionError(f"{len(bounds)} quantities in one rule: {MAX_TERMS} at most")
    return Condition(tuple(sorted(bounds.items())))


def _parse_word(word: str) -> list[tuple[int, Bounds]]:
    found = _WORD.fullmatch(word)
    if found is None:
        raise ConditionError(f"{word!r} is no condition: QUANTITY>=NUMBER, such as grid>=64")
    name, operator, text = found[1], found[2], found[3]
    quantity = _quantity(name)
    if quantity is None:
        raise ConditionError(f"{word!r}: there is no {name!r}: {', '.join(NAMES)}, arg0, arg1, ...")
    if name in _SIZES and "x" in text and not text.startswith("0x"):
        return _sizes(word, name, operator, text)
    return [(quantity, _bounds(word, operator, _number(word, text)))]


def _number(word: str, text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise ConditionError(f"{word!r}: {text!r} is no number") from None
    if not 0 <= value <= LARGEST:
        raise ConditionError(f"{word!r}: {text} is not from 0 to {LARGEST}")
    return value


def _bounds(word: str, operator: str, value: int) -> Bounds:
    if operator in ("=", "=="):
        return value, value
    if operator == ">=":
        return value, LARGEST
    if operator == "<=":
        return 0, value
    if operator == ">" and value < LARGEST:
        return value + 1, LARGEST
    if operator == "<" and value > 0:
        return 0, value - 1
    raise ConditionError(f"{word!r}: no number is")


def _sizes(word: str, name: str, operator: str, text: str) -> list[tuple[int, Bounds]]:
    """`grid=2x3x1`; sizes that are left out are 1."""
    parts = text.split("x")
    if operator not in ("=", "==") or len(parts) > 3:
        raise ConditionError(f"{word!r}: sizes are given as {name}=8x4x1")
    values = [_number(word, part) for part in parts] + [1] * (3 - len(parts))
    return [(q, (value, value)) for q, value in zip(_SIZES[name], values, strict=True)]


def quantities_of(values: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The quantities of a launch class, with those that follow from others."""
    found = dict(values)
    for whole, name in ((Quantity.BLOCKS, "grid"), (Quantity.THREADS, "block")):
        if all(quantity in found for quantity in _SIZES[name]):
            x, y, z = (found[quantity] for quantity in _SIZES[name])
            found[whole] = x * y * z
    return found


def class_name(values: Iterable[tuple[int, int]]) -> str:
    """What a launch class is called: the condition that it alone fulfils. Shared memory of no
    bytes is left out.
    """
    return str(Condition.exactly(v for v in values if v != (Quantity.SHARED, 0)))


def class_values(name: str) -> tuple[tuple[int, int], ...]:
    """The values of a class by its name. Raises ConditionError."""
    bounds = dict(parse_class(name))
    if Quantity.GRID_X in bounds:
        bounds.setdefault(Quantity.SHARED, 0)
    return tuple(sorted(bounds.items()))


def parse_class(name: str) -> list[tuple[int, int]]:
    found = [one for word in name.split() for one in _parse_word(word)]
    return [(quantity, least) for quantity, (least, _) in found]
