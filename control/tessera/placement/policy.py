# SPDX-License-Identifier: Apache-2.0
"""Policies: what decides where a kernel runs.

A policy sees kernels and workers and nothing else of the controller, so that one can be
tried on a store alone. Plans are computed elsewhere (tessera.planning) and given to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tessera import protocol
from tessera.placement.conditions import ALWAYS, Condition
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
    """A device for one kernel, or for those launches of it for which the condition holds."""

    device: int
    reason: str
    line: int = 0  # of the rule that decided; 0: none did
    condition: Condition = ALWAYS


KernelName = tuple[str, str]  # image and name
Apart = tuple[tuple[Condition, int], ...]  # devices of some launches; the first that holds


@dataclass(frozen=True)
class Plans:
    """Computed placements: kernel to device, for each objective; and of those kernels whose
    launches a plan places apart, where some of them go.
    """

    latency: Mapping[KernelName, int] = field(default_factory=dict)
    throughput: Mapping[KernelName, int] = field(default_factory=dict)
    mode: str = "latency"  # which of them the adaptive policy follows now
    latency_apart: Mapping[KernelName, Apart] = field(default_factory=dict)
    throughput_apart: Mapping[KernelName, Apart] = field(default_factory=dict)

    def of(self, objective: str) -> Mapping[KernelName, int]:
        return self.throughput if objective == "throughput" else self.latency

    def apart(self, objective: str) -> Mapping[KernelName, Apart]:
        return self.throughput_apart if objective == "throughput" else self.latency_apart


class Policy(Protocol):
    """Chooses devices without regard to what the kernel allows: `place` sees to that."""

    name: str

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> tuple[Decision, ...]:
        """For a launch the first whose condition holds; the last has none."""


class HomePolicy:
    """Everything at home, whatever the rules say."""

    name = "home"

    def __init__(self, rules: Rules, plans: Plans) -> None:
        del plans
        written = bool(rules.rules or rules.errors)
        self._reason = "the policy is home" if written else "there are no rules"

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> tuple[Decision, ...]:
        del kernel, workers
        return (Decision(protocol.DEVICE_HOME, self._reason),)


class ManualPolicy:
    """The user's rules; home where none fits."""

    name = "manual"

    def __init__(self, rules: Rules, plans: Plans) -> None:
        del plans
        self._rules = tuple(reversed(rules.rules))

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> tuple[Decision, ...]:
        del workers
        found = []
        for rule in self._rules:
            if not rule.fits(kernel.name, kernel.image):
                continue
            reason = f"rule in line {rule.line}"
            found.append(Decision(rule.index, reason, rule.line, rule.condition))
            if not rule.condition:
                return tuple(found)
        return (*found, Decision(protocol.DEVICE_HOME, "no rule fits"))


class PlannedPolicy:
    """A computed plan; the user's rules win over it, and what it does not know stays home."""

    def __init__(self, objective: str, rules: Rules, plans: Plans) -> None:
        self.name = objective
        self._manual = ManualPolicy(rules, plans)
        self._objective = plans.mode if objective == "adaptive" else objective
        self._plan = plans.of(self._objective)
        self._apart = plans.apart(self._objective)

    def decide(self, kernel: Kernel, workers: Sequence[Worker]) -> tuple[Decision, ...]:
        *ruled, last = self._manual.decide(kernel, workers)
        if last.line:
            return (*ruled, last)
        return (*ruled, *self._planned(kernel))

    def _planned(self, kernel: Kernel) -> tuple[Decision, ...]:
        home = protocol.DEVICE_HOME
        if not self._plan:
            return (Decision(home, "there is no plan yet: tessera-ctl plan --apply"),)
        device = self._plan.get((kernel.image, kernel.name))
        if device is None:
            return (Decision(home, "the plan does not know it"),)
        reason = f"plan for {self._objective}"
        apart = self._apart.get((kernel.image, kernel.name), ())
        return (
            *(Decision(there, reason, condition=condition) for condition, there in apart),
            Decision(device, reason),
        )


def _planned(objective: str) -> Callable[[Rules, Plans], Policy]:
    return lambda rules, plans: PlannedPolicy(objective, rules, plans)


POLICIES: dict[str, Callable[[Rules, Plans], Policy]] = {
    "home": HomePolicy,
    "manual": ManualPolicy,
    "latency": _planned("latency"),
    "throughput": _planned("throughput"),
    "adaptive": _planned("adaptive"),
}


def policy_for_rules(before: str, has_rules: bool) -> str:
    """The policy once rules have been set, or cleared: rules that a user sets have effect.

    Under `home` and `manual` it is `manual` while there are rules, else `home`. The policies
    that follow plans stay: in them rules win anyway.
    """
    if before not in {HomePolicy.name, ManualPolicy.name}:
        return before
    return ManualPolicy.name if has_rules else HomePolicy.name


def make_policy(name: str, rules: Rules, plans: Plans | None = None) -> Policy:
    """Raises ValueError when there is no such policy."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r} (there are: {', '.join(POLICIES)})")
    return POLICIES[name](rules, plans or Plans())
