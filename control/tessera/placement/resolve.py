# SPDX-License-Identifier: Apache-2.0
"""From a policy's wish to what the table says: a kernel goes only where it can run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tessera import protocol
from tessera.placement.conditions import ALWAYS, Condition
from tessera.placement.devices import Worker
from tessera.placement.policy import Decision, Kernel, Policy
from tessera.placement.rules import Finding, Rules
from tessera.protocol import architectures


@dataclass(frozen=True)
class Placement:
    """Where one kernel runs, or those launches of it for which the condition holds."""

    device: int  # 0 home, else a worker's index
    reason: str
    wanted: int  # the device that the policy chose
    line: int = 0  # of the rule that decided; 0: none did
    condition: Condition = ALWAYS
    apart: tuple[Placement, ...] = ()  # of some of its launches: the first that holds decides

    def of_launch(self, values: Mapping[int, int]) -> Placement:
        """Where launches with these quantities run."""
        return next((one for one in self.apart if one.condition.holds(values)), self)


def place(kernel: Kernel, policy: Policy, workers: Sequence[Worker]) -> Placement:
    """The policy's choice, or home with the reason when the kernel cannot run there."""
    *some, rest = (_placed(kernel, one, workers) for one in policy.decide(kernel, workers))
    return dataclasses.replace(rest, apart=tuple(some))


def _placed(kernel: Kernel, decision: Decision, workers: Sequence[Worker]) -> Placement:
    home = protocol.DEVICE_HOME
    if decision.device == home:
        return Placement(home, decision.reason, home, decision.line, decision.condition)
    obstacle = _obstacle(kernel, decision.device, workers)
    if obstacle:
        return Placement(home, obstacle, decision.device, decision.line, decision.condition)
    return Placement(
        decision.device, decision.reason, decision.device, decision.line, decision.condition
    )


def _obstacle(kernel: Kernel, device: int, workers: Sequence[Worker]) -> str:
    """Why the kernel must stay at home; empty when it need not."""
    if not kernel.has_summary:
        return kernel.reason or "not analysed yet"
    held = kernel.properties & protocol.HOME_ONLY
    if held:
        return f"stays home: {', '.join(protocol.property_words(held))}"
    worker = next((worker for worker in workers if worker.index == device), None)
    if worker is None or not worker.up:
        return f"worker {device} is down"
    return _architecture_obstacle(kernel, worker)


def _architecture_obstacle(kernel: Kernel, worker: Worker) -> str:
    has = worker.compute_capability
    only, least = kernel.only_architecture, kernel.minimum_architecture
    if not has or architectures.runs_on(least, only, has):
        return ""
    return f"needs {architectures.needs(least, only)}, worker {worker.index} is sm_{has}"


def unmatched_rules(rules: Rules, kernels: Iterable[tuple[str, str]]) -> tuple[Finding, ...]:
    """A warning for each rule that fits none of the known kernels, given as (name, image)."""
    known = list(kernels)
    return tuple(
        Finding(rule.line, f"{rule.pattern!r} fits no kernel seen so far")
        for rule in rules.rules
        if not any(rule.fits(name, image) for name, image in known)
    )
