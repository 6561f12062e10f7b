# SPDX-License-Identifier: Apache-2.0
"""Policies: what decides where a kernel runs.

A policy sees kernels and workers and nothing else of the controller, so that one can be
tried on a store alone. Policies that learn will stand beside these two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tessera import protocol
from tessera.placement.devices import Worker
from tessera.placement.rules import Rules


@dataclass(frozen=True)
class Kernel:
    """A kernel as placement sees it."""

    id: int
    name: str
    image: str
    has_summary: bool = True
    reason: str = ""  # why there is no summary
    properties: int = 0  # TS_KERNEL_*
    minimum_architecture: int = 0
    only_architecture: int = 0


@dataclass(frozen=True)
class Decision:
    """A device for one kernel, and why."""

    device: int
    reason: str
    line: int = 0  # of the rule that decided; 0: none did


class Policy(Protocol):
    """Chooses a device without regard to what the kernel allows: `place` sees to that."""

    name: str

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> Decision: ...


class HomePolicy:
    """Everything at home, whatever the rules say."""

    name = "home"

    def __init__(self, rules: Rules) -> None:
        del rules

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> Decision:
        del kernel, workers
        return Decision(protocol.DEVICE_HOME, "the policy is home")


class ManualPolicy:
    """The user's rules; home where none fits."""

    name = "manual"

    def __init__(self, rules: Rules) -> None:
        self._rules = tuple(reversed(rules.rules))

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> Decision:
        del workers
        for rule in self._rules:
            if rule.fits(kernel.name, kernel.image):
                return Decision(rule.index, f"rule in line {rule.line}", rule.line)
        return Decision(protocol.DEVICE_HOME, "no rule fits")


POLICIES: dict[str, Callable[[Rules], Policy]] = {"home": HomePolicy, "manual": ManualPolicy}


def make_policy(name: str, rules: Rules) -> Policy:
    """Raises ValueError when there is no such policy."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r} (there are: {', '.join(POLICIES)})")
    return POLICIES[name](rules)
