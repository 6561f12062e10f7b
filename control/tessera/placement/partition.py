# SPDX-License-Identifier: Apache-2.0
"""From where single launch classes are to go to conditions, which new classes fall under, too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.placement.conditions import (
    LARGEST,
    Condition,
    class_values,
    quantities_of,
)
from tessera.placement.policy import Apart
from tessera.protocol.classes import Quantity

# A whole grid tells more of a launch than its sides, and a call's rows than its columns.
_FIRST = (Quantity.BLOCKS, Quantity.CALL_M, Quantity.CALL_N, Quantity.CALL_K)


@dataclass(frozen=True)
class PlacedClass:
    """A launch class that a plan has a device for."""

    name: str
    device: int
    launches: int = 1

    @property
    def quantities(self) -> Mapping[int, int]:
        return quantities_of(class_values(self.name))


def partition(classes: Sequence[PlacedClass]) -> tuple[Apart, int]:
    """Devices of some launches, the first condition that holds decides, and that of all others.

    Where one quantity tells the classes of each device from those of the others, the conditions
    are bounds of it, half-way between sizes that were seen: a size that was not seen goes where
    its neighbours go. Otherwise they name single classes.
    """
    devices = {one.device for one in classes}
    if len(devices) == 1:
        return (), devices.pop()
    best: tuple[Apart, int] | None = None
    for quantity in _order(classes):
        bounds = _bounds(classes, quantity)
        if bounds is not None and (best is None or len(bounds[0]) < len(best[0])):
            best = bounds
    return best or _single(classes)


def _order(classes: Sequence[PlacedClass]) -> list[int]:
    """The quantities that all classes have, those that tell most first."""
    common = set.intersection(*(set(one.quantities) for one in classes))
    return [q for q in _FIRST if q in common] + sorted(common - set(_FIRST))


def _bounds(classes: Sequence[PlacedClass], quantity: int) -> tuple[Apart, int] | None:
    """Conditions on one quantity; None where classes that differ in their device agree in it."""
    device_of: dict[int, int] = {}
    for one in classes:
        value = one.quantities[quantity]
        if device_of.setdefault(value, one.device) != one.device:
            return None
    sizes = sorted(device_of)
    apart = [
        (Condition(((quantity, (_between(before, size), LARGEST)),)), device_of[size])
        for before, size in itertools.pairwise(sizes)
        if device_of[before] != device_of[size]
    ]
    return tuple(reversed(apart)), device_of[sizes[0]]


def _between(small: int, large: int) -> int:
    """Half-way in proportion, and above the small one."""
    return max(small + 1, min(large, math.isqrt(max(1, small) * large)))


def _single(classes: Sequence[PlacedClass]) -> tuple[Apart, int]:
    """Each class by itself, but for those on the device with most of the launches."""
    launches: dict[int, int] = {}
    for one in classes:
        launches[one.device] = launches.get(one.device, 0) + one.launches
    rest = max(launches, key=lambda device: launches[device])
    apart = [
        (Condition.exactly(class_values(one.name)), one.device)
        for one in classes
        if one.device != rest
    ]
    return tuple(apart), rest
